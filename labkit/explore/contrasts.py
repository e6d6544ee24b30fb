"""Pairs of scenarios: a sound one, and the same with one thing missing.

The explorer passes the first within the stated bound and finds the smallest schedule that breaks the second. The
table of guarantees and the cases from the field both tell about these pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from labkit.agent import REMOTES, plan
from labkit.changes import Assumptions
from labkit.explore import sql_messages, sql_programs
from labkit.explore.choices import CLOCK
from labkit.explore.exploration import Exploration
from labkit.explore.laws import LAWS, intends_before_it_sends, the_work_is_done
from labkit.explore.programs import LabWorker
from labkit.explore.scenario import Scenario
from labkit.explore.search import explore
from labkit.explore.world import ALL_SURPRISES, ONE_WORKER, TaskScenario
from labkit.explore.wrong_turns import (
    FENCED_NOT_FOUND,
    KEY_OF_WHAT_IS_UNDONE,
    KEY_PER_CALL,
    KEY_PER_TASK,
    UNFENCED_NOT_FOUND,
    EveryRefusalIsTransient,
    TimeoutIsFailure,
    answered_at_once,
    claims_for_ever,
    following,
    misreported,
    one_checkpoint_for_all,
    send_then_intend,
)
from labkit.policies import ASK_PERSON, QUERY_THEN_ASK
from labkit.records import PlannedOperation
from labkit.remote import Capabilities
from labkit.retries import Budget

CRASH = frozenset({"crash"})
KEYS = {"payments": Capabilities(idempotency_keys=True)}
QUERY = {"payments": Capabilities(status_query=True)}
FENCED = {"payments": Capabilities(status_query=True, fencing_tokens=True)}
LAGGING = {"payments": Capabilities(status_query=True, fencing_tokens=True, query_lag_seconds=60.0)}
A_MINUTE = {"payments": Capabilities(idempotency_keys=True, key_ttl_seconds=60.0)}
FORGETFUL = {"payments": Capabilities(idempotency_keys=True, key_ttl_seconds=20.0)}
PICKY = {"payments": Capabilities(idempotency_keys=True, keys_required=True)}
BOUNDLESS = Budget(max_attempts=1_000_000, max_seconds=1e9)
SAME_BODY = {"order": 1042, "amount": 40}
TOGGLE = (PlannedOperation("refund", "payments", SAME_BODY, undo_request=SAME_BODY),)
REFUND_AND_VOUCHER = (*plan()[:1], PlannedOperation("voucher", "payments", {"order": 1042, "amount": 5}))


@dataclass(frozen=True)
class Contrast:
    """Two scenarios that differ in one thing.

    Args:
        sound: every schedule within the bound keeps every law.
        broken: some schedule within the bound does not.
        surprises: the bound.
    """

    sound: Scenario
    broken: Scenario
    surprises: int = 2

    def hold(self) -> Exploration:
        """Explore the sound one, to the bound."""
        return explore(self.sound, self.surprises)

    def fall(self) -> Exploration:
        """Explore the broken one, up to its smallest failure."""
        return explore(self.broken, self.surprises)


OUTCOMES = {name: law for name, law in LAWS.items() if name != intends_before_it_sends.__name__}
"""For pairs that are to show what comes of sending before the intent, and not that it is against a law."""


def _by(policy: str, allowed: frozenset[str] = ALL_SURPRISES) -> TaskScenario:
    return TaskScenario(LabWorker(policy), remotes=KEYS, allowed=allowed)


_KEYED, _QUERIED = _by("same_key"), replace(_by("query_then_ask"), remotes=QUERY)
_THREE = replace(_by("by_capability", ONE_WORKER), operations=tuple(plan()), remotes=REMOTES, laws=OUTCOMES)
_SCOPED = replace(_KEYED, operations=REFUND_AND_VOUCHER, laws={**LAWS, "the_work_is_done": the_work_is_done})
_FENCED = replace(_by("by_capability", ALL_SURPRISES | {"late request arrives"}), remotes=FENCED)
_LAGGING = replace(_by("by_capability"), remotes=LAGGING)
_TIMED = replace(_by("by_capability", ALL_SURPRISES | {CLOCK}), remotes=A_MINUTE)
_REFUSED = replace(_by("ask_person"), remotes=PICKY, budget=BOUNDLESS)
_RETRIED = replace(_REFUSED, program=misreported(ASK_PERSON, EveryRefusalIsTransient))
_ANSWERED = replace(_by("query_then_ask"), program=answered_at_once, remotes=QUERY)
_UNDONE = replace(_by("same_key", frozenset({"cancel", "crash"})), operations=TOGGLE, compensate=True)

CONTRASTS: Mapping[str, Contrast] = {
    "claim": Contrast(
        sql_programs.claiming(sql_programs.claim_by_condition), sql_programs.claiming(sql_programs.claim_by_reading), 3
    ),
    "write lock": Contrast(
        sql_programs.counting(sql_programs.read_and_write_immediate),
        sql_programs.counting(sql_programs.read_and_write_deferred),
        3,
    ),
    "token": Contrast(
        sql_programs.finishing(sql_programs.finish_by_token), sql_programs.finishing(sql_programs.finish_by_name), 3
    ),
    "lease": Contrast(_by("query_then_ask", CRASH), replace(_by("query_then_ask", CRASH), program=claims_for_ever)),
    "clock": Contrast(
        sql_programs.working(sql_programs.work_and_finish_by_token),
        replace(sql_programs.working(sql_programs.work_and_finish_by_clock), allowed=frozenset({CLOCK})),
        3,
    ),
    "intent": Contrast(
        replace(_QUERIED, laws=OUTCOMES), replace(_QUERIED, program=send_then_intend, allowed=CRASH, laws=OUTCOMES)
    ),
    "checkpoint": Contrast(
        sql_programs.checkpointing(sql_programs.checkpoint_in_one_transaction),
        sql_programs.checkpointing(sql_programs.checkpoint_in_two_transactions),
    ),
    "checkpoint per operation": Contrast(
        _THREE, replace(_THREE, program=one_checkpoint_for_all, allowed=frozenset({"refused"})), 1
    ),
    "operation record": Contrast(_QUERIED, replace(_QUERIED, program=LabWorker("blind_replay"), allowed=CRASH)),
    "task state": Contrast(_KEYED, replace(_KEYED, program=LabWorker("replay_transcript"), allowed=CRASH)),
    "time-out": Contrast(
        _QUERIED,
        replace(_QUERIED, program=misreported(QUERY_THEN_ASK, TimeoutIsFailure), allowed=frozenset({"response_lost"})),
    ),
    "same key": Contrast(
        _KEYED, replace(_KEYED, program=following(KEY_PER_CALL), allowed=frozenset({"response_lost"}))
    ),
    "key scope": Contrast(_SCOPED, replace(_SCOPED, program=following(KEY_PER_TASK)), 1),
    "key memory": Contrast(
        replace(_by("by_capability"), remotes=FORGETFUL), replace(_KEYED, remotes=FORGETFUL, allowed=CRASH)
    ),
    "clock of the sender": Contrast(
        _TIMED, replace(_TIMED, assumptions=Assumptions(0.0, 0.0), allowed=frozenset({CLOCK, "crash"}))
    ),
    "manual": Contrast(
        _by("by_capability"),
        replace(
            _by("by_capability", CRASH),
            remotes={"payments": Capabilities(idempotency_keys=True, keys_ignored=True)},
        ),
    ),
    "found": Contrast(_QUERIED, replace(_QUERIED, program=LabWorker("query_first"), allowed=frozenset({"late"}))),
    "fence": Contrast(_FENCED, replace(_FENCED, program=following(UNFENCED_NOT_FOUND))),
    "query lag": Contrast(_LAGGING, replace(_LAGGING, program=following(FENCED_NOT_FOUND), allowed=CRASH)),
    "patience": Contrast(
        _ANSWERED,
        replace(_ANSWERED, assumptions=Assumptions(0.0, 0.0), allowed=frozenset({"late"})),
    ),
    "categories": Contrast(_REFUSED, _RETRIED),
    "budget": Contrast(replace(_RETRIED, budget=Budget()), _RETRIED, 1),
    "outbox": Contrast(
        sql_messages.announcing(sql_messages.change_with_outbox),
        sql_messages.announcing(sql_messages.change_then_publish),
    ),
    "inbox": Contrast(
        sql_messages.consuming(sql_messages.consume_each_message_once),
        sql_messages.consuming(sql_messages.consume_each_delivery),
    ),
    "cancel": Contrast(
        sql_messages.stopping(sql_messages.begin_by_condition), sql_messages.stopping(sql_messages.begin_by_reading)
    ),
    "undo order": Contrast(
        sql_messages.undoing(sql_messages.undo_last_done_first),
        sql_messages.undoing(sql_messages.undo_first_done_first),
    ),
    "undo key": Contrast(_UNDONE, replace(_UNDONE, program=following(KEY_OF_WHAT_IS_UNDONE))),
}
"""The pairs by name, in the order in which the table of guarantees tells them."""
