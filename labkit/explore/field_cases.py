"""Cases from the field: public reports of lost, doubled or stuck work, each rebuilt as a pair of small scenarios.

The stories are told in our own words; each names its public source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.explore.contrasts import CONTRASTS
from labkit.explore.exploration import Exploration
from labkit.explore.scenario import Scenario
from labkit.explore.search import explore


@dataclass(frozen=True)
class FieldCase:
    """One report.

    Args:
        title: in a few words.
        source: the report, as `owner/repository#number`.
        url: where it can be read.
        what_went_wrong: in one or two sentences.
        shows: what the lab shows with it.
        law: the law that the broken scenario breaks.
        contrast: the name in `CONTRASTS` of the pair of scenarios.
    """

    title: str
    source: str
    url: str
    what_went_wrong: str
    shows: str
    law: str
    contrast: str

    @property
    def broken(self) -> Scenario:
        """The program as it was reported, or as close as the lab's tables come."""
        return CONTRASTS[self.contrast].broken

    @property
    def mended(self) -> Scenario:
        """The same with the one thing mended."""
        return CONTRASTS[self.contrast].sound

    @property
    def surprises(self) -> int:
        """The bound within which the first breaks and the second does not."""
        return CONTRASTS[self.contrast].surprises

    def break_it(self) -> Exploration:
        """Explore the broken scenario, up to its smallest failure."""
        return explore(self.broken, self.surprises)

    def try_mended(self) -> Exploration:
        """Explore the mended scenario, to the bound."""
        return explore(self.mended, self.surprises)


def _case(source: str, kind: str, title: str, story: str, shows: str, law: str, contrast: str) -> FieldCase:
    repository, _, number = source.partition("#")
    url = f"https://github.com/{repository}/{kind}/{number}"
    return FieldCase(title, source, url, story, shows, law, contrast)


_CASES = (
    _case(
        "microsoft/agent-framework#3938",
        "issues",
        "three calls, one checkpoint",
        "An agent's turn makes three tool calls and is checkpointed when it is over. The last call fails, nothing of "
        "the turn is on record, and going on from the checkpoint before it makes the first two calls again.",
        "a checkpoint for each operation",
        "no_second_effect",
        "checkpoint per operation",
    ),
    _case(
        "square/square-mcp-server#31",
        "issues",
        "a new key for every call",
        "The tool's description asks for an idempotency key that is unique for every request. A model takes a retry "
        "for a new request and makes up a new key, so the remote sees a second payment.",
        "one key for each logical operation",
        "no_second_effect",
        "same key",
    ),
    _case(
        "Medical-Software-Foundation/canvas#243",
        "issues",
        "a key that is too coarse",
        "Several writes share one key. The second comes with another body under a key that is taken, and is refused "
        "for as long as the remote remembers, which is a day.",
        "key conflicts, and the scope of a key",
        "the_work_is_done",
        "key scope",
    ),
    _case(
        "aegra/aegra#547",
        "pull",
        "a lease that is owned by a name",
        "The owner of a lease is the worker's name, which stays the same. An attempt that was stalled past its lease "
        "finds its own name on its successor's lease, and writes the result.",
        "a fencing token for each acquisition",
        "finished_by_the_holder",
        "token",
    ),
    _case(
        "younong/hermescopy#278",
        "issues",
        "a claim that lasts for ever",
        "A worker process dies between claiming its start and being there. Such a claim never expires: for nine days "
        "every attempt to start another one is refused, every five seconds.",
        "leases that run out",
        "settled_in_the_end",
        "lease",
    ),
    _case(
        "SamSaffron/term-llm#732",
        "pull",
        "back to the queue with everything",
        "At start-up every job that was running goes back to the queue as if it had never begun, and what it had "
        "already done in the outside world is done again.",
        "recovery from the record of each operation",
        "no_second_effect",
        "operation record",
    ),
    _case(
        "FairladyZ625/harness-anything#1003",
        "pull",
        "a time-out that is called a failure",
        "A write whose answer does not come in time is reported as not done, with the hint to try again. It was done.",
        "an unknown outcome as an answer of its own",
        "no_second_effect",
        "time-out",
    ),
    _case(
        "wormforce/sustech-cli#6",
        "issues",
        "not found, not yet",
        'After a time-out the client asks whether the request was applied and hears "not found". It is applied a '
        "moment later, beside the second one.",
        'late delivery: "not found" is no proof',
        "no_second_effect",
        "found",
    ),
    _case(
        "eclipse-dirigible/dirigible#6816",
        "issues",
        "an event that nobody sends",
        "The row is committed first and its event published then. Where that fails, the change stays and nobody ever "
        "hears of it.",
        "an outbox in the transaction of the change",
        "every_change_is_announced",
        "outbox",
    ),
    _case(
        "jentic/jentic-one#529",
        "pull",
        "locked at once, whatever the time-out",
        "A transaction begins deferred, reads, and then wants to write. Another has written since, so its snapshot is "
        "too old: it is told at once that the database is locked, without any waiting.",
        "BEGIN IMMEDIATE",
        "nobody_is_turned_away",
        "write lock",
    ),
    _case(
        "kent8192/reinhardt-web#738",
        "issues",
        "look, then take",
        "A worker selects a waiting row and updates it in a second statement. Between the two another worker selects "
        "the same row, and both run it.",
        "a claim by compare-and-set",
        "one_owner",
        "claim",
    ),
    _case(
        "ModelsLab/modelq#18",
        "pull",
        "refused for ever",
        "Whatever asks for a retry is tried again, uncounted, though the resource is missing or forbidden and no retry "
        "can mend that. On one worker 119 of 120 starts came to nothing in this way.",
        "error categories",
        "settled_in_the_end",
        "categories",
    ),
)

FIELD_CASES: Mapping[str, FieldCase] = {case.source: case for case in _CASES}
"""The cases by source."""
