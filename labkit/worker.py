"""The worker: acquires a task and carries it as far as it can go, by durable facts alone.

The same code runs in a notebook cell, under a scheduler and in a process that is killed. It keeps nothing in memory
that the next worker would miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.agent import tool_call, tool_result
from labkit.errors import ChangeRefused, ConditionUnmet, NotSent, OutcomeUnknown, Refused
from labkit.policies import Ask, Doubt, Policy, Resend, Settle
from labkit.records import Attempt, Lease, Operation, Outcome, Task
from labkit.remote import Receipt, Remote
from labkit.retries import Backoff, Budget, Category, Then, category_of, next_move
from labkit.states import HELD_STATES, Condition, Direction, State
from labkit.store import TaskStore

MAX_ROUNDS = 100
"""A bound on every loop here; budgets end them long before."""


@dataclass(frozen=True)
class Worker:
    """One worker.

    Args:
        store: the task store.
        remotes: the wires, by the name that operations call their remote by.
        policy: what to do about doubts.
        name: for people.
        lease_seconds: how long it holds a task without renewing.
        answer_within_seconds: how long a person has to answer.
        backoff: waits between attempts.
        talks: also write the transcript of tool calls, as a model in the loop would.
    """

    store: TaskStore
    remotes: Mapping[str, Remote]
    policy: Policy
    name: str = "worker-1"
    lease_seconds: float = 30.0
    answer_within_seconds: float = 86_400.0
    backoff: Backoff = field(default_factory=Backoff)
    talks: bool = True

    def run(self, task_id: str) -> State:
        """Carry a task as far as it can go now.

        Returns:
            Its state then: ended, `awaiting_confirmation`, `queued` for later, or held by somebody else.

        Raises:
            StaleToken: the lease was lost on the way; another worker goes on.
        """
        for _ in range(MAX_ROUNDS):
            task = self.store.get(task_id)
            if task.state is State.QUEUED and task.cancel_requested and task.direction is Direction.DO:
                return self.store.cancel(task)
            lease = self.acquire(task)
            if lease is None:
                return task.state
            state = self._carry_on(lease)
            if state is not State.QUEUED:
                return state
        raise AssertionError(f"{task_id} is not at rest after {MAX_ROUNDS} rounds")

    def acquire(self, task: Task) -> Lease | None:
        """Claim a due task, or take over one whose lease has run out; None where it is not to be had."""
        try:
            if task.state is State.QUEUED:
                return self.store.claim(task, self.name, self.lease_seconds)
            if task.state in HELD_STATES:
                return self.store.take_over(task, self.name, self.lease_seconds)
        except ChangeRefused:
            return None
        return None

    def _carry_on(self, lease: Lease) -> State:
        for _ in range(MAX_ROUNDS):
            task = self.store.get(lease.task_id)
            if lease.state is State.UNCERTAIN:
                assert task.in_doubt is not None, "uncertain means that something is in doubt"
                return self._reconcile(lease, task.in_doubt)
            if task.cancel_requested and task.direction is Direction.DO:
                return self.store.cancel(lease)
            operation = task.next_operation
            if operation is None:
                return self._finish(lease, task)
            if operation.needs_approval and operation.approved_by is None:
                return self.store.ask(lease, f"{operation.name} wants approval", self.answer_within_seconds)
            step = self._carry_out(lease, task, operation)
            if isinstance(step, State):
                return step
            lease = step
        raise AssertionError(f"{lease.task_id} is not at rest after {MAX_ROUNDS} steps")

    def _finish(self, lease: Lease, task: Task) -> State:
        return self.store.succeed(lease) if task.direction is Direction.DO else self.store.compensated(lease)

    def _carry_out(self, lease: Lease, task: Task, operation: Operation) -> Lease | State:
        """Intend, send, record: the three steps between which a crash leaves a doubt."""
        try:
            lease, attempt = self.store.intend(lease, operation.id)
        except ConditionUnmet as unmet:
            if unmet.condition in (Condition.ATTEMPTS_LEFT, Condition.TIME_LEFT):
                return self.store.fail(lease, Category.TRANSIENT)
            if unmet.condition is Condition.NO_CANCEL:
                return self.store.cancel(lease)
            raise
        try:
            receipt = self._send(lease, operation, attempt)
        except OutcomeUnknown:
            return self.store.lose_track(lease, operation.id)
        except (NotSent, Refused) as error:
            return self._retry_or_fail(lease, task, operation, error)
        return self.store.checkpoint(lease, operation.id, receipt.reference)

    def _send(self, lease: Lease, operation: Operation, attempt: Attempt) -> Receipt:
        remote = self.remotes[operation.remote]
        call_id = tool_call(self.store, lease.task_id, operation) if self.talks else f"call-{attempt.number}"
        key = self.policy.key(operation.id, call_id)
        token = lease.token if remote.capabilities.fencing_tokens else None
        receipt = remote.send(operation.id, operation.request, attempt.request_id, key, token)
        if self.talks:
            tool_result(self.store, lease.task_id, call_id, receipt.reference)
        return receipt

    def _retry_or_fail(self, lease: Lease, task: Task, operation: Operation, error: NotSent | Refused) -> State:
        now = self.store.clock.now()
        first = now if task.first_attempt_at is None else task.first_attempt_at
        budget = Budget(task.max_attempts, task.max_seconds)
        move = next_move(error, task.attempts + 1, first, now, budget, self.backoff)
        outcome, category = _outcome_of(error), category_of(error)
        if move.kind is Then.RETRY:
            assert move.at is not None, "a retry has a time"
            return self.store.retry_later(lease, operation.id, outcome, category, move.at)
        return self.store.fail(lease, category, operation.id, outcome, earliest_retry_at=move.at)

    def _reconcile(self, lease: Lease, operation: Operation) -> State:
        """Follow the policy until the doubt is settled or a person is asked; budgets bound the resends."""
        may_resend, learned = True, None
        remote = self.remotes[operation.remote]
        for _ in range(MAX_ROUNDS):
            decision = self.policy.decide(Doubt(operation, remote, lease.token, may_resend))
            if isinstance(decision, Settle):
                return self.store.settle(lease, operation.id, decision.applied, decision.source, decision.reference)
            if isinstance(decision, Ask):
                return self.store.ask(lease, decision.reason, self.answer_within_seconds)
            try:
                lease, attempt = self._resend(lease, operation, decision, learned)
                receipt = self._send(lease, operation, attempt)
            except ConditionUnmet:
                may_resend = False
            except OutcomeUnknown:
                learned = None
            except (NotSent, Refused) as error:
                learned = _outcome_of(error)
                may_resend = category_of(error) is Category.TRANSIENT
                lease = self._wait(lease, error, attempt.number) if may_resend else lease
            else:
                return self.store.settle(lease, operation.id, True, "key", receipt.reference)
        raise AssertionError(f"{operation.id} is not settled after {MAX_ROUNDS} rounds")

    def _resend(
        self, lease: Lease, operation: Operation, decision: Resend, learned: Outcome | None
    ) -> tuple[Lease, Attempt]:
        return self.store.intend(
            lease, operation.id, key_memory_seconds=decision.key_memory_seconds, last_outcome=learned
        )

    def _wait(self, lease: Lease, error: NotSent | Refused, attempts: int) -> Lease:
        """Wait as long as the remote wishes, and hold the lease for that long and longer."""
        wished = error.retry_after_seconds if isinstance(error, Refused) else None
        seconds = max(self.backoff.delay_seconds(attempts), wished or 0.0)
        lease = self.store.renew(lease, seconds + self.lease_seconds)
        self.store.clock.sleep(seconds)
        return lease


def _outcome_of(error: NotSent | Refused) -> Outcome:
    return Outcome.NOT_SENT if isinstance(error, NotSent) else Outcome.REFUSED
