"""Exercise 5.2: find out what a remote really does."""

from answers import right, wrong
from labkit import Capabilities, OutcomeUnknown, Refused

KEYS = "The law that broke, says_what_keys_do:"
QUERY = "The law that broke, says_what_a_query_does:"
NOTHING = "The law that broke, returns_capabilities:"


def twice(remote, first="probe/1", second="probe/1", key="probe/1"):
    one = remote.send(first, {}, "probe-1", key=key)
    other = remote.send(second, {}, "probe-2", key=key)
    return one, other


def asks(remote, operation_id="probe/1"):
    try:
        return remote.query(operation_id).found
    except Refused:
        return False


@right("5.2")
def compares_the_references(remote):
    one, other = twice(remote)
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=asks(remote))


@right("5.2")
def goes_by_what_the_answer_says(remote):
    replayed = twice(remote)[1].replayed
    try:
        remote.query("probe/2")
        status_query = True
    except Refused:
        status_query = False
    return Capabilities(idempotency_keys=replayed, status_query=status_query)


@wrong("5.2", KEYS, "A quiet remote with keys that it takes and ignores")
def believes_the_manual(remote):
    return remote.capabilities


@wrong("5.2", KEYS, "A quiet remote with neither keys nor a query")
def a_key_that_is_not_refused(remote):
    twice(remote)
    return Capabilities(idempotency_keys=True, status_query=asks(remote))


@wrong("5.2", KEYS, "A quiet remote with keys:")
def another_key_for_each_sending(remote):
    one = remote.send("probe/1", {}, "probe-1", key="probe-1")
    other = remote.send("probe/1", {}, "probe-2", key="probe-2")
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=asks(remote))


@wrong("5.2", KEYS, "A quiet remote with keys:")
def no_key_at_all(remote):
    one, other = twice(remote, key=None)
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=asks(remote))


@wrong("5.2", "The law that broke, nothing_real_touched:", "task-1/refund has 3 effects now")
def tries_it_on_a_customer(remote):
    one, other = twice(remote, "task-1/refund", "task-1/refund")
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=asks(remote))


@wrong("5.2", "The law that broke, ends_by_itself:", "ended with Refused")
def a_refusal_is_an_accident(remote):
    one, other = twice(remote)
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=remote.query("probe/1").found)


@wrong("5.2", QUERY, "A quiet remote with a query:")
def asks_for_what_was_never_sent(remote):
    one, other = twice(remote)
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=asks(remote, "probe/2"))


@wrong("5.2", QUERY, "A wire that loses, and a query:")
def a_lost_answer_is_a_no(remote):
    one, other = twice(remote)
    try:
        found = asks(remote)
    except OutcomeUnknown:
        found = False
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=found)


@wrong("5.2", KEYS, "A wire that loses, and keys:")
def a_time_out_means_no_keys(remote):
    try:
        one, other = twice(remote)
    except OutcomeUnknown:
        return Capabilities(status_query=asks(remote))
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=asks(remote))


@wrong("5.2", NOTHING, "returned an object of type tuple, not Capabilities")
def two_truth_values(remote):
    one, other = twice(remote)
    return one.reference == other.reference, asks(remote)


@wrong("5.2", NOTHING, "returned an object of type NoneType")
def nothing(remote):
    twice(remote)


@wrong("5.2", KEYS, "says that the remote honours keys: None, where True or False is wanted")
def says_nothing_where_there_are_none(remote):
    one, other = twice(remote)
    return Capabilities(idempotency_keys=one.reference == other.reference or None, status_query=asks(remote))


@wrong("5.2", QUERY, "A quiet remote with both, which its manual denies:")
def believes_the_manual_about_its_query(remote):
    one, other = twice(remote)
    keys = one.reference == other.reference
    return Capabilities(idempotency_keys=keys, status_query=remote.capabilities.status_query)


@wrong("5.2", KEYS, "A quiet remote with both, which its manual denies:")
def believes_a_manual_that_denies_keys(remote):
    same = len({one.reference for one in twice(remote)}) == 1
    return Capabilities(idempotency_keys=same and remote.capabilities.idempotency_keys, status_query=asks(remote))


@wrong("5.2", QUERY, "A quiet remote with neither, and a manual that promises both:")
def a_promise_or_an_answer(remote):
    one, other = twice(remote)
    query = asks(remote) or remote.capabilities.status_query
    return Capabilities(idempotency_keys=one.reference == other.reference, status_query=query)
