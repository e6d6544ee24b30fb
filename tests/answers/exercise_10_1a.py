"""Exercises 10.1a to 10.1c: recover the agent, by what each remote can do."""

from contextlib import suppress

from answers import right, wrong
from answers.exercise_6_1 import DOUBLED, LOST, MAX_ROUNDS, STUCK, acquire, settle_by_query
from answers.exercise_9_2 import memory_of, send, undo
from labkit import (
    POLICIES,
    Category,
    ChangeRefused,
    ConditionUnmet,
    Outcome,
    RemoteError,
    State,
    Worker,
)

KNOWN = "The law that broke, records_what_it_knows:"
NEEDLESS = "The law that broke, asks_only_when_it_must:"
FORGOTTEN = ("Payments remembers a key for 10 s", DOUBLED, "1 surprise (late)", "A key that the remote has forgotten")


def settle_by_key(store, lease, remotes, doubt):
    """Send what is in doubt again under its own key; tells whether that settled it."""
    remote = remotes[doubt.remote]
    for _ in range(MAX_ROUNDS):
        memory = remote.capabilities.key_ttl_seconds
        try:
            lease, reference = send(store, lease, remotes, doubt, doubt.id, key_memory_seconds=memory)
        except ConditionUnmet:
            return settle_by_query(store, lease, remote)
        if reference is not None:
            store.settle(lease, doubt.id, True, "key", reference)
            return True
    return False


def settle_by_capability(store, lease, remotes, doubt):
    can = remotes[doubt.remote].capabilities
    if can.idempotency_keys:
        return settle_by_key(store, lease, remotes, doubt)
    if can.status_query:
        return settle_by_query(store, lease, remotes[doubt.remote])
    store.ask(lease, "neither keys nor a query", 3600)
    return False


def recover_with(settle, task_id, store, remotes, name="me"):
    for _ in range(MAX_ROUNDS):
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
            lease, reference = send(store, lease, remotes, operation, operation.id)
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


@wrong("10.1a", "A remote that forbids it", "The law that broke, ends_as_refused:")
@wrong("10.1b", "A remote that forbids it", "The law that broke, ends_as_refused:")
def never_fails(task_id, store, remotes):
    by_capability(task_id, Hearsay(store, never_fails=True), remotes)


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
