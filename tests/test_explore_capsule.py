"""Capsules: failures that can be kept, sent and played again, and that run nothing by themselves."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from labkit.agent import plan
from labkit.changes import Assumptions
from labkit.errors import InvalidInput
from labkit.explore import (
    BadCapsule,
    Capsule,
    LabWorker,
    ScheduleMismatch,
    Surprise,
    TaskScenario,
    explore,
    replay,
)
from labkit.explore import warm as warm_files
from labkit.explore.capsule import KEPT, MAX_BYTES, capsule_of
from labkit.explore.fields import LONGEST_TEXT, plain
from labkit.explore.laws import LAWS
from labkit.explore.setup import scenario_from, setup_of
from labkit.explore.sql_programs import claim_by_condition, claim_by_reading, claiming
from labkit.policies import POLICIES
from labkit.remote import Capabilities
from labkit.retries import Budget
from labkit.runs import Run

RICH = TaskScenario(
    LabWorker("blind_replay"),
    tuple(replace(one, needs_approval=number == 1) for number, one in enumerate(plan())),
    {"payments": Capabilities(True, True, key_ttl_seconds=20.0), "tickets": Capabilities(), "mail": Capabilities()},
    workers=2,
    allowed=frozenset({"crash", "late", "switch"}),
    person=False,
    compensate=True,
    budget=Budget(3, 500.0),
    assumptions=Assumptions(30.0, 40.0),
    late_by_seconds=25.0,
    laws={"no_second_effect": LAWS["no_second_effect"]},
)
"""A scenario that differs from the defaults in every field."""


def failure(scenario: Any, surprises: int = 2) -> Capsule:
    capsule = explore(scenario, surprises).capsule
    assert capsule is not None
    return capsule


@pytest.fixture(scope="module")
def lost() -> Capsule:
    """A task that is believed done: the lab's own worker, one crash."""
    return failure(TaskScenario(LabWorker("assume_done")))


def data(capsule: Capsule) -> dict[str, Any]:
    return json.loads(capsule.to_json())  # type: ignore[no-any-return]


# --- writing and reading ----------------------------------------------------------------------------------


def test_a_capsule_is_small_readable_json():
    capsule = failure(TaskScenario(LabWorker("assume_done"), allowed=frozenset({"crash"})))
    assert data(capsule) == {
        "format": "recovery-lab capsule",
        "version": 1,
        "law": "success_means_done",
        "how": "the task succeeded, but the ledger shows no task-1/refund",
        "verdict": "lost",
        "surprises": [{"step": 3, "worker": "worker-1", "point": "intend task-1/refund", "choice": "crash"}],
        "setup": {
            "kind": "task",
            "program": {"policy": "assume_done"},
            "workers": 1,
            "allowed": ["crash"],
            "operations": [
                {
                    "name": "refund",
                    "remote": "payments",
                    "request": {"amount": 40, "do": "refund", "order": 1042},
                    "undo_request": {"amount": 40, "do": "charge", "order": 1042},
                }
            ],
            "remotes": {
                "payments": {"idempotency_keys": True, "status_query": True},
                "tickets": {"status_query": True},
                "mail": {},
            },
            "person": True,
            "compensate": False,
            "budget": {},
            "assumptions": {},
            "late_by_seconds": 45.0,
        },
    }
    assert len(capsule.to_json()) < 2_000
    assert capsule.to_json().isascii()


def test_the_defaults_that_a_capsule_leaves_out_are_those_of_its_version():
    assert (Budget(), Assumptions()) == (Budget(5, 3600.0), Assumptions(60.0, 60.0))
    assert Capabilities() == Capabilities(False, False, False, 86_400.0, False, False, False, 0.0)


@pytest.mark.parametrize(
    "scenario",
    [TaskScenario(LabWorker("assume_done")), RICH, claiming(claim_by_reading)],
    ids=["defaults", "no default", "plain SQL"],
)
def test_what_is_written_is_read_back_the_same(scenario: Any):
    capsule = failure(scenario)
    again = Capsule.from_json(capsule.to_json())
    assert again == capsule
    assert again.to_json() == capsule.to_json()
    assert [(one.worker, one.point) for one in again.surprises] == [
        (one.worker, one.point) for one in capsule.surprises
    ]


@pytest.mark.parametrize("scenario", [TaskScenario(LabWorker("same_key")), RICH], ids=["defaults", "no default"])
def test_a_scenario_is_built_again_from_its_set_up(scenario: TaskScenario):
    assert scenario_from(setup_of(scenario)) == scenario


