"""Exercise 9.2: carry out an undo that may crash too."""

import hashlib

from answers import right, wrong
from answers.exercise_6_1 import DOUBLED, MAX_ROUNDS, STUCK, acquire
from labkit import (
    POLICIES,
    Category,
    ChangeRefused,
    ConditionUnmet,
    NotSent,
    Outcome,
    OutcomeUnknown,
    Refused,
    RemoteError,
    State,
    Then,
    Worker,
    category_of,
    next_move,
)


def send(store, lease, remotes, operation, key, **intent):
    """Intend and send; return the lease and the reference, or None for the reference where it did not come."""
    lease, attempt = store.intend(lease, operation.id, **intent)
    try:
        receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, key)
    except OutcomeUnknown:
        if lease.state is State.RUNNING:
            lease = store.lose_track(lease, operation.id)
        return lease, None
    except (NotSent, Refused) as error:
        if lease.state is State.RUNNING:
            task, now = store.get(lease.task_id), store.clock.now()
            if task.lease_token != lease.token:
                return None, None  # somebody else goes on
            outcome = Outcome.REFUSED if isinstance(error, Refused) else Outcome.NOT_SENT
            move = next_move(error, task.attempts, task.first_attempt_at, now)
            if move.kind is Then.RETRY:
                store.retry_later(lease, operation.id, outcome, Category.TRANSIENT, move.at)
            else:
                store.fail(lease, category_of(error), operation.id, outcome, move.at)
            return None, None
        if category_of(error) is not Category.TRANSIENT:
            raise
        return lease, None
    return lease, receipt.reference


def memory_of(remotes, operation):
    """How long the remote of an operation remembers a key."""
    return remotes[operation.remote].capabilities.key_ttl_seconds


def undo(task_id, store, remotes, key_of=lambda operation: operation.id, settle=True, name="me"):
    """Work through the plan, settling doubts by sending again under the same key."""
    for _ in range(MAX_ROUNDS):
        lease = acquire(store, store.get(task_id), name)
        if lease is None:
            return
        while lease is not None:
            task = store.get(task_id)
            if lease.state is State.UNCERTAIN:
                if not settle or task.in_doubt is None:
                    return
                doubt = task.in_doubt
                try:
                    lease, reference = send(
                        store, lease, remotes, doubt, key_of(doubt), key_memory_seconds=memory_of(remotes, doubt)
                    )
                except ConditionUnmet:
                    store.ask(lease, "the key may be forgotten", 3600)
                    return
                if reference is not None:
                    store.settle(lease, doubt.id, True, "key", reference)
                    lease = None
                continue
            operation = task.next_operation
            if operation is None:
                store.compensated(lease)
                return
            lease, reference = send(store, lease, remotes, operation, key_of(operation))
            if lease is not None and reference is not None:
                lease = store.checkpoint(lease, operation.id, reference)


@right("9.2")
def step_by_step(task_id, store, remotes):
    try:
        undo(task_id, store, remotes)
    except ChangeRefused:
        return


@right("9.2")
def the_labs_worker(task_id, store, remotes):
    Worker(store, remotes, POLICIES["by_capability"], talks=False).run(task_id)


@right("9.2")
def under_a_hash_of_the_id(task_id, store, remotes):
    try:
        undo(task_id, store, remotes, key_of=lambda one: hashlib.sha256(one.id.encode()).hexdigest())
    except ChangeRefused:
        return


FORGOTTEN = ("Remotes that remember a key for 10 s", DOUBLED, "A key that the remote has forgotten is a new one")


@wrong("9.2", *FORGOTTEN, "2 surprises (cancel", "the wire    the late request")
def no_remote_ever_forgets(task_id, store, remotes):
    class Believing:
        def __getattr__(self, name):
            return getattr(store, name)

        def intend(self, lease, operation_id, key_memory_seconds=None):
            memory = None if key_memory_seconds is None else 1e9
            return store.intend(lease, operation_id, key_memory_seconds=memory)

    undo(task_id, Believing(), remotes)


@wrong("9.2", "Remotes that remember a key for 10 s", STUCK, "Who can tell then? See ask.")
def leaves_lying_what_may_not_be_sent_again(task_id, store, remotes):
    class Silent:
        def __getattr__(self, name):
            return getattr(store, name)

        def ask(self, lease, reason, seconds):
            return lease.state

    undo(task_id, Silent(), remotes)


SHARED = ("A second task at the same remotes", "A hint: The remote has met this key before")


@wrong("9.2", *SHARED, "task-1 is compensated, and record and ledger disagree about task-1/refund/undo")
def one_key_for_all(task_id, store, remotes):
    undo(task_id, store, remotes, key_of=lambda operation: "undo-key")


@wrong("9.2", *SHARED, "task-2 is compensated, and record and ledger disagree about task-2/refund/undo")
def the_name_is_the_key(task_id, store, remotes):
    undo(task_id, store, remotes, key_of=lambda operation: operation.name)


@wrong("9.2", *SHARED)
def the_task_is_the_key(task_id, store, remotes):
    undo(task_id, store, remotes, key_of=lambda operation: f"{task_id}/undo")


@wrong("9.2", DOUBLED, "/undo stands 2 times")
def no_key(task_id, store, remotes):
    undo(task_id, store, remotes, key_of=lambda operation: None)


