"""Exercises 10.1a to 10.1c: recover the agent, by what each remote can do."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256

from answers import right, wrong
from answers.exercise_6_1 import DOUBLED, LOST, MAX_ROUNDS, STUCK, acquire, settle_by_query
from answers.exercise_9_2 import memory_of, send, undo
from labkit import (
    POLICIES,
    Category,
    ChangeRefused,
    Condition,
    ConditionUnmet,
    Direction,
    Outcome,
    RemoteError,
    State,
    Worker,
)

KNOWN = "The law that broke, records_what_it_knows:"
NEEDLESS = "The law that broke, asks_only_when_it_must:"
FORGOTTEN = ("Payments remembers a key for 10 s", DOUBLED, "1 surprise (late)", "A key that the remote has forgotten")


def settle_by_key(store, lease, remotes, doubt, key_of=lambda operation: operation.id):
    """Send what is in doubt again under its own key; tells whether that settled it."""
    remote = remotes[doubt.remote]
    for _ in range(MAX_ROUNDS):
        memory = remote.capabilities.key_ttl_seconds
        try:
            lease, reference = send(store, lease, remotes, doubt, key_of(doubt), key_memory_seconds=memory)
        except ConditionUnmet:
            return settle_by_query(store, lease, remote)
        if reference is not None:
            store.settle(lease, doubt.id, True, "key", reference)
            return True
    return False


def settle_by_capability(store, lease, remotes, doubt, key_of=lambda operation: operation.id):
    can = remotes[doubt.remote].capabilities
    if can.idempotency_keys:
        return settle_by_key(store, lease, remotes, doubt, key_of)
    if can.status_query:
        return settle_by_query(store, lease, remotes[doubt.remote])
    store.ask(lease, "neither keys nor a query", 3600)
    return False


def cancels(store, task):
    """End a task that nobody holds, where somebody wants it stopped; tells whether that was to be done."""
    if task.state is not State.QUEUED or not task.cancel_requested or task.direction is not Direction.DO:
        return False
    store.cancel(task)
    return True


def recover_with(settle, task_id, store, remotes, name="me", key_of=lambda operation: operation.id):
    for _ in range(MAX_ROUNDS):
        if cancels(store, store.get(task_id)):
            return
        lease = acquire(store, store.get(task_id), name)
        while lease is not None:
            task = store.get(task_id)
            if task.lease_token != lease.token:
                return
            if lease.state is State.UNCERTAIN:
                if not settle(store, lease, remotes, task.in_doubt):
                    return
                break
            operation = task.next_operation
            if operation is None:
                store.succeed(lease)
                return
            if task.cancel_requested:
                store.cancel(lease)
                return
            try:
                lease, reference = send(store, lease, remotes, operation, key_of(operation))
            except ConditionUnmet as unmet:
                if unmet.condition is not Condition.NO_CANCEL:
                    raise
                store.cancel(lease)
                return
            if lease is not None and reference is not None:
                lease = store.checkpoint(lease, operation.id, reference)
        else:
            return


@right("10.1a")
@right("10.1b")
@right("10.1c")
def by_capability(task_id, store, remotes):
    try:
        recover_with(settle_by_capability, task_id, store, remotes)
    except ChangeRefused:
        return


def under(key_of, name, about):
    def recover(task_id, store, remotes):
        with suppress(ChangeRefused):
            recover_with(partial(settle_by_capability, key_of=key_of), task_id, store, remotes, key_of=key_of)

    recover.__name__, recover.__doc__ = name, about
    return recover


SHARED = ("A second task at the same remotes", "A hint: The remote has met this key before")
LOST_BY_KEY = (*SHARED, LOST, "task-2 succeeded, but the ledger shows no task-2/")

right("10.1a")(under(lambda one: sha256(one.id.encode()).hexdigest(), "under_a_hash_of_the_id", "A key of its own."))
right("10.1a")(under(lambda one: one.id.partition("/")[0], "under_the_task_s_id", "One operation a task: as good."))
wrong("10.1a", *LOST_BY_KEY)(under(lambda one: "refund-key", "one_key_for_all", "A constant."))
wrong("10.1a", *LOST_BY_KEY)(under(lambda one: one.name, "the_name_is_the_key", "The same in every task."))
wrong("10.1b", *LOST_BY_KEY)(under(lambda one: one.id.partition("/")[0], "the_task_is_the_key", "Two at one remote."))
wrong("10.1c", *LOST_BY_KEY)(under(lambda one: one.name, "the_name_is_the_key", "The same in every task."))


@right("10.1a")
@right("10.1b")
@right("10.1c")
def the_labs_worker(task_id, store, remotes):
    Worker(store, remotes, POLICIES["by_capability"], talks=False).run(task_id)


def by(policy):
    def recover(task_id, store, remotes):
        talks = policy == "replay_transcript"
        Worker(store, remotes, POLICIES[policy], talks=talks).run(task_id)

    recover.__name__ = policy
    return recover


for number in ("10.1a", "10.1b", "10.1c"):
    wrong(number, DOUBLED)(by("blind_replay"))
    wrong(number, DOUBLED)(by("replay_transcript"))
    wrong(number, LOST)(by("assume_done"))


@wrong("10.1a", DOUBLED)
def key_for_each_attempt(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        key = f"{doubt.id}#{len(doubt.attempts)}"
        lease, reference = send(store, lease, remotes, doubt, key, key_memory_seconds=86_400)
        if reference is None:
            return False
        store.settle(lease, doubt.id, True, "key", reference)
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1a", DOUBLED)
def no_key_in_doubt(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        lease, reference = send(store, lease, remotes, doubt, None, key_memory_seconds=86_400)
        if reference is None:
            return False
        store.settle(lease, doubt.id, True, "sent again", reference)
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1a", STUCK)
@wrong("10.1b", STUCK)
@wrong("10.1c", STUCK)
def leaves_doubts_alone(task_id, store, remotes):
    recover_with(lambda store, lease, remotes, doubt: False, task_id, store, remotes)


@wrong("10.1a", STUCK)
@wrong("10.1b", STUCK)
@wrong("10.1c", STUCK)
def only_what_is_queued(task_id, store, remotes):
    if store.get(task_id).state is State.QUEUED:
        recover_with(settle_by_capability, task_id, store, remotes)


@wrong("10.1a", LOST)
def no_answer_is_an_answer(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        store.settle(lease, doubt.id, True, "no news is good news", "payments-1")
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1b", DOUBLED)
@wrong("10.1c", DOUBLED)
def a_doubt_is_settled_as_not_applied(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        store.settle(lease, doubt.id, False, "no answer came")
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1b", DOUBLED)
@wrong("10.1c", DOUBLED)
def a_key_for_every_remote(task_id, store, remotes):
    recover_with(settle_by_key, task_id, store, remotes)


@wrong("10.1b", DOUBLED)
@wrong("10.1c", DOUBLED)
def not_found_means_not_applied(task_id, store, remotes):
    Worker(store, remotes, POLICIES["query_first"], talks=False).run(task_id)


@wrong("10.1c", STUCK)
def a_query_for_every_remote(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        if remotes[doubt.remote].capabilities.idempotency_keys:
            return settle_by_key(store, lease, remotes, doubt)
        standing = remotes[doubt.remote].query(doubt.id)
        if not standing.found:
            store.ask(lease, "not found", 3600)
            return False
        store.settle(lease, doubt.id, True, "status query", standing.reference)
        return True

    recover_with(settle, task_id, store, remotes)


for number in ("10.1a", "10.1b", "10.1c"):
    wrong(number, "The law that broke, asks_only_when_it_must:", "the remote was not asked before")(by("ask_person"))


def resend_believing(seconds):
    """Settle by a resend under the key, which the remote is believed to remember for so long."""

    def settle(store, lease, remotes, doubt):
        for _ in range(MAX_ROUNDS):
            try:
                lease, reference = send(store, lease, remotes, doubt, doubt.id, key_memory_seconds=seconds)
            except ConditionUnmet:
                return settle_by_query(store, lease, remotes[doubt.remote])
            if reference is not None:
                store.settle(lease, doubt.id, True, "key", reference)
                return True
        return False

    return settle


@wrong("10.1a", *FORGOTTEN)
def every_remote_remembers_a_day(task_id, store, remotes):
    recover_with(resend_believing(86_400), task_id, store, remotes)


@wrong("10.1a", *FORGOTTEN)
def no_remote_ever_forgets(task_id, store, remotes):
    recover_with(resend_believing(1e9), task_id, store, remotes)


@wrong("10.1a", *FORGOTTEN)
def settled_blindly_and_sent_again(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        store.settle(lease, doubt.id, False, "assumed")
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1a", *FORGOTTEN)
def the_undo_of_9_2_as_it_was(task_id, store, remotes):
    class Ending:
        def __getattr__(self, name):
            return getattr(store, "succeed" if name == "compensated" else name)

        def intend(self, lease, operation_id, key_memory_seconds=None):
            memory = None if key_memory_seconds is None else 86_400
            return store.intend(lease, operation_id, key_memory_seconds=memory)

    undo(task_id, Ending(), remotes)


@wrong("10.1a", KNOWN, "loses track of task-1/refund, and has its answer, payments-1")
def a_receipt_is_no_evidence(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        remote = remotes[doubt.remote]
        try:
            memory = memory_of(remotes, doubt)
            lease, reference = send(store, lease, remotes, doubt, doubt.id, key_memory_seconds=memory)
        except ConditionUnmet:
            return settle_by_query(store, lease, remote)
        if reference is not None:
            store.settle(lease, doubt.id, False, "key", reference)
        return True

    recover_with(settle, task_id, store, remotes)


@wrong("10.1a", NEEDLESS, "and it was not sent again under its key, which the remote remembers")
@wrong("10.1b", NEEDLESS, "and it was not sent again under its key, which the remote remembers")
def queries_and_asks_and_never_resends(task_id, store, remotes):
    def settle(store, lease, remotes, doubt):
        return settle_by_query(store, lease, remotes[doubt.remote])

    recover_with(settle, task_id, store, remotes)


def without_handling(task_id, store, remotes):
    """Carry the task by each remote's name, and let every error pass."""
    task = store.get(task_id)
    lease = acquire(store, task)
    while lease is not None:
        task = store.get(task_id)
        if task.lease_token != lease.token:
            return
        doubt, operation = task.in_doubt, task.next_operation
        if lease.state is State.UNCERTAIN and doubt.remote == "payments":
            lease, reference = send_on(store, lease, remotes, doubt, memory_of(remotes, doubt))
            store.settle(lease, doubt.id, True, "key", reference)
            lease = store.claim(store.get(task_id), "me")
        elif lease.state is State.UNCERTAIN and doubt.remote == "tickets":
            if not settle_by_query(store, lease, remotes["tickets"]):
                return
            lease = store.claim(store.get(task_id), "me")
        elif lease.state is State.UNCERTAIN:
            store.ask(lease, "who knows", 3600)
            return
        elif operation is None:
            store.succeed(lease)
            return
        else:
            lease, reference = send_on(store, lease, remotes, operation)
            lease = store.checkpoint(lease, operation.id, reference)


