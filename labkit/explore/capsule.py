"""Capsules: a replayable run, as a rule a failure, as small JSON.

A capsule holds a set-up and a list of surprises, both plain data. Reading one runs nothing; replaying one runs the
lab's own worker, or the code that the caller hands over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from labkit.explore.choices import Schedule, Surprise
from labkit.explore.fields import Fields, parse, plain
from labkit.explore.scenario import Played, Scenario
from labkit.explore.setup import checked_setup, setup_of
from labkit.values import Json

KEPT = "none broken"
FORMAT, VERSION = "recovery-lab capsule", 1
MAX_BYTES = 64 * 1024
MAX_SURPRISES = 100
MAX_STEPS = 10_000


@dataclass(frozen=True)
class Capsule:
    """A run that can be played again.

    Args:
        setup: the scenario as data; of a student's own program only what it is called.
        surprises: the schedule, each with the worker and the point expected there.
        law: the law that the run broke, `KEPT` where it kept them all, and
        how: in a sentence.
        verdict: what the run came to.
    """

    setup: Json
    surprises: Schedule
    law: str
    how: str
    verdict: str

    @property
    def program(self) -> str:
        """The policy of the lab's worker, or what the student's program is called."""
        ((_, name),) = self.setup["program"].items()
        return str(name)

    def to_json(self) -> str:
        """Write it as JSON, steps counted from 1, the same text on every machine.

        Raises:
            BadCapsule: it would not be read back, for it is larger than a capsule may be, or out of its bounds.
        """
        surprises = [
            {"step": one.place + 1, "worker": one.worker, "point": plain(one.point), "choice": one.choice}
            for one in self.surprises
        ]
        data = {"format": FORMAT, "version": VERSION, "law": self.law, "how": self.how, "verdict": self.verdict}
        text = json.dumps(data | {"surprises": surprises, "setup": self.setup}, indent=1, allow_nan=False) + "\n"
        self.from_json(text)
        return text

    @classmethod
    def from_json(cls, text: str) -> Capsule:
        """Read a capsule from anywhere. Nothing in it is executed, evaluated or looked up as a name of code.

        Raises:
            BadCapsule: too large, malformed, of another format or version, or with a part of the wrong type.
        """
        data = Fields(parse(text, MAX_BYTES), "the whole")
        for name, ours in (("format", FORMAT), ("version", VERSION)):
            found = data.take(name)
            if type(found) is not type(ours) or found != ours:
                data.refuse(name, repr(ours), found)
        law, how, verdict = data.text("law"), data.text("how"), data.text("verdict")
        surprises = _surprises(data.items("surprises", 0, MAX_SURPRISES))
        setup = checked_setup(data.take("setup"))
        data.end()
        return cls(setup, surprises, law, how, verdict)

    def __str__(self) -> str:
        lines = [f"{self.program}: {self.verdict}. {self.law}: {self.how}", *(f"  {one}" for one in self.surprises)]
        return "\n".join(lines)


def capsule_of(scenario: Scenario, played: Played) -> Capsule:
    """Return the capsule of a run."""
    law, how = (plain(played.law), plain(played.how)) if played.law else (KEPT, KEPT)
    return Capsule(setup_of(scenario), played.schedule, law, how, str(played.verdict))


def _surprises(items: Sequence[object]) -> Schedule:
    surprises: list[Surprise] = []
    for item in items:
        fields = Fields(item, "surprise")
        behind = surprises[-1].place + 2 if surprises else 1
        place = fields.whole("step", behind, MAX_STEPS) - 1
        surprises.append(Surprise(place, fields.text("choice"), fields.text("worker"), fields.text("point")))
        fields.end()
    return tuple(surprises)
