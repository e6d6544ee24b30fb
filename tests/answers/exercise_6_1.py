"""Exercise 6.1: recover by a status query."""

from contextlib import suppress

from answers import right, wrong
from labkit import (
    POLICIES,
    Category,
    ChangeRefused,
    NotSent,
    Outcome,
    OutcomeUnknown,
    Refused,
    RemoteError,
    State,
    Worker,
    category_of,
    next_move,
)

DOUBLED = "The law that broke, no_second_effect:"
STUCK = "The law that broke, settled_in_the_end:"
NEEDLESS = "The law that broke, asks_only_when_it_must:"
LOST = "The law that broke, success_means_done:"
UNRECORDED = "The law that broke, records_what_it_knows:"
OTHER_BODY = "The law that broke, effect_as_planned:"
OTHER_RESULT = "The law that broke, keeps_the_result:"
UNSAID = "The law that broke, settles_by_what_was_said:"
NO_INTENT = "The law that broke, intends_before_it_sends:"
AT_ONCE = "it fails even in the quiet run"
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
    except (NotSent, Refused) as error:
        task, now = store.get(lease.task_id), store.clock.now()
        move, category = next_move(error, task.attempts, task.first_attempt_at, now), category_of(error)
        outcome = Outcome.NOT_SENT if isinstance(error, NotSent) else Outcome.REFUSED
        if move.at is None:
            store.fail(lease, category, operation.id, outcome)
        else:
            store.retry_later(lease, operation.id, outcome, category, move.at)
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


@wrong(
    "6.1", AT_ONCE, NO_INTENT, "worker-1 sends task-1/refund, and no intent of that is on record", "send task-1/refund"
)
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


def carry_on(task_id, store, settle):
    """Acquire the task; return the lease and its next operation where something is to be sent, else None."""
    lease = acquire(store, store.get(task_id))
    if lease is None:
        return None
    task = store.get(task_id)
    if task.state is State.UNCERTAIN:
        settle(store, lease)
        return None
    if task.next_operation is None:
        store.succeed(lease)
        return None
    return lease, task.next_operation


def as_planned(operation):
    return operation.request


def send_once(task_id, store, remote, settle, record, failed, body=as_planned):
    """Send the next operation; `record` an answer, or say by `failed` that there was none."""
    found = carry_on(task_id, store, settle)
    if found is None:
        return
    lease, attempt = store.intend(found[0], found[1].id)
    try:
        receipt = remote.send(found[1].id, body(found[1]), attempt.request_id)
    except RemoteError as error:
        failed(store, lease, found[1], error)
        return
    record(store, lease, found[1], receipt, found[0])


def right_record(store, lease, operation, receipt, claimed):
    store.succeed(store.checkpoint(lease, operation.id, receipt.reference))


def right_failed(store, lease, operation, error):
    """What follows an error, by what it says."""
    if isinstance(error, OutcomeUnknown):
        store.lose_track(lease, operation.id)
    elif isinstance(error, NotSent):
        wait_until = store.clock.now() + 5
        store.retry_later(lease, operation.id, Outcome.NOT_SENT, Category.TRANSIENT, wait_until)
    elif category_of(error) is Category.TRANSIENT:
        wait_until = store.clock.now() + 5
        store.retry_later(lease, operation.id, Outcome.REFUSED, Category.TRANSIENT, wait_until)
    else:
        store.fail(lease, category_of(error), operation.id, Outcome.REFUSED)


def forgets_the_checkpoint(store, lease, operation, receipt, claimed):
    store.succeed(lease)


def uses_the_lease_of_before(store, lease, operation, receipt, claimed):
    store.checkpoint(claimed, operation.id, receipt.reference)


def hides_that_it_was_refused(store, lease, operation, receipt, claimed):
    with suppress(Exception):
        store.checkpoint(claimed, operation.id, receipt.reference)


def loses_track_of_an_answer(store, lease, operation, receipt, claimed):
    store.lose_track(lease, operation.id)


def asks_although_it_knows(store, lease, operation, receipt, claimed):
    store.ask(store.lose_track(lease, operation.id), "did it work?", 60)


def not_sent_is_no_answer(store, lease, operation, error):
    store.lose_track(lease, operation.id)


def raises_what_came(store, lease, operation, error):
    if not isinstance(error, OutcomeUnknown):
        raise error
    store.lose_track(lease, operation.id)


def gives_up_at_once(store, lease, operation, error):
    if isinstance(error, OutcomeUnknown):
        store.lose_track(lease, operation.id)
    else:
        store.fail(lease, Category.TRANSIENT, operation.id, Outcome.NOT_SENT)


