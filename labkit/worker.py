"""The worker: acquires a task and carries it as far as it can go, by durable facts alone.

The same code runs in a notebook cell, under a scheduler and in a process that is killed. It keeps nothing in memory
that the next worker would miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from labkit.agent import tool_call, tool_result
from labkit.errors import ChangeRefused, ConditionUnmet, NotSent, OutcomeUnknown, Refused, RemoteError, StaleToken
from labkit.exchange import Receipt
from labkit.holding import LONGEST_LEASE_SECONDS
from labkit.policies import Ask, Doubt, Policy, Settle
from labkit.records import Attempt, Lease, Operation, Outcome, Progress, Task
from labkit.retries import Backoff, Budget, Category, Move, Then, category_of, next_move
from labkit.states import HELD_STATES, Condition, Direction, State
from labkit.store import TaskStore
from labkit.wire import Remote

_IDLE = frozenset({State.QUEUED, State.AWAITING_CONFIRMATION})
MAX_ROUNDS = 10_000
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
        shares_commits: put changes between which nothing is sent into one commit: a claim and the first intent, a
            result and the next intent or the end. Faster, with fewer gaps to see.
    """

    store: TaskStore
    remotes: Mapping[str, Remote]
    policy: Policy
    name: str = "worker-1"
    lease_seconds: float = 30.0
    answer_within_seconds: float = 86_400.0
    backoff: Backoff = field(default_factory=Backoff)
    talks: bool = True
    shares_commits: bool = False

    def run(self, task_id: str) -> State:
        """Carry a task as far as it can go now.

        Returns:
            Its state then: ended, `awaiting_confirmation`, `queued` for later, or held by somebody else.

        Raises:
            StaleToken: the lease was lost on the way; another worker goes on.
        """
        for _ in range(MAX_ROUNDS):
            task = self.store.get(task_id)
            if task.state in _IDLE and task.cancel_requested and task.direction is Direction.DO and not task.in_doubt:
                with suppress(ChangeRefused):  # somebody was faster: look again
                    return self.store.cancel(task)
                continue
            progress = self._begin(task)
            if progress is not None:
                state = self._carry_on(progress)
                if state is not State.QUEUED:
                    return state
            elif self.store.get(task_id) == task:
                return task.state
        raise AssertionError(f"{task_id} is not at rest after {MAX_ROUNDS} rounds")

    def acquire(self, task: Task) -> Lease | None:
        """Claim a due task, or take over one whose lease has run out; None where it is not to be had."""
        with suppress(ChangeRefused):
            if task.state is State.QUEUED:
                return self.store.claim(task, self.name, self.lease_seconds)
            if task.state in HELD_STATES:
                return self.store.take_over(task, self.name, self.lease_seconds)
        return None

    def _begin(self, task: Task) -> Progress | None:
        if self.shares_commits:  # any of them may be intended before this worker looks at it again
            _ = [self.remotes[operation.remote] for operation in task.current]
        if self.shares_commits and task.state is State.QUEUED:
            with suppress(ChangeRefused):
                return self.store.begin(task, self.name, self.lease_seconds)
            return None
        lease = self.acquire(task)
        return None if lease is None else _held(lease)

    def _carry_on(self, progress: Progress) -> State:
        """Go on from one durable change to the next, until the task is at rest."""
        for _ in range(MAX_ROUNDS):
            if progress.lease is None:
                return progress.state
            step = self._step(progress.lease, progress)
            if isinstance(step, State):
                return step
            progress = step
        raise AssertionError(f"{progress} is not at rest after {MAX_ROUNDS} steps")

    def _step(self, lease: Lease, progress: Progress) -> Progress | State:
        if lease.state is State.UNCERTAIN:
            return self._reconcile(lease)
        task = self._read(lease)
        operation = task.next_operation
        if progress.attempt is not None:
            assert operation is not None, "what is intended has no result yet"
            assert operation.id == progress.operation_id, "what is intended is the next operation"
            return self._carry_out(lease, operation, progress.attempt)
        if task.cancel_requested and task.direction is Direction.DO:
            return self.store.cancel(lease)
        if operation is None:
            return self._finish(lease, task)
        if operation.needs_approval and operation.approved_by is None:
            return self.store.ask(lease, f"{operation.name} wants approval", self.answer_within_seconds)
        self.remotes[operation.remote]  # one that is not known leaves nothing in doubt
        sending = self._intend(lease, operation)
        return sending if isinstance(sending, State) else self._carry_out(sending[0], operation, sending[1])

    def _read(self, lease: Lease) -> Task:
        """Read the task, and stop where somebody else has acquired it since: its doubts are no longer ours."""
        task = self.store.get(lease.task_id)
        if task.lease_token != lease.token:
            found = f"token {task.lease_token} ({task.state})"
            raise StaleToken("carry on with", task.id, f"token {lease.token}", found)
        return task

    def _finish(self, lease: Lease, task: Task) -> State:
        return self.store.succeed(lease) if task.direction is Direction.DO else self.store.compensated(lease)

    def _intend(self, lease: Lease, operation: Operation) -> tuple[Lease, Attempt] | State:
        try:
            return self.store.intend(lease, operation.id)
        except ConditionUnmet as unmet:
            if unmet.condition in (Condition.ATTEMPTS_LEFT, Condition.TIME_LEFT):
                return self.store.fail(lease, Category.TRANSIENT)
            if unmet.condition is Condition.NO_CANCEL:
                return self.store.cancel(lease)
            raise

    def _carry_out(self, lease: Lease, operation: Operation, attempt: Attempt) -> Progress | State:
        """Send what is intended, and record what came of it: a crash between these leaves a doubt."""
        try:
            receipt = self._send(lease, operation, self.remotes[operation.remote], attempt)
        except OutcomeUnknown:
            return _held(self.store.lose_track(lease, operation.id))
        except (NotSent, Refused) as error:
            return self._retry_or_fail(lease, operation, error)
        if self.shares_commits:
            return self.store.advance(lease, operation.id, receipt.reference)
        return _held(self.store.checkpoint(lease, operation.id, receipt.reference))

    def _send(self, lease: Lease, operation: Operation, remote: Remote, attempt: Attempt) -> Receipt:
        call_id = tool_call(self.store, lease.task_id, operation) if self.talks else f"call-{attempt.number}"
        key = self.policy.key(operation.id, call_id)
        token = lease.token if remote.capabilities.fencing_tokens else None
        receipt = remote.send(operation.id, operation.request, attempt.request_id, key, token)
        if self.talks:
            tool_result(self.store, lease.task_id, call_id, receipt.reference)
        return receipt

    def _retry_or_fail(self, lease: Lease, operation: Operation, error: NotSent | Refused) -> State:
        move, outcome, category = self._next_move(lease, error), _outcome_of(error), category_of(error)
        if move.kind is Then.RETRY:
            assert move.at is not None, "a retry has a time"
            return self.store.retry_later(lease, operation.id, outcome, category, move.at)
        return self.store.fail(lease, category, operation.id, outcome, earliest_retry_at=move.at)

    def _next_move(self, lease: Lease, error: RemoteError) -> Move:
        task, now = self._read(lease), self.store.clock.now()
        assert task.first_attempt_at is not None, "something was sent"
        budget = Budget(task.max_attempts, task.max_seconds)
        return next_move(error, task.attempts, task.first_attempt_at, now, budget, self.backoff)

    def _reconcile(self, lease: Lease) -> State:
        """Follow the policy until the doubt is settled or a person is asked; budgets bound the resends."""
        may_resend, learned = True, None
        for _ in range(MAX_ROUNDS):
            operation = self._read(lease).in_doubt
            assert operation is not None, "uncertain means that something is in doubt"
            remote = self.remotes[operation.remote]
            decision = self.policy.decide(Doubt(operation, remote, lease.token, may_resend))
            if isinstance(decision, Settle):
                known = (decision.applied, decision.source, decision.reference)
                return self.store.settle(lease, operation.id, *known, last_outcome=learned)
            if isinstance(decision, Ask):
                return self.store.ask(lease, decision.reason, self.answer_within_seconds, last_outcome=learned)
            memory = decision.key_memory_seconds
            try:
                lease, attempt = self.store.intend(lease, operation.id, key_memory_seconds=memory, last_outcome=learned)
                receipt = self._send(lease, operation, remote, attempt)
            except ConditionUnmet:
                may_resend = False
            except RemoteError as error:
                learned = None if isinstance(error, OutcomeUnknown) else _outcome_of(error)
                lease, may_resend = self._wait(lease, error, attempt.number)
            else:
                return self.store.settle(lease, operation.id, True, "key", receipt.reference)
        raise AssertionError(f"{lease.task_id} is not settled after {MAX_ROUNDS} rounds")

    def _wait(self, lease: Lease, error: RemoteError, attempts: int) -> tuple[Lease, bool]:
        """Wait before the next resend and hold the lease for longer than that; False where none can follow."""
        move = self._next_move(lease, error)
        if move.kind is Then.FAIL:
            return lease, False
        seconds = self.backoff.delay_seconds(attempts) if move.at is None else move.at - self.store.clock.now()
        with suppress(ConditionUnmet):  # it ran out, but nobody has taken over: the token still guards every change
            lease = self.store.renew(lease, min(seconds + self.lease_seconds, LONGEST_LEASE_SECONDS))
        self.store.clock.sleep(seconds)
        return lease, True


def _held(lease: Lease) -> Progress:
    return Progress(lease.state, lease, None, None)


def _outcome_of(error: RemoteError) -> Outcome:
    return Outcome.NOT_SENT if isinstance(error, NotSent) else Outcome.REFUSED
