"""Recovery Lab's helper package: durable task state, a flaky remote, and a view of what a crash leaves behind."""

from labkit.agent import REMOTES, context_from, open_conversation, plan
from labkit.changes import Assumptions
from labkit.deciding import Answer
from labkit.errors import (
    ChangeRefused,
    ConditionUnmet,
    InvalidInput,
    LabError,
    NotSent,
    OutcomeUnknown,
    Refused,
    RemoteError,
    SimulatedCrash,
    StaleToken,
    StaleVersion,
    StoreError,
    TaskExists,
    UnknownTask,
    WrongState,
)
from labkit.exchange import Receipt, Refusal, Standing
from labkit.policies import POLICIES, Ask, Doubt, Policy, Resend, Settle
from labkit.records import Announcement, Lease, Operation, Outcome, PlannedOperation, Task
from labkit.remote import Capabilities, RemoteService
from labkit.retries import Backoff, Budget, Category, Move, Then, category_of, next_move
from labkit.runs import Moment, Run, Verdict, database_view, judge
from labkit.seams import Delivery, ManualClock, Point, SystemClock, crash_at, reliable, scripted, seeded
from labkit.states import TRANSITIONS, Condition, Direction, Event, State, Transition, up_to_lesson
from labkit.store import TaskStore
from labkit.wire import Remote
from labkit.worker import Worker

__all__ = [
    "POLICIES",
    "REMOTES",
    "TRANSITIONS",
    "Announcement",
    "Answer",
    "Ask",
    "Assumptions",
    "Backoff",
    "Budget",
    "Capabilities",
    "Category",
    "ChangeRefused",
    "Condition",
    "ConditionUnmet",
    "Delivery",
    "Direction",
    "Doubt",
    "Event",
    "InvalidInput",
    "LabError",
    "Lease",
    "ManualClock",
    "Moment",
    "Move",
    "NotSent",
    "Operation",
    "Outcome",
    "OutcomeUnknown",
    "PlannedOperation",
    "Point",
    "Policy",
    "Receipt",
    "Refusal",
    "Refused",
    "Remote",
    "RemoteError",
    "RemoteService",
    "Resend",
    "Run",
    "Settle",
    "SimulatedCrash",
    "StaleToken",
    "StaleVersion",
    "Standing",
    "State",
    "StoreError",
    "SystemClock",
    "Task",
    "TaskExists",
    "TaskStore",
    "Then",
    "Transition",
    "UnknownTask",
    "Verdict",
    "Worker",
    "WrongState",
    "category_of",
    "context_from",
    "crash_at",
    "database_view",
    "judge",
    "next_move",
    "open_conversation",
    "plan",
    "reliable",
    "scripted",
    "seeded",
    "up_to_lesson",
]