def tries_again_at_once(store, lease, operation, error):
    if isinstance(error, NotSent):
        store.retry_later(lease, operation.id, Outcome.NOT_SENT, Category.TRANSIENT, 0)
    else:
        right_failed(store, lease, operation, error)


def a_refusal_is_a_doubt(store, lease, operation, error):
    if isinstance(error, Refused):
        store.lose_track(lease, operation.id)
    else:
        right_failed(store, lease, operation, error)


def a_refusal_goes_unheard(store, lease, operation, error):
    if isinstance(error, Refused):
        raise error
    right_failed(store, lease, operation, error)


def every_refusal_is_for_good(store, lease, operation, error):
    if isinstance(error, Refused):
        store.fail(lease, Category.PERMISSION, operation.id, Outcome.REFUSED)
    else:
        right_failed(store, lease, operation, error)


def every_refusal_passes(store, lease, operation, error):
    if isinstance(error, Refused):
        after = store.clock.now() + 5
        store.retry_later(lease, operation.id, Outcome.REFUSED, Category.TRANSIENT, after)
    else:
        right_failed(store, lease, operation, error)


def records_words_of_its_own(store, lease, operation, receipt, claimed):
    store.succeed(store.checkpoint(lease, operation.id, "x"))


def records_its_own_request(store, lease, operation, receipt, claimed):
    request_id = store.get(lease.task_id).operations[0].attempts[-1].request_id
    store.succeed(store.checkpoint(lease, operation.id, request_id))


def records_the_receipt_in_words(store, lease, operation, receipt, claimed):
    store.succeed(store.checkpoint(lease, operation.id, str(receipt)))


ANSWER_LEFT = "ends and leaves in doubt task-1/refund, and has its answer, payments-1"
RECORDS = {
    forgets_the_checkpoint: (AT_ONCE, UNRECORDED, ANSWER_LEFT, "It ended with ConditionUnmet, in line"),
    uses_the_lease_of_before: (AT_ONCE, UNRECORDED, ANSWER_LEFT, "It ended with StaleVersion, in line"),
    hides_that_it_was_refused: (AT_ONCE, UNRECORDED, ANSWER_LEFT),
    loses_track_of_an_answer: (AT_ONCE, UNRECORDED, "loses track of task-1/refund, and has its answer", "not allowed"),
    records_words_of_its_own: (
        AT_ONCE,
        OTHER_RESULT,
        "puts x on record for task-1/refund, which no remote has answered",
    ),
    records_its_own_request: (AT_ONCE, OTHER_RESULT, "puts task-1/refund#1 on record"),
    records_the_receipt_in_words: (AT_ONCE, OTHER_RESULT, "puts applied: payments-1 on record", "own reference"),
    asks_although_it_knows: (AT_ONCE, UNRECORDED, "loses track of task-1/refund, and has its answer"),
}
"""What is done with an answer, and what a check must say to it."""

NOT_SENT = "knows that it was not sent"
ONCE = "A remote that is overloaded once"


def only_permission_is_for_good(store, lease, operation, error):
    if isinstance(error, Refused) and error.category != "permission":
        store.retry_later(lease, operation.id, Outcome.REFUSED, Category.TRANSIENT, store.clock.now() + 5)
    else:
        right_failed(store, lease, operation, error)


def what_is_for_good_is_forbidden(store, lease, operation, error):
    if isinstance(error, Refused) and error.category != "transient":
        store.fail(lease, Category.PERMISSION, operation.id, Outcome.REFUSED)
    else:
        right_failed(store, lease, operation, error)


INVALID = "A remote to which it is invalid"
FAILURES = {
    not_sent_is_no_answer: (UNRECORDED, f"loses track of task-1/refund, and {NOT_SENT}", "1 surprise (refused)"),
    raises_what_came: (UNRECORDED, NOT_SENT, "It ended with NotSent, in line"),
    gives_up_at_once: (UNRECORDED, NOT_SENT, "It ended with ConditionUnmet, in line"),
    tries_again_at_once: ("The law that broke, waits_before_it_tries_again:", "it was put off until 0 s"),
    a_refusal_is_a_doubt: (ONCE, UNRECORDED, "knows that it was refused (transient)"),
    a_refusal_goes_unheard: (ONCE, UNRECORDED, "It ended with Refused, in line"),
    every_refusal_is_for_good: (
        ONCE,
        "The law that broke, fails_only_for_a_cause:",
        "category permission, and no remote has refused it so",
    ),
    only_permission_is_for_good: (INVALID, UNRECORDED, "knows that it was refused (invalid)"),
    what_is_for_good_is_forbidden: (INVALID, "permission, and no remote has refused it so"),
    every_refusal_passes: ("A remote that forbids it", UNRECORDED, "knows that it was refused (permission)"),
}
"""What is done with an error, and what a check must say to it."""


