"""What the lab claims, each claim with the assumption it rests on and the schedule that breaks it without that.

The rows are data. `show` lets the explorer try both sides of each: with the assumption every schedule within the bound
keeps every law; without it, here is the smallest that does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from labkit.errors import InvalidInput
from labkit.explore.contrasts import CONTRASTS, Contrast
from labkit.explore.exploration import Exploration


@dataclass(frozen=True)
class Guarantee:
    """One claim.

    Args:
        name: of its pair of scenarios in `CONTRASTS`.
        claim: what holds.
        assumption: what it rests on.
        dropped: how that is missing on the other side.
    """

    name: str
    claim: str
    assumption: str
    dropped: str

    @property
    def contrast(self) -> Contrast:
        """The two scenarios."""
        return CONTRASTS[self.name]


@dataclass(frozen=True)
class Shown:
    """A claim and what the explorer has found on both sides of it."""

    guarantee: Guarantee
    kept: Exploration
    dropped: Exploration

    @property
    def law(self) -> str:
        """The law that breaks without the assumption, in words; empty where none did."""
        return "" if self.dropped.failure is None else self.dropped.failure.law.replace("_", " ")

    @property
    def schedule(self) -> tuple[str, ...]:
        """The smallest schedule that breaks it, such as `worker-1, wire: send task-1/refund: response lost`."""
        found = () if self.dropped.failure is None else self.dropped.failure.schedule
        return tuple(f"{one.worker}, {one.point}: {one.choice.replace('_', ' ')}" for one in found)


GUARANTEES: tuple[Guarantee, ...] = (
    Guarantee(
        "claim",
        "Of all workers that see a queued task, one gets it.",
        "The UPDATE itself asks for the state and the version that were read; its row count is the answer.",
        "the state is read first, and the UPDATE goes by the id alone",
    ),
    Guarantee(
        "write lock",
        "Workers that read and write in one transaction wait for each other; none is turned away.",
        "The transaction begins with BEGIN IMMEDIATE, so it has the write lock before it reads.",
        "it begins deferred, reads, and then asks for the lock",
    ),
    Guarantee(
        "token",
        "A worker that has lost its lease changes no row any more.",
        "Every acquisition has a fencing token of its own, and every change asks for it.",
        "changes ask for the owner's name, and all workers are called the same",
    ),
    Guarantee(
        "lease",
        "A task whose worker died is carried on.",
        "A lease runs out by itself, for a dead worker cannot give it back, and somebody takes over.",
        "workers claim queued tasks only, so a claim lasts for ever",
    ),
    Guarantee(
        "clock",
        "A clock that is off hands a task over too early or too late, and does no other harm.",
        "Who may write is decided by the token, never by a time.",
        "a holder goes by its own clock, and finishes while that says its lease has not run out",
    ),
    Guarantee(
        "intent",
        "After a crash it is known which operation may have been sent.",
        "The intent is committed before the request leaves.",
        "the request leaves first",
    ),
    Guarantee(
        "checkpoint",
        "The result of an operation and the step of its task never disagree.",
        "Both are written in one transaction.",
        "they are written one after the other",
    ),
    Guarantee(
        "checkpoint per operation",
        "A late failure repeats nothing that was done before it.",
        "Each operation has a checkpoint of its own.",
        "all operations share one checkpoint at the end",
    ),
    Guarantee(
        "operation record",
        "A take-over goes on from what is on record, and sends nothing again on a guess.",
        "Whoever takes over looks at the record of each operation.",
        "it takes whatever has no result for never sent",
    ),
    Guarantee(
        "task state",
        "A worker that continues for a dead one makes the same call, not a new one.",
        "Its context is built from the task's state.",
        "its context is the transcript, in which the next tool call has a new id",
    ),
    Guarantee(
        "time-out",
        "A request without an answer is settled, not repeated.",
        "A time-out is reported as an unknown outcome.",
        'the client reports a time-out as "not sent"',
    ),
    Guarantee(
        "same key",
        "Sending again under a key has no second effect.",
        "The key belongs to the operation and stays the same over every attempt and restart.",
        "every call makes a new key",
    ),
    Guarantee(
        "key scope",
        "No operation is refused for the key of another.",
        "Each operation has a key of its own.",
        "one key serves all operations of a task",
    ),
    Guarantee(
        "key memory",
        "A resend under a key comes while the remote still remembers that key.",
        "The age of the first attempt, the longest delivery and the longest pause together stay below its memory.",
        "the key is taken to be remembered for ever, and the remote forgets it after 20 s",
    ),
    Guarantee(
        "clock of the sender",
        "A resend under a key comes in time, even where the clock was fast that dated the first attempt.",
        "What is allowed for the longest delivery and the longest pause leaves room for what clocks differ by.",
        "both are taken to be zero, and the remote remembers a key for a minute",
    ),
    Guarantee(
        "manual",
        "A policy that goes by what a remote can do neither doubles nor loses work.",
        "The remote does what its manual says.",
        "it accepts keys, as the manual says, and pays no heed to them",
    ),
    Guarantee(
        "found",
        "A status query settles what it finds.",
        'Only that: after "not found" the request may still be under way, so a person is asked.',
        'the operation is sent again after "not found"',
    ),
    Guarantee(
        "fence",
        '"Not found" is final where the remote refuses smaller fencing tokens.',
        "The query hands over a token larger than that of every attempt.",
        "the query comes without a token",
    ),
    Guarantee(
        "query lag",
        'A fenced "not found" is believed only where the query sees every effect at once.',
        "A remote whose query lags says so, and a person is asked.",
        "the lag in the manual is not read",
    ),
    Guarantee(
        "patience",
        'A person\'s "not applied" is true for good.',
        "It counts only after the longest pause and the longest delivery, and these are not too short.",
        "both are taken to be zero, and a request arrives 45 s late",
    ),
    Guarantee(
        "categories",
        "A refusal that no repetition helps ends the task at once.",
        "Errors are sorted by what helps: only transient ones are repeated.",
        "every refusal is reported as transient",
    ),
    Guarantee(
        "budget",
        "Even a client that calls every refusal transient comes to an end.",
        "Attempts and seconds are bounded for each operation, on record in the task's row.",
        "there is no bound",
    ),
    Guarantee(
        "outbox",
        "Every change is announced at least once.",
        "The message is written in the transaction of the change; a relay delivers whatever waits.",
        "the change is committed first, and published then",
    ),
    Guarantee(
        "inbox",
        "What is delivered at least once has one effect.",
        "The consumer notes the message's id in the transaction of what it does about it.",
        "the consumer acts on every delivery",
    ),
    Guarantee(
        "cancel",
        "Once a cancel is committed, no operation begins.",
        "The UPDATE that records the intent itself asks whether a cancel is requested.",
        "the cancel is looked for first, and the intent recorded then",
    ),
    Guarantee(
        "undo order",
        "What a half-done compensation leaves is a state that the task has been in before.",
        "Operations are undone last done first.",
        "they are undone first done first",
    ),
    Guarantee(
        "undo key",
        "An undo that is on record has happened.",
        "It is an operation with an id, and so a key, of its own.",
        "it goes out under the key of what it undoes, and the remote answers as it did before",
    ),
)


def show(names: Iterable[str] | None = None) -> tuple[Shown, ...]:
    """Let the explorer try claims on both sides.

    Args:
        names: of the claims; None for all. It takes from a blink to a second or two for each.

    Raises:
        InvalidInput: there is no claim of that name.
    """
    known = {one.name: one for one in GUARANTEES}
    wanted = tuple(known) if names is None else tuple(names)
    held: dict[tuple[int, int], Exploration] = {}
    found = []
    for name in wanted:
        if name not in known:
            raise InvalidInput(f"one of {', '.join(known)}", name)
        contrast = known[name].contrast
        same = (id(contrast.sound), contrast.surprises)  # several claims share one sound scenario
        if same not in held:
            held[same] = contrast.hold()
        found.append(Shown(known[name], held[same], contrast.fall()))
    return tuple(found)