def send_on(store, lease, remotes, operation, memory=None):
    lease, attempt = store.intend(lease, operation.id, key_memory_seconds=memory)
    receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, operation.id)
    return lease, receipt.reference


@wrong("10.1b", KNOWN, "knows that it was not sent")
@wrong("10.1c", KNOWN, "ends and leaves in doubt task-1/refund, and knows that it was not sent")
def no_error_is_handled(task_id, store, remotes):
    without_handling(task_id, store, remotes)


@wrong("10.1b", KNOWN)
@wrong("10.1c", KNOWN)
def every_error_is_swallowed(task_id, store, remotes):
    with suppress(RemoteError, ChangeRefused):
        without_handling(task_id, store, remotes)


class Hearsay:
    """A store to which every error of a sending is told as the same one."""

    def __init__(self, store, **told):
        self.store, self.told = store, told

    def __getattr__(self, name):
        return getattr(self.store, name)

    def retry_later(self, lease, operation_id, outcome, category, at):
        return self.store.retry_later(lease, operation_id, self.told.get("outcome", outcome), category, at)

    def fail(self, lease, category, operation_id, outcome, at=None):
        if self.told.get("never_fails"):
            return self.store.retry_later(lease, operation_id, outcome, Category.TRANSIENT, self.store.clock.now() + 1)
        return self.store.fail(lease, category, operation_id, self.told.get("outcome", outcome), at)


