"""The faults of docs/faults.md thousands of times over; each drill says in a line what it counted."""

import json
import shutil
import sys
from collections.abc import Mapping

import pytest

from drills import disks, flipping, interrupting
from drills.programs import run

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(sys.platform != "linux", reason="signals, forks, mounts and strace as on Linux"),
]
STRACE = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: no run can be recorded")
LEDGER = pytest.mark.parametrize("ledger", [[], ["--ledger"]], ids=["store", "ledger"])


def tell(title: str, seen: Mapping[str, object]) -> None:
    print(f"{title}: {json.dumps(seen)}")


@pytest.mark.parametrize(("ledger", "kills"), [([], 2000), (["--ledger"], 2000)], ids=["store", "ledger"])
def test_two_thousand_kills_cost_no_acknowledged_change_and_leave_no_lease_stuck(ledger: list[str], kills: int) -> None:
    seen = run("killing", "--kills", kills, "--seed", 7, *ledger)
    tell("kills", seen)
    assert seen["kills"] == kills
    assert seen["logs left"] > kills / 10
    assert seen["hot journals left"] > kills / 100
    assert ledger or (seen["in doubt"] > 0 and seen["leases taken over"] > 0)


def test_eight_processes_claim_five_thousand_tasks_each_once_and_none_is_turned_away() -> None:
    seen = run("claiming", "--tasks", 5000)
    tell("crowd", seen)
    assert (seen["claimed"], seen["claimed once"], seen["lost"], seen["errors"]) == (5000, 5000, 0, [])
    assert seen["share of the slowest"] > 0.1, "waiting is about fair: nobody starves"


def test_eight_processes_with_the_same_keys_have_one_effect_a_key() -> None:
    seen = run("claiming", "--tasks", 500, "--ledger")
    tell("crowd at a ledger", seen)
    assert (seen["effects"], seen["most effects of one key"], seen["errors"]) == (500, 1, [])


@STRACE
@LEDGER
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_power_cut_after_any_operation_takes_nothing_that_was_acknowledged(journal: str, ledger: list[str]) -> None:
    seen = run("powercut", "--journal", journal, "--changes", 60, *ledger)
    tell(f"power cuts, {journal}, FULL", seen)
    assert (seen["lost"], seen["broken"]) == (0, 0)
    assert seen["prefixes"] == seen["steps"] + 1 > 500


@STRACE
@pytest.mark.parametrize(
    ("arguments", "sound"),
    [
        (["--synchronous", "NORMAL"], True),
        (["--synchronous", "OFF"], False),
        (["--journal", "delete", "--level", "FULL"], True),
        (["--journal", "delete", "--synchronous", "NORMAL"], False),
        (["--journal", "delete", "--synchronous", "OFF"], False),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_with_less_synchronising_power_cuts_are_seen_to_lose_what_was_acknowledged(
    arguments: list[str], sound: bool
) -> None:
    seen = run("powercut", "--share", 0.3, *arguments)
    tell(f"power cuts, {' '.join(arguments)}", seen)
    assert seen["lost"] > 0
    assert seen["broken"] == 0 or not sound


@LEDGER
def test_flipped_bits_have_a_name_or_are_not_noticed(ledger: list[str]) -> None:
    seen = flipping.flip(3000, 7, bool(ledger))
    tell("flips", seen)
    assert set(seen) <= {"not noticed", "StoreCorrupt", "NotALabFile", "StoreReadOnly"}


@pytest.mark.parametrize("name", interrupting.STEPS)
def test_an_interrupt_at_any_bytecode_leaves_all_or_nothing(name: str) -> None:
    seen = interrupting.interrupt_everywhere(name, stride=7)
    tell(f"interrupts, {name}", seen)
    assert seen["interrupts"] > 50
    assert seen["locked until the next call"] == 0


def test_three_thousand_interrupts_by_a_signal_leave_tasks_at_one_of_their_steps() -> None:
    seen = run("interrupting", "--times", 3000, "--seed", 7)
    tell("signals", seen)
    assert seen["interrupts"] == 3000


@pytest.mark.skipif(not disks.can_mount(), reason="only root may mount a small disk")
@LEDGER
def test_a_disk_of_any_small_size_is_full_and_then_is_not(ledger: list[str]) -> None:
    seen = run("disks", "full", *ledger, before=("unshare", "-m"))
    tell("full disks", seen)
    assert (seen["filling"], seen["lost"]) == ("StoreFull", 0)
