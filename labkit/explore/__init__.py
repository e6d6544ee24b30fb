"""The explorer: every crash, every lost reply, every interleaving of a recovery program, on real SQLite."""

from labkit.explore.bench import Bench
from labkit.explore.benchworld import BenchScenario
from labkit.explore.capsule import Capsule
from labkit.explore.choices import ScheduleMismatch, Step, Surprise
from labkit.explore.exploration import Exploration
from labkit.explore.fields import BadCapsule
from labkit.explore.laws import LAWS, Law
from labkit.explore.programs import LabWorker
from labkit.explore.record import Record
from labkit.explore.replay import Replay, replay
from labkit.explore.scenario import Played
from labkit.explore.search import explore
from labkit.explore.sqlworld import SqlRun, SqlScenario
from labkit.explore.storeworld import StoreScenario
from labkit.explore.world import TaskScenario

__all__ = [
    "LAWS",
    "BadCapsule",
    "Bench",
    "BenchScenario",
    "Capsule",
    "Exploration",
    "LabWorker",
    "Law",
    "Played",
    "Record",
    "Replay",
    "ScheduleMismatch",
    "SqlRun",
    "SqlScenario",
    "Step",
    "StoreScenario",
    "Surprise",
    "TaskScenario",
    "explore",
    "replay",
]
