"""Lesson 07: what follows an error depends on what is known, and on facts that outlive the process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from labkit.course.exercises import Exercise
from labkit.course.move_cases import CASES, ERRORS, LONGEST_WAIT_SECONDS, MOVE_HINTS, MOVE_LAWS, Case
from labkit.course.retry_loop import COLUMNS, FACTS, LAWS, runs
from labkit.course.submission import Submission, Unfit, shortened, told_by, told_many
from labkit.course.trials import WIDTH, Trial
from labkit.retries import Move, Then
from labkit.show.tables import TextTable

MAX_NAME = 40


def told_moves(answer: Callable[..., Any]) -> list[tuple[str, float | None]]:
    """Ask an answer for its move in every case.

    Raises:
        Unfit: it raised something, or returned no move.
    """
    told: list[tuple[str, float | None]] = []
    for case in CASES:
        asked = f"After {case.situation}, it"
        move = told_by(partial(answer, ERRORS[case.error](), case.attempts, case.first, case.now), asked)
        kinds = [str(kind) for kind in Then]
        if not isinstance(move, Move) or str(move.kind) not in kinds:
            raise Unfit(f"{asked} returned no Move of the kinds {', '.join(kinds)}.")
        at = move.at
        if at is not None and (isinstance(at, bool) or not isinstance(at, int | float) or at != at):
            named = "nan" if at != at else type(at).__name__
            raise Unfit(f"{asked} returned a move at {named}; seconds of the clock are wanted, or None.")
        told.append((str(move.kind), None if at is None else float(at)))
    return told


def try_moves(submission: Submission) -> Trial:
    """Go through the cases, twice, in two processes."""
    told, again = submission.run(told_moves), submission.run(told_moves, 2)
    rows: list[tuple[str, ...]] = []
    for number, (case, one, other) in enumerate(zip(CASES, told, again, strict=True), start=1):
        wrong = _wrong_move(case, one, other)
        facts = (case.error, str(case.attempts), f"{case.first:g} s", f"{case.now:g} s")
        move = _move(one[0], one[1], case)
        rows.append((*facts, f"{move}  <- WRONG", case.right) if wrong else (*facts, move, '"'))
        if wrong is not None:
            law, how = wrong
            return Trial(
                False,
                number,
                run=f"after {case.situation}",
                story=TextTable(
                    ("error", "attempts", "first at", "now", "your move", "right"), tuple(rows), width=WIDTH
                ),
                law=law,
                broke=f"{MOVE_LAWS[law]} {how}",
                hint=MOVE_HINTS[law],
            )
    shown = f"{len(CASES)} cases of errors, attempts and times, each asked in two processes"
    return Trial(True, len(CASES), {"error": len(CASES)}, (shown,))


def _move(kind: str, at: float | None, case: Case) -> str:
    return kind if at is None else f"{kind} in {at - case.now:.0f} s"


def _wrong_move(case: Case, told: tuple[str, float | None], again: tuple[str, float | None]) -> tuple[str, str] | None:
    kind, at = told
    if kind != case.kind:
        return case.law, f"Your move is {kind}; {case.kind} is the right one."
    if kind != again[0]:
        return "decides_alike", f"Asked again, it is {again[0]}."
    if case.kind is not Then.RETRY:
        return None
    wait = 0.0 if at is None else at - case.now
    if wait <= 0 or wait < case.wait:
        return "waits", f"You wait {'no time' if at is None else f'{wait:g} s'}; {case.right} is right."
    if wait > LONGEST_WAIT_SECONDS + case.wait:
        return "soon_enough", f"You wait {wait:g} s; {case.right} is right."
    return None


def told_facts(answer: Callable[[], Any]) -> list[str]:
    """Ask an answer for the facts that a loop forgets.

    Raises:
        Unfit: it raised something, or returned something else.
    """
    told = told_many(answer)
    if not all(isinstance(name, str) for name in told):
        raise Unfit("It returned something that is no list of names of columns.")
    names = sorted({shortened(name.lower().strip(), MAX_NAME) for name in told})
    strange = [name for name in names if name not in COLUMNS]
    if strange:
        raise Unfit(f"It names {strange[0]}, which is none of the columns to choose from: {', '.join(COLUMNS)}.")
    return names


def try_facts(submission: Submission) -> Trial:
    """Play the loop with the named facts stored, through a crash behind every attempt."""
    named = frozenset(submission.run(told_facts))
    crashes = 0
    for tried, loop in enumerate(runs(named & frozenset(FACTS)), start=1):
        broken, crashes = loop.play(), crashes + bool(loop.crash_after)
        if broken is not None:
            return _forgot(tried, crashes, loop.story, *broken)
    foreign = sorted(named - frozenset(FACTS))
    if foreign:
        return Trial(
            False,
            tried,
            {"crash": crashes},
            run=f"one name too many, {foreign[0]}",
            story=TextTable(("you name", "in the loop"), ((foreign[0], "no variable holds it"),), width=WIDTH),
            law="only_what_it_forgets",
            broke=f"Only what the loop itself keeps in memory is forgotten. {foreign[0]} is not among that.",
            hint="Which names does the loop assign to, and which of them decide whether it sends again?",
        )
    shown = f"with {', '.join(FACTS)} stored, {tried} runs with {crashes} crashes keep every bound"
    return Trial(True, tried, {"crash": crashes}, (shown,))


def _forgot(tried: int, crashes: int, story: list[tuple[str, str, str, str]], law: str, how: str) -> Trial:
    return Trial(
        False,
        tried,
        {"crash": crashes},
        run="with what you have named stored, and all else in memory",
        story=TextTable(("who, when", "what happens", "the database says", "sent"), tuple(story), width=WIDTH),
        law=law,
        broke=f"{LAWS[law]} Here {how}.",
        hint=FORGOTTEN[law],
    )


FORGOTTEN = {
    "within_attempts": "The second process counts from nothing again.",
    "within_time": "The second process does not know when all this began.",
    "waits": "The second process does not know that it was to wait.",
    "cancel_holds": "The second process was never told to stop.",
}

EXERCISES = (
    Exercise(
        "7.1",
        "the next move after an error",
        try_moves,
        (
            "Three kinds of knowing: not applied and worth another try; not applied and hopeless; nobody knows.",
            "OutcomeUnknown: reconcile, always. Refused with permission or invalid: fail. The others: retry, if "
            "attempts < 5 and the next attempt begins within 3600 s of the first.",
            "at = now + max(min(60, 2 ** (attempts - 1)), error.retry_after_seconds or 0) for Refused; retry only if "
            "attempts < 5 and at - first_attempt_at < 3600, else fail.",
        ),
    ),
    Exercise(
        "7.2",
        "what this retry loop forgets at a restart",
        try_facts,
        (
            "Restart it in your head after the second attempt. What does it believe then?",
            "How often, since when, not before when, and whether at all: four columns of `tasks`.",
            "attempts, first_attempt_at, next_run_at, cancel_requested.",
        ),
    ),
)
