"""Exercise 5.1: the key of an operation, from all that a worker knows when it sends."""

import hashlib
import json
import uuid

from answers import right, wrong

AFTER_REFUND = "The smallest run that breaks it has one crash, after send task-1/refund:"
DOUBLED = "The law that broke, no_second_effect:"
AT_ONCE = "It fails even without a crash:"
LOST = "The law that broke, success_means_done:"
APART = "The law that broke, a_key_for_each_operation:"


@right("5.1")
def operation_id(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}"


@right("5.1")
def digest_of_both(task_id, operation, attempt, request, now):
    return hashlib.sha256(json.dumps([task_id, operation]).encode()).hexdigest()


@right("5.1")
def uuid_of_both(task_id, operation, attempt, request, now):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{operation}@{task_id}"))


@right("5.1")
def with_the_body_that_never_changes(task_id, operation, attempt, request, now):
    body = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return f"{task_id}/{operation}/{body}"


@wrong("5.1", AFTER_REFUND, DOUBLED)
def attempt_in_the_key(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}/{attempt}"


@wrong("5.1", AFTER_REFUND, DOUBLED)
def time_in_the_key(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}@{now}"


@wrong("5.1", AFTER_REFUND, DOUBLED)
def minute_in_the_key(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}@{int(now // 60)}"


@wrong("5.1", AFTER_REFUND, DOUBLED)
def new_for_every_call(task_id, operation, attempt, request, now):
    return str(uuid.uuid4())


@wrong("5.1", AFTER_REFUND, DOUBLED)
def hash_of_the_process(task_id, operation, attempt, request, now):
    return str(hash((task_id, operation)))


REMEMBERED: dict[tuple[str, str], str] = {}


@wrong("5.1", AFTER_REFUND, DOUBLED)
def remembered_in_memory(task_id, operation, attempt, request, now):
    return REMEMBERED.setdefault((task_id, operation), str(uuid.uuid4()))


@wrong("5.1", AT_ONCE, LOST)
def name_alone(task_id, operation, attempt, request, now):
    return operation


@wrong("5.1", AT_ONCE, LOST, "the same key came with another")
def task_alone(task_id, operation, attempt, request, now):
    return task_id


@wrong("5.1", AT_ONCE, LOST)
def digest_of_the_body(task_id, operation, attempt, request, now):
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()


@wrong("5.1", AT_ONCE, LOST)
def name_and_customer(task_id, operation, attempt, request, now):
    return f"{operation}/{request['customer']}"


@wrong("5.1", "attempt 1, it returned an object of type tuple. A key is text, and not empty.")
def a_tuple(task_id, operation, attempt, request, now):
    return task_id, operation


@wrong("5.1", "it returned None (is a return missing?).")
def nothing(task_id, operation, attempt, request, now):
    print(f"{task_id}/{operation}")


@right("5.1")
def with_the_body_besides(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}/{sorted(request.items())}"


@wrong("5.1", APART, "task-12", "2refund")
def nothing_between_task_and_name(task_id, operation, attempt, request, now):
    return task_id + operation


@wrong("5.1", APART, "refund_again")
def the_task_and_the_body(task_id, operation, attempt, request, now):
    return f"{task_id}/{sorted(request.items())}"


@wrong("5.1", APART, "funder")
def a_checksum_of_letters(task_id, operation, attempt, request, now):
    return str(sum(map(ord, f"{task_id}/{operation}")))


@wrong("5.1", "The law that broke, one_key_at_any_time:", "90000")
def another_key_every_day(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}/{now // 86_400:.0f}"


@wrong("5.1", "The law that broke, one_key_at_any_time:", "task-1/refund/x")
def another_key_from_the_fifth_attempt_on(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}" if attempt < 5 else f"{task_id}/{operation}/x"


@wrong("5.1", "The law that broke, one_key_at_any_time:", "{'amount': 40, 'customer':")
def the_body_as_it_happens_to_be_written(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}/{request}"


@wrong("5.1", APART)
def the_beginning_of_a_digest(task_id, operation, attempt, request, now):
    return hashlib.sha256(f"{task_id}/{operation}".encode()).hexdigest()[:2]


@wrong("5.1", APART, "job-1")
def the_number_of_the_task(task_id, operation, attempt, request, now):
    return f"{task_id.split('-')[1]}/{operation}"


@wrong("5.1", "The law that broke, one_key_at_any_time:", "9e+06")
def a_new_key_every_month(task_id, operation, attempt, request, now):
    return f"{task_id}/{operation}/{now // 2_592_000:g}"
