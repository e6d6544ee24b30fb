"""Exercise 6.2: recover where the remote can neither deduplicate nor tell."""

from contextlib import suppress

from answers import right, wrong
from answers.exercise_6_1 import (
    AT_ONCE,
    DOUBLED,
    LOST,
    NO_INTENT,
    STUCK,
    UNRECORDED,
    acquire,
    carry_on,
    note_all,
    recover_with,
    send_next,
    settle_by_query,
)
from labkit import POLICIES, Category, ChangeRefused, NotSent, Outcome, OutcomeUnknown, State, Worker


def ask(store, lease, remote):
    store.ask(lease, "sent, and no answer came", 3600)
    return False


@right("6.2")
def asks_about_every_doubt(task_id, store, remote):
    try:
        recover_with(ask, task_id, store, remote)
    except ChangeRefused:
        return


@right("6.2")
def the_labs_worker(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["ask_person"], talks=False).run(task_id)


@wrong("6.2", DOUBLED)
def sends_again(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["blind_replay"], talks=False).run(task_id)


@wrong("6.2", DOUBLED)
def replays_the_transcript(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["replay_transcript"], talks=True).run(task_id)


@wrong("6.2", LOST)
def takes_it_for_done(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["assume_done"], talks=False).run(task_id)


@wrong("6.2", DOUBLED)
def a_key_for_a_remote_that_has_none(task_id, store, remote):
    def settle(store, lease, remote):
        doubt = store.get(lease.task_id).in_doubt
        lease, attempt = store.intend(lease, doubt.id, key_memory_seconds=86_400)
        receipt = remote.send(doubt.id, doubt.request, attempt.request_id, doubt.id)
        store.settle(lease, doubt.id, True, "key", receipt.reference)
        return True

    recover_with(settle, task_id, store, remote)


@wrong("6.2", DOUBLED)
def waits_and_takes_it_for_not_sent(task_id, store, remote):
    def settle(store, lease, remote):
        doubt = store.get(lease.task_id).in_doubt
        store.clock.sleep(20)
        store.settle(lease, doubt.id, False, "waited long enough")
        return True

    recover_with(settle, task_id, store, remote)


@wrong("6.2", DOUBLED)
def a_doubt_is_a_failure(task_id, store, remote):
    def settle(store, lease, remote):
        doubt = store.get(lease.task_id).in_doubt
        store.settle(lease, doubt.id, False, "no answer came")
        held = acquire(store, store.get(lease.task_id))
        if held is not None:
            store.fail(held, Category.UNCONFIRMED)
        return False

    recover_with(settle, task_id, store, remote)


@wrong("6.2", STUCK)
def leaves_doubts_alone(task_id, store, remote):
    recover_with(lambda store, lease, remote: False, task_id, store, remote)


@wrong("6.2", STUCK)
def never_takes_over(task_id, store, remote):
    if store.get(task_id).state is State.QUEUED:
        recover_with(ask, task_id, store, remote)


@wrong("6.2", DOUBLED)
def a_time_out_counts_as_not_sent(task_id, store, remote):
    lease = acquire(store, store.get(task_id))
    while lease is not None and lease.state is State.RUNNING:
        operation = store.get(task_id).next_operation
        if operation is None:
            store.succeed(lease)
            return
        lease, attempt = store.intend(lease, operation.id)
        try:
            receipt = remote.send(operation.id, operation.request, attempt.request_id)
        except (NotSent, OutcomeUnknown):
            now = store.clock.now()
            store.retry_later(lease, operation.id, Outcome.NOT_SENT, Category.TRANSIENT, now + 1)
            return
        lease = store.checkpoint(lease, operation.id, receipt.reference)
    if lease is not None:
        ask(store, lease, remote)


@wrong("6.2", "The law that broke, no_worker_breaks:", "StoreError")
def a_bug_in_the_way(task_id, store, remote):
    lease = acquire(store, store.get(task_id))
    if lease is not None and lease.state is State.RUNNING:
        send_next(store, lease, remote)
        raise RuntimeError("StoreError, or what I took for one")


note_all("6.2", ask)


@wrong("6.2", AT_ONCE, UNRECORDED, "loses track of task-1/refund, and has not sent it")
def never_sends(task_id, store, remote):
    found = carry_on(task_id, store, lambda store, lease: ask(store, lease, remote))
    if found is not None:
        lease, _ = store.intend(found[0], found[1].id)
        store.ask(store.lose_track(lease, found[1].id), "please do it by hand", 60)


@wrong("6.2", AT_ONCE, UNRECORDED, "loses track of task-1/refund, and has its answer")
def asks_every_time(task_id, store, remote):
    found = carry_on(task_id, store, lambda store, lease: ask(store, lease, remote))
    if found is not None:
        lease, attempt = store.intend(found[0], found[1].id)
        with suppress(Exception):
            remote.send(found[1].id, found[1].request, attempt.request_id)
        lease = store.lose_track(lease, found[1].id)
        store.ask(lease, "did it work?", 60)


@wrong("6.2", AT_ONCE, NO_INTENT)
def without_any_intent(task_id, store, remote):
    found = carry_on(task_id, store, lambda store, lease: ask(store, lease, remote))
    if found is not None:
        receipt = remote.send(found[1].id, found[1].request, "r1")
        store.checkpoint(found[0], found[1].id, receipt.reference)


VAIN = "The law that broke, asks_only_who_can_tell:"


@wrong("6.2", VAIN, "asks payments about task-1/refund, and payments has no status query", "query task-1/refund")
def the_answer_to_6_1(task_id, store, remote):
    try:
        recover_with(settle_by_query, task_id, store, remote)
    except ChangeRefused:
        return


@wrong("6.2", VAIN)
def a_query_before_it_asks(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["query_then_ask"], talks=False).run(task_id)


@right("6.2")
def goes_by_capability(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["by_capability"], talks=False).run(task_id)