@wrong("9.2", STUCK, "another body", "Has the remote refused something, and why?")
def the_key_of_what_is_undone(task_id, store, remotes):
    undo(task_id, store, remotes, key_of=lambda operation: operation.id.removesuffix("/undo"))


@wrong("9.2", DOUBLED, "/undo stands 2 times")
def a_key_for_each_attempt(task_id, store, remotes):
    undo(task_id, store, remotes, key_of=lambda operation: f"{operation.id}#{store.get(task_id).attempts}")


@wrong("9.2", STUCK)
def leaves_doubts_alone(task_id, store, remotes):
    undo(task_id, store, remotes, settle=False)


@wrong("9.2", STUCK)
def never_takes_over(task_id, store, remotes):
    if store.get(task_id).state is State.QUEUED:
        undo(task_id, store, remotes)


@wrong("9.2", "The law that broke, intends_before_it_sends:")
def sends_and_never_says_so(task_id, store, remotes):
    lease = acquire(store, store.get(task_id))
    for operation in store.get(task_id).current:
        if operation.status == "pending":
            receipt = remotes[operation.remote].send(operation.id, operation.request, f"{operation.id}#1", operation.id)
            lease = store.checkpoint(lease, operation.id, receipt.reference)
    store.compensated(lease)


@wrong("9.2", STUCK)
def calls_it_succeeded(task_id, store, remotes):
    lease = acquire(store, store.get(task_id))
    if lease is not None:
        try:
            store.succeed(lease)
        except ChangeRefused:
            return


@wrong("9.2", DOUBLED)
def blind_replay(task_id, store, remotes):
    Worker(store, remotes, POLICIES["blind_replay"], talks=False).run(task_id)


@wrong("9.2", "The law that broke, record_and_ledger_agree:")
def takes_doubts_for_done(task_id, store, remotes):
    Worker(store, remotes, POLICIES["assume_done"], talks=False).run(task_id)


@wrong("9.2", "The law that broke, no_second_effect:")
def a_doubt_is_settled_as_not_applied(task_id, store, remotes):
    lease = acquire(store, store.get(task_id))
    if lease is not None and lease.state is State.UNCERTAIN:
        doubt = store.get(task_id).in_doubt
        store.settle(lease, doubt.id, False, "no answer came")
    elif lease is not None:
        store_lease, remote_error = lease, RemoteError
        while True:
            operation = store.get(task_id).next_operation
            if operation is None:
                store.compensated(store_lease)
                return
            store_lease, attempt = store.intend(store_lease, operation.id)
            try:
                receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id)
            except remote_error:
                store.lose_track(store_lease, operation.id)
                return
            store_lease = store.checkpoint(store_lease, operation.id, receipt.reference)


SAID = "The law that broke, settles_by_what_was_said:"


@wrong("9.2", SAID, "settles task-1/refund/undo as not applied, and nobody had said so")
def says_no_where_the_remote_said_yes(task_id, store, remotes):
    lease = acquire(store, store.get(task_id))
    if lease is None:
        return
    task = store.get(task_id)
    if lease.state is State.UNCERTAIN:
        doubt = task.in_doubt
        lease, reference = send(store, lease, remotes, doubt, doubt.id, key_memory_seconds=memory_of(remotes, doubt))
        if reference is not None:
            store.settle(lease, doubt.id, False, "key", reference)
        return
    operation = task.next_operation
    if operation is None:
        store.compensated(lease)
        return
    lease, reference = send(store, lease, remotes, operation, operation.id)
    if reference is not None:
        store.checkpoint(lease, operation.id, reference)


@wrong("9.2", SAID, "settles task-1/refund/undo as not applied, and nobody had said so")
def assumes_and_sends_again(task_id, store, remotes):
    lease = acquire(store, store.get(task_id))
    while lease is not None:
        task = store.get(task_id)
        if lease.state is State.UNCERTAIN:
            store.settle(lease, task.in_doubt.id, False, "assumed")
            lease = acquire(store, store.get(task_id))
        elif task.next_operation is None:
            store.compensated(lease)
            return
        else:
            lease, reference = send(store, lease, remotes, task.next_operation, task.next_operation.id)
            if lease is not None and reference is not None:
                lease = store.checkpoint(lease, task.next_operation.id, reference)


@wrong("9.2", STUCK, "the task is left running, and nothing is left to do but to end it", "compensated ends the task")
def never_says_that_it_is_over(task_id, store, remotes):
    class Endless:
        def __getattr__(self, name):
            return getattr(store, name)

        def compensated(self, lease):
            return lease.state

    step_by_step(task_id, Endless(), remotes)


@wrong("9.2", STUCK, "worker-2 ended with Refused, in line ", "of your cell: ", "the same key came with another body")
def a_borrowed_key_and_no_handling(task_id, store, remotes):
    lease = acquire(store, store.get(task_id))
    operation = store.get(task_id).next_operation
    lease, attempt = store.intend(lease, operation.id, key_memory_seconds=memory_of(remotes, operation))
    key = operation.id.removesuffix("/undo")
    receipt = remotes[operation.remote].send(operation.id, operation.request, attempt.request_id, key)
    store.checkpoint(lease, operation.id, receipt.reference)