@wrong(
    "10.1a",
    "A remote that is overloaded once",
    "refused_is_on_record:",
    "is on record as not_sent, and the remote refused it",
)
@wrong(
    "10.1b",
    "A remote that is overloaded once",
    "refused_is_on_record:",
    "is on record as not_sent, and the remote refused it",
)
def nothing_was_ever_sent(task_id, store, remotes):
    by_capability(task_id, Hearsay(store, outcome=Outcome.NOT_SENT), remotes)


@wrong(
    "10.1a",
    "A remote that forbids it",
    "The law that broke, ends_as_refused:",
    "end worker-5",
    "not allowed  <- WRONG",
)
@wrong("10.1b", "A remote that forbids it", "The law that broke, ends_as_refused:")
def never_fails(task_id, store, remotes):
    by_capability(task_id, Hearsay(store, never_fails=True), remotes)


@wrong(
    "10.1a",
    "A remote that forbids it",
    "The law that broke, ends_as_refused:",
    "ConditionUnmet  <- WRONG",
    "worker-5 ended with ConditionUnmet, in line ",
    "retry_later task-1 refused: expected attempts left",
)
def never_fails_and_lets_errors_pass(task_id, store, remotes):
    recover_with(settle_by_capability, task_id, Hearsay(store, never_fails=True), remotes)


@wrong("10.1a", "A remote that is overloaded once", KNOWN)
@wrong("10.1c", "A remote that is overloaded once", KNOWN, "knows that it was refused (transient)")
def a_refusal_is_no_error_of_mine(task_id, store, remotes):
    class Deaf(Hearsay):
        def retry_later(self, lease, operation_id, outcome, category, at):
            if outcome is Outcome.NOT_SENT:
                return self.store.retry_later(lease, operation_id, outcome, category, at)
            return lease.state

        def fail(self, lease, *args):
            return lease.state

    by_capability(task_id, Deaf(store), remotes)