def test_of_a_student_s_program_a_capsule_holds_only_the_name():
    capsule = failure(TaskScenario(believes_everything))
    assert data(capsule)["setup"]["program"] == {"label": "believes_everything"}
    assert capsule.program == "believes_everything"


def test_a_capsule_says_in_words_what_it_holds(lost: Capsule):
    assert str(lost) == (
        "assume_done: lost. success_means_done: the task succeeded, but the ledger shows no task-1/refund\n"
        "  step 3: worker-1, intend task-1/refund: crash"
    )


def test_no_control_character_of_a_law_s_sentence_gets_into_a_capsule():
    scenario = replace(
        TaskScenario(LabWorker("same_key")), laws={"loud\x07": lambda record: "red:\x1b[31m\n" + "x" * 999}
    )
    capsule = failure(scenario)
    assert capsule.how == ("red:?[31m " + "x" * 999)[:LONGEST_TEXT]
    assert Capsule.from_json(capsule.to_json()).setup["laws"] == ["loud?"]


def test_a_capsule_that_would_be_too_large_is_not_written(lost: Capsule):
    setup = json.loads(json.dumps(lost.setup))
    setup["operations"][0]["request"]["text"] = "x" * MAX_BYTES
    with pytest.raises(BadCapsule, match="at most 65,536 bytes"):
        replace(lost, setup=setup).to_json()


# --- playing again ------------------------------------------------------------------------------------------


def believes_everything(task_id: str, store: Any, remotes: Mapping[str, Any]) -> None:
    LabWorker("assume_done")(task_id, store, remotes)


def mended(task_id: str, store: Any, remotes: Mapping[str, Any]) -> None:
    LabWorker("same_key")(task_id, store, remotes)


def otherwise_wrong(task_id: str, store: Any, remotes: Mapping[str, Any]) -> None:
    LabWorker("replay_transcript")(task_id, store, remotes)
    raise ValueError("wrong in another way")


def looks_first(task_id: str, store: Any, remotes: Mapping[str, Any]) -> None:
    store.renew(store.claim(store.get(task_id), "worker-1", 30.0), 30.0)


@pytest.mark.parametrize("policy", ["assume_done", "blind_replay", "query_first"])
def test_a_replay_ends_as_the_capsule_says(policy: str):
    capsule = Capsule.from_json(failure(TaskScenario(LabWorker(policy))).to_json())
    again = replay(capsule)
    assert again.breaks
    assert (again.played.law, again.played.how, again.played.verdict) == (capsule.law, capsule.how, capsule.verdict)
    assert str(again) == f"this run breaks the law again: {capsule.law}: {capsule.how}"


def test_a_replay_is_a_run_with_its_three_views_and_the_surprise_marked(lost: Capsule):
    run = replay(lost).run
    assert isinstance(run, Run)
    assert run.title == "assume_done: crash"
    assert (run.verdict, dict(run.effects)) == ("lost", {})
    assert [moment.number for moment in run.moments] == list(range(1, len(run.moments) + 1))
    assert [(moment.point, moment.fault) for moment in run.moments if moment.fault] == [
        ("intend task-1/refund", "crash")
    ]


def test_a_fault_of_the_wire_is_marked_at_the_crossing_behind_it():
    capsule = failure(TaskScenario(LabWorker("blind_replay"), allowed=frozenset({"response_lost"})))
    run = replay(capsule).run
    assert run is not None
    (lost_reply,) = [moment for moment in run.moments if moment.fault]
    assert (lost_reply.point, lost_reply.fault) == ("send task-1/refund", "response lost")
    assert dict(lost_reply.ledger) == {"task-1/refund": 1}


def test_a_replay_can_be_gone_through_step_by_step(lost: Capsule):
    again = replay(lost)
    steps = iter(again)
    assert next(steps).database == "queued v1: refund pending"
    assert next(steps).database == "running v2: refund pending"
    third = next(steps)
    assert (third.believes, third.database) == ("about to send, attempt 1", "running v3: refund in doubt")
    assert third.fault == "crash"
    assert len(again) == 3 + len(list(steps))


def test_plain_sql_is_replayed_statement_by_statement():
    again = explore(claiming(claim_by_reading)).replay()
    assert again is not None
    assert again.run is None
    assert [moment.worker for moment in again][:4] == ["worker-1", "worker-1", "worker-2", "worker-2"]
    assert [moment.fault for moment in again if moment.fault] == ["switch to worker-2"]


