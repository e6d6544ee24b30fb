"""Exercise 6.1: recover by a status query."""

from answers import right, wrong
from labkit import (
    POLICIES,
    Category,
    ChangeRefused,
    NotSent,
    Outcome,
    OutcomeUnknown,
    RemoteError,
    State,
    Worker,
    next_move,
)

DOUBLED = "The law that broke, no_second_effect:"
STUCK = "The law that broke, settled_in_the_end:"
NEEDLESS = "The law that broke, asks_only_when_it_must:"
LOST = "The law that broke, success_means_done:"
MAX_ROUNDS = 20


def acquire(store, task, name="me"):
    """Return a lease, or None where the task is not to be had."""
    try:
        if task.state is State.QUEUED:
            return store.claim(task, name)
        if task.state in (State.RUNNING, State.UNCERTAIN):
            return store.take_over(task, name)
    except ChangeRefused:
        pass
    return None


def settle_by_query(store, lease, remote):
    """Settle what is in doubt if the remote has it, else ask; tells whether the task can go on."""
    doubt = store.get(lease.task_id).in_doubt
    if doubt is None:
        return False  # the lease was lost, and whoever has it now has settled this
    try:
        standing = remote.query(doubt.id)
    except RemoteError:
        store.ask(lease, "the remote does not answer", 3600)
        return False
    if not standing.found:
        store.ask(lease, "not found, and it may be under way", 3600)
        return False
    store.settle(lease, doubt.id, True, "status query", standing.reference)
    return True


def send_next(store, lease, remote, key=None):
    """Carry out the next operation; return the lease to go on with, or None where the task was let go."""
    task = store.get(lease.task_id)
    operation = task.next_operation
    if operation is None:
        store.succeed(lease)
        return None
    lease, attempt = store.intend(lease, operation.id)
    try:
        receipt = remote.send(operation.id, operation.request, attempt.request_id, key)
    except OutcomeUnknown:
        return store.lose_track(lease, operation.id)
    except NotSent as error:
        task, now = store.get(lease.task_id), store.clock.now()
        move = next_move(error, task.attempts, task.first_attempt_at, now)
        if move.at is None:
            store.fail(lease, Category.TRANSIENT, operation.id, Outcome.NOT_SENT)
        else:
            store.retry_later(lease, operation.id, Outcome.NOT_SENT, Category.TRANSIENT, move.at)
        return None
    return store.checkpoint(lease, operation.id, receipt.reference)


def recover_with(settle, task_id, store, remote, name="me"):
    """Carry a task as far as it can go, settling doubts by `settle`."""
    for _ in range(MAX_ROUNDS):
        task = store.get(task_id)
        lease = acquire(store, task, name)
        if lease is None:
            return
        while lease is not None:
            if lease.state is State.UNCERTAIN:
                if not settle(store, lease, remote):
                    return
                break
            lease = send_next(store, lease, remote)
        else:
            return


@right("6.1")
def state_by_state(task_id, store, remote):
    try:
        recover_with(settle_by_query, task_id, store, remote)
    except ChangeRefused:
        return  # somebody else goes on


@right("6.1")
def the_labs_worker(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["query_then_ask"], talks=False).run(task_id)


@wrong("6.1", DOUBLED)
def sends_again_when_in_doubt(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["blind_replay"], talks=False).run(task_id)


@wrong("6.1", DOUBLED)
def not_found_means_not_applied(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["query_first"], talks=False).run(task_id)


@wrong("6.1", NEEDLESS, "the remote was not asked before")
def asks_at_once(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["ask_person"], talks=False).run(task_id)


@wrong("6.1", LOST)
def takes_it_for_done(task_id, store, remote):
    Worker(store, {"payments": remote}, POLICIES["assume_done"], talks=False).run(task_id)


@wrong("6.1", NEEDLESS, "which the remote says it has applied")
def asks_whatever_the_remote_says(task_id, store, remote):
    def settle(store, lease, remote):
        doubt = store.get(lease.task_id).in_doubt
        remote.query(doubt.id)
        store.ask(lease, "better safe than sorry", 3600)
        return False

    recover_with(settle, task_id, store, remote)


@wrong("6.1", STUCK, "the task is left uncertain")
def leaves_doubts_alone(task_id, store, remote):
    recover_with(lambda store, lease, remote: False, task_id, store, remote)


@wrong("6.1", STUCK)
def only_what_is_queued(task_id, store, remote):
    task = store.get(task_id)
    if task.state is State.QUEUED:
        recover_with(settle_by_query, task_id, store, remote)


@wrong("6.1", DOUBLED)
def a_time_out_is_a_failure(task_id, store, remote):
    task = store.get(task_id)
    lease = acquire(store, task)
    if lease is None or lease.state is State.UNCERTAIN:
        if lease is not None:
            settle_by_query(store, lease, remote)
        return
    operation = store.get(task_id).next_operation
    if operation is None:
        store.succeed(lease)
        return
    lease, attempt = store.intend(lease, operation.id)
    for _ in range(3):
        try:
            receipt = remote.send(operation.id, operation.request, attempt.request_id)
            store.succeed(store.checkpoint(lease, operation.id, receipt.reference))
            return
        except RemoteError:
            continue


@wrong("6.1", DOUBLED)
def not_found_means_give_up(task_id, store, remote):
    def settle(store, lease, remote):
        doubt = store.get(lease.task_id).in_doubt
        if not settle_found(store, lease, remote, doubt):
            store.settle(lease, doubt.id, False, "status query")
            held = acquire(store, store.get(lease.task_id))
            if held is not None:
                store.fail(held, Category.UNCONFIRMED)
        return False

    recover_with(settle, task_id, store, remote)


def settle_found(store, lease, remote, doubt):
    standing = remote.query(doubt.id)
    if standing.found:
        store.settle(lease, doubt.id, True, "status query", standing.reference)
    return standing.found


@wrong("6.1", DOUBLED)
def asks_twice_and_then_believes(task_id, store, remote):
    def settle(store, lease, remote):
        doubt = store.get(lease.task_id).in_doubt
        for _ in range(2):
            if settle_found(store, lease, remote, doubt):
                return True
            store.clock.sleep(5)
        store.settle(lease, doubt.id, False, "status query, twice")
        return True

    recover_with(settle, task_id, store, remote)


@wrong("6.1", DOUBLED)
def sends_before_it_says_so(task_id, store, remote):
    lease = acquire(store, store.get(task_id))
    if lease is None:
        return
    if lease.state is State.UNCERTAIN:
        settle_by_query(store, lease, remote)
        return
    operation = store.get(task_id).next_operation
    if operation is None:
        store.succeed(lease)
        return
    receipt = remote.send(operation.id, operation.request, f"{operation.id}#1")
    lease, _ = store.intend(lease, operation.id)
    store.succeed(store.checkpoint(lease, operation.id, receipt.reference))