BUSY = ("A remote that is overloaded once", "The law that broke, comes_when_it_was_told:", "A hint: next_move knows")


@wrong("10.1a", *BUSY, "Retry-After was 120 s, and it was put off for 5 s")
@wrong("10.1b", *BUSY, "Retry-After was 120 s, and it was put off for 5 s")
def in_five_seconds_whatever_was_said(task_id, store, remotes):
    class Hasty(Hearsay):
        def retry_later(self, lease, operation_id, outcome, category, at):
            return self.store.retry_later(lease, operation_id, outcome, category, self.store.clock.now() + 5)

    by_capability(task_id, Hasty(store), remotes)


class Uncancelled(Hearsay):
    """A store of which its worker does not know that a task can be cancelled, at least while it holds it."""

    def cancel(self, held):
        if self.told.get("while_held"):
            return self.store.cancel(held)
        raise ConditionUnmet("cancel", "task-1", "somebody who cancels", "nobody", Condition.CANCEL_REQUESTED)

    def get(self, task_id):
        task = self.store.get(task_id)
        hidden = task.state is State.RUNNING or not self.told.get("while_held")
        return replace(task, cancel_requested=False) if hidden else task


CANCELLED = ("A person who cancels", "1 surprise (cancel)", "A hint: Ada has asked for a cancel")


@wrong("10.1c", *CANCELLED, STUCK, "the task is left")
def never_cancels(task_id, store, remotes):
    by_capability(task_id, Uncancelled(store), remotes)


@wrong("10.1c", *CANCELLED, "The law that broke, bounded:")
def goes_on_and_on_where_intend_is_refused(task_id, store, remotes):
    class Stubborn(Uncancelled):
        def intend(self, lease, *args, **kwargs):
            while True:
                try:
                    return self.store.intend(lease, *args, **kwargs)
                except ConditionUnmet as unmet:
                    if unmet.condition is not Condition.NO_CANCEL:
                        raise

    by_capability(task_id, Stubborn(store, while_held=True), remotes)


@wrong("10.1a", KNOWN, "and has not sent it", "A hint: It stopped behind its intent, and knows that nothing was sent")
def renews_between_intent_and_sending(task_id, store, remotes):
    class Renewing(Hearsay):
        def intend(self, lease, *args, **kwargs):
            lease, attempt = self.store.intend(lease, *args, **kwargs)
            return self.store.renew(lease), attempt

    by_capability(task_id, Renewing(store), remotes)


@right("10.1a")
def renews_before_the_intent(task_id, store, remotes):
    class Renewing(Hearsay):
        def intend(self, lease, *args, **kwargs):
            return self.store.intend(self.store.renew(lease), *args, **kwargs)

    by_capability(task_id, Renewing(store), remotes)


@right("10.1a")
def records_that_a_renewal_was_refused(task_id, store, remotes):
    class Renewing(Hearsay):
        def intend(self, lease, operation_id, **kwargs):
            lease, attempt = self.store.intend(lease, operation_id, **kwargs)
            try:
                return self.store.renew(lease), attempt
            except ConditionUnmet:
                if lease.state is State.RUNNING:
                    at = self.store.clock.now() + 1
                    self.store.retry_later(lease, operation_id, Outcome.NOT_SENT, Category.TRANSIENT, at)
                    raise
                return lease, attempt

    by_capability(task_id, Renewing(store), remotes)


@wrong(
    "10.1a",
    "expected attempts and first_attempt_at as numbers (this task has no attempt under way: is it still yours?)",
)
def decides_for_a_task_that_is_no_longer_its_own(task_id, store, remotes):
    class Forgetting(Hearsay):
        def get(self, task_id):
            task = self.store.get(task_id)
            return replace(task, attempts=0, first_attempt_at=None) if task.attempts else task

    by_capability(task_id, Forgetting(store), remotes)


@wrong(
    "10.1a", STUCK, "ended with WrongState, in line ", "retry_later task-1 refused: expected running, found uncertain"
)
def everything_is_transient(task_id, store, remotes):
    """As a student wrote it: whatever is raised, later again."""
    task = store.get(task_id)
    lease = acquire(store, task)
    if lease is None:
        return
    operation = store.get(task_id).next_operation
    if operation is None:
        store.succeed(lease)
        return
    try:
        lease, attempt = store.intend(lease, operation.id)
        receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, operation.id)
        store.succeed(store.checkpoint(lease, operation.id, receipt.reference))
    except Exception:
        store.retry_later(lease, operation.id, Outcome.NOT_SENT, Category.TRANSIENT, store.clock.now() + 5)