def test_a_run_that_no_longer_breaks_a_law_says_so():
    capsule = failure(TaskScenario(believes_everything))
    again = replay(capsule, mended)
    assert not again.breaks
    assert str(again) == "this run no longer breaks a law; it came to: exactly once"


def test_a_run_that_breaks_another_law_now_names_both():
    again = replay(failure(TaskScenario(believes_everything)), otherwise_wrong)
    assert again.breaks
    assert str(again).startswith("this run breaks no_worker_breaks now, and success_means_done no longer: ")


def test_a_run_that_differs_names_the_step_and_what_was_expected_there():
    capsule = failure(TaskScenario(believes_everything))
    with pytest.raises(ScheduleMismatch) as caught:
        replay(capsule, looks_first)
    assert (caught.value.place, caught.value.expected) == (2, "worker-1, intend task-1/refund: crash")
    assert str(caught.value).startswith(
        "step 3 differs: expected worker-1, intend task-1/refund: crash; found worker-1, renew task-1: go on, crash"
    )


def test_another_worker_at_the_same_point_is_a_difference(lost: Capsule):
    (crash,) = lost.surprises
    with pytest.raises(ScheduleMismatch, match=r"step 3 differs: expected worker-2, .*; found worker-1, "):
        replay(replace(lost, surprises=(replace(crash, worker="worker-2"),)))


def test_a_run_that_ends_too_early_says_after_which_step(lost: Capsule):
    last = len(replay(lost).played.steps)
    longer = replace(lost, surprises=(*lost.surprises, Surprise(500, "crash", "worker-9", "start worker-9")))
    with pytest.raises(ScheduleMismatch) as caught:
        replay(longer)
    expected = "worker-9, start worker-9: crash"
    assert str(caught.value) == f"step 501 differs: expected {expected}; found the run ends after step {last}"


def test_a_surprise_that_is_no_longer_on_offer_is_a_difference_too(lost: Capsule):
    crashless = TaskScenario(LabWorker("assume_done"), allowed=frozenset({"late"}))
    with pytest.raises(
        ScheduleMismatch, match=r"step 3 differs: .*: crash; found worker-1, intend task-1/refund: go on$"
    ):
        replay(lost, crashless)


def test_a_capsule_of_a_student_s_program_asks_for_the_program():
    with pytest.raises(InvalidInput, match="the program 'believes_everything', or a scenario with it"):
        replay(failure(TaskScenario(believes_everything)))


def test_a_capsule_of_a_law_of_one_s_own_asks_for_the_scenario():
    scenario = replace(TaskScenario(LabWorker("same_key")), laws={"nothing_is_ever_right": lambda record: "wrong"})
    capsule = failure(scenario)
    with pytest.raises(InvalidInput, match="the scenario itself, for the law 'nothing_is_ever_right' is code"):
        replay(capsule)
    assert replay(capsule, scenario).breaks


def test_a_capsule_of_plain_sql_asks_for_the_scenario():
    capsule = failure(claiming(claim_by_reading))
    for code in (None, claim_by_condition):
        with pytest.raises(InvalidInput, match="the scenario itself, for its rows and laws are code"):
            replay(capsule, code)
    assert replay(capsule, claiming(claim_by_reading)).breaks


# --- from strangers -----------------------------------------------------------------------------------------


def changed(lost: Capsule, change: Callable[[dict[str, Any]], object]) -> str:
    found = data(lost)
    change(found)
    return json.dumps(found)


def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: Any) -> None:
        for name in path[:-1]:
            found = found[name]
        found[path[-1]] = value

    return change