def an_empty_body(operation):
    return {}


def another_amount(operation):
    return {"amount": 9999}


def the_body_of_a_cell_above(operation):
    return {"amount": 40}


def the_amount_alone(operation):
    return {"amount": operation.request["amount"]}


BODIES = (an_empty_body, another_amount, the_body_of_a_cell_above, the_amount_alone)
"""What is sent in place of the request."""


def sending_once(settle, record, failed, name, body=as_planned):
    """Make an answer of its parts."""

    def recover(task_id, store, remote):
        send_once(task_id, store, remote, lambda store, lease: settle(store, lease, remote), record, failed, body)

    recover.__name__ = name
    return recover


def note_all(number, settle):
    """Note an answer for each way of dealing with an answer, or with an error."""
    right(number)(sending_once(settle, right_record, right_failed, "sends_once_a_life"))
    for record, says in RECORDS.items():
        wrong(number, *says)(sending_once(settle, record, right_failed, record.__name__))
    for failed, says in FAILURES.items():
        wrong(number, *says)(sending_once(settle, right_record, failed, failed.__name__))
    for body in BODIES:
        says = (AT_ONCE, OTHER_BODY, "operation.request")
        wrong(number, *says)(sending_once(settle, right_record, right_failed, body.__name__, body))


note_all("6.1", settle_by_query)


@wrong("6.1", AT_ONCE, UNRECORDED, "loses track of task-1/refund, and has not sent it")
def never_sends(task_id, store, remote):
    found = carry_on(task_id, store, lambda store, lease: settle_by_query(store, lease, remote))
    if found is not None:
        lease, _ = store.intend(found[0], found[1].id)
        store.ask(store.lose_track(lease, found[1].id), "please do it by hand", 60)


@wrong("6.1", AT_ONCE, UNRECORDED, "has its answer")
def throws_everything_away(task_id, store, remote):
    found = carry_on(task_id, store, lambda store, lease: settle_by_query(store, lease, remote))
    if found is not None:
        lease, attempt = store.intend(found[0], found[1].id)
        try:
            remote.send(found[1].id, found[1].request, attempt.request_id)
            store.ask(store.lose_track(lease, found[1].id), "did it work?", 60)
        except:  # noqa: E722
            pass


@wrong("6.1", AT_ONCE, NO_INTENT)
def without_any_intent(task_id, store, remote):
    found = carry_on(task_id, store, lambda store, lease: settle_by_query(store, lease, remote))
    if found is not None:
        receipt = remote.send(found[1].id, found[1].request, "r1")
        store.checkpoint(found[0], found[1].id, receipt.reference)


def recover_and_settle(task_id, store, remote, source, reference=None):
    def settle(store, lease):
        doubt = store.get(lease.task_id).in_doubt
        try:
            standing = remote.query(doubt.id)
        except RemoteError:
            standing = None
        if standing is None or not standing.found:
            store.ask(lease, "not found, and it may be under way", 3600)
        else:
            store.settle(lease, doubt.id, True, source, reference or standing.reference)

    send_once(task_id, store, remote, settle, right_record, right_failed)


@right("6.1")
def a_source_in_words_of_its_own(task_id, store, remote):
    recover_and_settle(task_id, store, remote, "the remote's own record, by query and not by key")


@wrong("6.1", "What settles a doubt", UNSAID, "as applied with x, which no remote has answered", "with that reference")
def settles_with_another_reference(task_id, store, remote):
    recover_and_settle(task_id, store, remote, "status query", "x")


@wrong("6.1", "What settles a doubt", UNSAID, "by key, and it was not sent under a key", "by that name")
def settles_by_a_key_that_was_never_sent(task_id, store, remote):
    recover_and_settle(task_id, store, remote, "key")


@wrong("6.1", "An operation of another name", STUCK, "need not be that of a refund")
def always_the_refund(task_id, store, remote):
    class Named:
        def __getattr__(self, name):
            return getattr(store, name)

        def intend(self, lease, operation_id):
            return store.intend(lease, f"{lease.task_id}/refund")

    state_by_state(task_id, Named(), remote)
