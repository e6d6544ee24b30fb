"""Exercise 9.1: what to undo, and in which order."""

from answers import right, wrong


def done(operations):
    return [one for one in operations if one["status"] == "done"]


def backwards(operations):
    return sorted(done(operations), key=lambda one: one["position"], reverse=True)


def doubtful(operations):
    return any(one["in_doubt"] for one in operations)


@right("9.1")
def last_done_first(operations):
    if doubtful(operations):
        return []
    return [(f"{one['operation_id']}/undo", one["undo_request"]) for one in backwards(operations)]


@right("9.1")
def with_a_loop(operations):
    plan = []
    for one in sorted(operations, key=lambda row: row["position"]):
        if one["in_doubt"]:
            return []
        if one["status"] == "done":
            plan.insert(0, (one["operation_id"] + "/undo", one["undo_request"]))
    return plan


@wrong("9.1", "The law that broke, undone_in_order:")
def first_done_first(operations):
    return last_done_first(operations)[::-1]


@wrong("9.1", "The law that broke, undone_in_order:")
def in_the_order_of_the_rows(operations):
    if doubtful(operations):
        return []
    return [(f"{one['operation_id']}/undo", one["undo_request"]) for one in done(operations)]


@wrong("9.1", "The law that broke, nothing_in_doubt:")
def whatever_is_in_doubt(operations):
    return [(f"{one['operation_id']}/undo", one["undo_request"]) for one in backwards(operations)]


@wrong("9.1", "The law that broke, nothing_in_doubt:")
def what_is_in_doubt_too(operations):
    rows = sorted(operations, key=lambda one: -one["position"])
    touched = [one for one in rows if one["status"] == "done" or one["in_doubt"]]
    return [(f"{one['operation_id']}/undo", one["undo_request"]) for one in touched]


@wrong("9.1", "The law that broke, only_what_was_done:", "3 are planned, and 0 were done")
def everything(operations):
    if doubtful(operations):
        return []
    rows = sorted(operations, key=lambda one: -one["position"])
    return [(f"{one['operation_id']}/undo", one["undo_request"]) for one in rows]


@wrong(
    "9.1",
    "The law that broke, what_cannot_be_undone:",
    "task-1/send_email/undo is not on it",
    "A hint: What cannot be undone goes on the list too, with None",
)
def without_what_cannot_be_undone(operations):
    return [pair for pair in last_done_first(operations) if pair[1] is not None]


@wrong("9.1", "The law that broke, own_operation_id:", "task-1/refund is planned")
def under_the_old_id(operations):
    if doubtful(operations):
        return []
    return [(one["operation_id"], one["undo_request"]) for one in backwards(operations)]


@wrong("9.1", "The law that broke, what_cannot_be_undone:", "has the request {}")
def an_empty_request_for_the_mail(operations):
    return [(name, request or {}) for name, request in last_done_first(operations)]


@wrong("9.1", "The law that broke, only_what_was_done:", "1 are planned, and 2 were done")
def the_last_one_alone(operations):
    return last_done_first(operations)[:1]


@wrong("9.1", "returned something else than pairs")
def ids_alone(operations):
    return [name for name, _ in last_done_first(operations)]


@wrong("9.1", "it returned None (is a return missing?).")
def return_forgotten(operations):
    list(last_done_first(operations))


@right("9.1")
def one_by_one(operations):
    if not doubtful(operations):
        for one in backwards(operations):
            yield [f"{one['operation_id']}/undo", one["undo_request"]]


@wrong("9.1", "It returned something that cannot travel back to the check: TypeError: Object of type set")
def a_request_that_is_no_json(operations):
    return [(f"{one['operation_id']}/undo", {"amount"}) for one in operations]


@wrong("9.1", "The law that broke, what_cannot_be_undone:", "has the request")
def a_very_long_request(operations):
    return [(name, "x" * 10_000) for name, _ in last_done_first(operations)]


@wrong("9.1", "The law that broke, own_operation_id:", "refund/undo is planned; task-1/refund/undo is such an id")
def by_the_name_alone(operations):
    return [(name.partition("/")[2], request) for name, request in last_done_first(operations)]


@wrong("9.1", "The law that broke, own_operation_id:", "task-1/book/undo is planned")
def always_the_same_task(operations):
    return [(f"task-1/{name.split('/', 1)[1]}", request) for name, request in last_done_first(operations)]


@wrong("9.1", "The law that broke, what_cannot_be_undone:", "task-20/book/undo has the request None")
def the_last_one_has_no_request(operations):
    plan = last_done_first(operations)
    return [(name, None if len(plan) == 3 and name == plan[0][0] else request) for name, request in plan]