OPERATION = ("setup", "operations", 0)
SURPRISE = ("surprises", 0)
WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (put("pickle", "format"), "format: 'recovery-lab capsule'"),
    "a later version": (put(2, "version"), "version: 1"),
    "a version that equals 1": (put(True, "version"), "version: 1"),
    "no surprises": (lambda found: found.pop("surprises"), "a field 'surprises'"),
    "a further field": (put("import os", "code"), "without further fields"),
    "a million surprises": (
        lambda found: found["surprises"].extend([1] * 2_000),
        "surprises: a list of 0 to 100 items",
    ),
    "surprises that are text": (put("crash", "surprises"), "surprises: a list"),
    "a surprise that is a list": (put([], *SURPRISE), "surprise: a JSON object"),
    "step 0": (put(0, *SURPRISE, "step"), "step: a whole number from 1 to 10000"),
    "a step that is true": (put(True, *SURPRISE, "step"), "step: a whole number"),
    "a step with a fraction": (put(3.0, *SURPRISE, "step"), "step: a whole number"),
    "a step beyond counting": (put(10**300, *SURPRISE, "step"), "step: a whole number"),
    "steps out of order": (lambda found: found["surprises"].extend(found["surprises"]), "step: a whole number from 4"),
    "a choice that is a number": (put(7, *SURPRISE, "choice"), "choice: 1 to 500 printable"),
    "an escape sequence": (put("\x1b[2J", *SURPRISE, "point"), "point: 1 to 500 printable"),
    "half of a pair": (put("\ud800", *SURPRISE, "worker"), "worker: 1 to 500 printable"),
    "a verdict in two lines": (put("exactly\nonce", "verdict"), "verdict: 1 to 500 printable"),
    "a set-up that is null": (put(None, "setup"), "setup: a JSON object"),
    "another kind": (put("module", "setup", "kind"), "kind: 'task' or 'code'"),
    "a kind that is an object": (put({}, "setup", "kind"), "kind: 'task' or 'code'"),
    "a policy that is none": (put({"policy": "os.system"}, "setup", "program"), "policy: one of assume_done"),
    "a policy that is a list": (put({"policy": ["assume_done"]}, "setup", "program"), "policy: 1 to 500 printable"),
    "a policy and a label": (put({"policy": "same_key", "label": "x"}, "setup", "program"), "without further"),
    "no worker": (put(0, "setup", "workers"), "workers: a whole number from 1 to 8"),
    "a crowd of workers": (put(10**9, "setup", "workers"), "workers: a whole number from 1 to 8"),
    "a surprise of another kind": (
        put(["crash", "rm -rf"], "setup", "allowed"),
        "allowed: some of cancel, clock, crash",
    ),
    "no operation": (put([], "setup", "operations"), "operations: a list of 1 to 20 items"),
    "an operation without a remote": (put("bank", *OPERATION, "remote"), "remote: one of payments, tickets, mail"),
    "a remote that is an object": (put({}, *OPERATION, "remote"), "remote: 1 to 500 printable"),
    "a request that is text": (put("{}", *OPERATION, "request"), "request: a JSON object"),
    "approval that is a number": (put(1, *OPERATION, "needs_approval"), "needs_approval: true or false"),
    "no remote": (put({}, "setup", "remotes"), "remotes: 1 to 20"),
    "an ability that is none": (put({"root": True}, "setup", "remotes", "mail"), "remote mail without further"),
    "a flag that is a number": (put({"status_query": 1}, "setup", "remotes", "mail"), "status_query: true or false"),
    "abilities that exclude each other": (put({"keys_required": True}, "setup", "remotes", "mail"), "fine print"),
    "no attempt": (put({"max_attempts": 0}, "setup", "budget"), "max_attempts: 1 or more"),
    "time without end": (put(1e300, "setup", "late_by_seconds"), "late_by_seconds: a finite number of seconds"),
    "time that is text": (put("45", "setup", "late_by_seconds"), "late_by_seconds: a finite number of seconds"),
    "time that runs backwards": (put(-1, "setup", "late_by_seconds"), "late_by_seconds: a finite number of seconds"),
    "laws by number": (put([1], "setup", "laws"), "laws: names"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_capsule_with_a_wrong_part_is_refused_and_the_part_named(lost: Capsule, case: str):
    change, expected = WRONG[case]
    with pytest.raises(BadCapsule) as caught:
        Capsule.from_json(changed(lost, change))
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[]", "the whole: a JSON object"),
        ("null", "the whole: a JSON object"),
        ('"recovery-lab capsule"', "the whole: a JSON object"),
        ("{}", "the whole with a field 'format'"),
        ("[" * 60_000, "JSON of no great depth"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "JSON of no great depth"),
        ("9" * 5_000, "JSON"),
        ("9" * 4_000, "the whole: a JSON object"),
        ('{"version": NaN}', "finite numbers"),
        ('{"version": -Infinity}', "finite numbers"),
        ('{"version": 1, "version": 2}', "each name once in an object"),
        (" " * MAX_BYTES + "{}", "at most 65,536 bytes"),
        ('"' + "é" * 40_000 + '"', "at most 65,536 bytes"),
        ("\ud800", "JSON"),
        ("cos\nsystem\n(S'true'\ntR.", "JSON"),
        (b"{}", "text"),
        (None, "text"),
    ],
    ids=lambda value: None if len(str(value)) > 30 else repr(value),
)
def test_what_is_no_capsule_at_all_is_refused(text: Any, expected: str):
    with pytest.raises(BadCapsule) as caught:
        Capsule.from_json(text)
    assert f"expected {expected}" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_capsule_of_plain_sql_is_read_as_strictly():
    capsule = failure(claiming(claim_by_reading))
    with pytest.raises(BadCapsule, match="setup without further fields"):
        Capsule.from_json(changed(capsule, put("DROP TABLE tasks", "setup", "prepare")))
    with pytest.raises(BadCapsule, match="workers: a whole number"):
        Capsule.from_json(changed(capsule, put(99, "setup", "workers")))


