"""Journals of students: who has just begun, who is half way, and who has finished."""

import cloudpickle
from answers import MODULES, SAMPLES

from labkit.agent import REMOTES, plan
from labkit.course import check, journal
from labkit.course.lessons import EXERCISES
from labkit.explore import LabWorker, TaskScenario, explore

REALLY_CHECKED = ("0.1", "2.1")
"""Exercises whose checks are run, with a wrong answer and a right one."""

FAILED_ONLY = ("1.1", "6.1")


def begin() -> None:
    """Check one wrong answer and one right one, predict twice and give a reason."""
    for module in MODULES:
        cloudpickle.register_pickle_by_value(module)
    _answer("2.1", wrong=True)
    _answer("0.1", wrong=False)
    journal.note("prediction", "00: refunds after a blind replay", predicted="1", observed="2", right=False)
    journal.note("prediction", "00: refunds under the same key", predicted="1", observed="1", right=True)
    journal.note("why", "0.1", answer="With the attempt in it,\n\nthe remote sees two requests.")


def finish() -> None:
    """Meet failures of several kinds, pass every exercise and write all that is asked for."""
    begin()
    for number in (*REALLY_CHECKED, *FAILED_ONLY):
        _answer(number, wrong=True)
    for number in REALLY_CHECKED:
        _answer(number, wrong=False)
    note_capsule(labs_own_capsule())
    for number in EXERCISES:
        if number not in REALLY_CHECKED:
            shown = ["two workers at once: all 1,234 schedules of 2 workers with up to 2 surprises keep every law"]
            journal.note("check", number, passed=True, says=f"exercise {number}: passed.", capsule="", shown=shown)
        journal.note("why", number, answer=f"Because of {number}.")
    journal.note("why", "10.2", answer="Keys where the remote takes them, a query where it answers, else a person.")


def labs_own_capsule() -> str:
    """A failure of the lab's own worker: it can be played again without a student's code."""
    operations = plan()[:1]
    scenario = TaskScenario(LabWorker("blind_replay"), tuple(operations), {"payments": REMOTES["payments"]})
    capsule = explore(scenario, 1).capsule
    assert capsule is not None
    return capsule.to_json()


def note_capsule(capsule: str, number: str = "10.1a") -> None:
    """Note a failure as a journal of an older version does, with the capsule."""
    journal.note("check", number, passed=False, says=f"exercise {number}: not passed.", capsule=capsule)


def _answer(number: str, wrong: bool) -> None:
    sample = next(one for one in SAMPLES if one.number == number and bool(one.says) is wrong)
    assert check(number, sample.function, 300).passed is not wrong, sample.name