def test_a_refused_capsule_is_invalid_input_with_its_fields(lost: Capsule):
    with pytest.raises(InvalidInput) as caught:
        Capsule.from_json(changed(lost, put(10**9, "setup", "workers")))
    assert caught.value.found == 10**9
    assert "from 1 to 8" in caught.value.expected


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)


def places(found: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [path, *(place for name, value in inside for place in places(value, (*path, name)))]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_stands_anywhere_in_it_a_capsule_is_read_or_refused(draw: st.DataObject):
    found = {
        "format": "recovery-lab capsule",
        "version": 1,
        **dict.fromkeys(("law", "how", "verdict"), "x"),
        "surprises": [{"step": 3, "worker": "worker-1", "point": "intend task-1/refund", "choice": "crash"}],
        "setup": setup_of(replace(RICH, program=LabWorker("assume_done"))),
    }
    found = json.loads(json.dumps(found))
    path = draw.draw(st.sampled_from(places(found)[1:]))
    put(draw.draw(JSON_VALUES), *path)(found)
    text = json.dumps(found)
    try:
        capsule = Capsule.from_json(text)
    except BadCapsule:
        return
    assert Capsule.from_json(capsule.to_json()) == capsule


def test_a_name_in_a_capsule_leads_to_no_file_outside_the_world_s_folder(
    lost: Capsule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    inside = tmp_path / "memory"
    inside.mkdir()
    monkeypatch.setattr(warm_files, "SHARED_MEMORY", inside)
    monkeypatch.delenv("TMPDIR", raising=False)
    found = data(lost)
    outside = "../../outside"
    found["setup"]["remotes"] = {outside: found["setup"]["remotes"]["payments"], "tasks": {}}
    found["setup"]["operations"][0]["remote"] = outside
    seen: list[str] = []

    def looking(task_id: str, store: Any, remotes: Mapping[str, Any]) -> None:
        seen.extend(path.name for path in tmp_path.rglob("*.sqlite") if inside not in path.parents)
        LabWorker("assume_done")(task_id, store, remotes)

    assert replay(Capsule.from_json(json.dumps(found)), looking).breaks
    assert seen == []
    assert list(inside.iterdir()) == []


def test_a_capsule_from_a_stranger_runs_no_code_but_the_lab_s_own(lost: Capsule):
    found = data(lost)
    found["setup"]["program"] = {"label": "__import__('os').abort()"}
    capsule = Capsule.from_json(json.dumps(found))
    assert capsule.program == "__import__('os').abort()"
    with pytest.raises(InvalidInput, match="the program"):
        replay(capsule)


def test_every_policy_can_be_named_in_a_capsule():
    for policy in POLICIES:
        assert scenario_from(setup_of(TaskScenario(LabWorker(policy)))).program == LabWorker(policy)


@given(st.text())
def test_plain_text_is_one_printable_line_and_stays_so(text: str):
    line = plain(text)
    assert line.isprintable()
    assert plain(line) == line
    assert len(line) <= LONGEST_TEXT


def test_the_capsule_of_a_run_that_broke_nothing_says_so_and_tells_when_it_breaks_something_now():
    scenario = TaskScenario(mended)
    world = scenario.open()
    kept = capsule_of(scenario, world.play(()))
    world.close()
    assert kept.law == kept.how == KEPT
    assert (
        str(replay(Capsule.from_json(kept.to_json()), mended)) == "this run keeps every law; it came to: exactly once"
    )
    broken = str(replay(kept, otherwise_wrong))
    assert broken.startswith("this run breaks no_worker_breaks now, and broke none before: ")
