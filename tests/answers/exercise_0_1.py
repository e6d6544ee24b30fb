"""Exercise 0.1: the key under which an attempt is sent."""

import hashlib
import os
import random
import time
import uuid
from datetime import date, datetime

from answers import right, wrong

AFTER_REFUND = "The smallest run that breaks it has one crash, after send task-1/refund:"
DOUBLED = "The law that broke, no_second_effect: No operation has two effects. The ledger shows 2 of task-1/refund."
AT_ONCE = "It fails even without a crash:"
SWALLOWED = (
    "The law that broke, success_means_done: Every refund has its effect once. "
    "On record task-2/refund is done; the ledger shows none of it."
)
REFUSED = (
    "The law that broke, success_means_done: Every refund has its effect once. "
    "On record task-2/shipping is pending; the ledger shows none of it."
)


@right("0.1")
def operation_id_alone(operation_id: str, attempt: int) -> str:
    return operation_id


@right("0.1")
def with_a_prefix(operation_id: str, attempt: int) -> str:
    return f"recovery-lab:{operation_id}"


@right("0.1")
def digest_of_the_operation_id(operation_id, attempt):
    return hashlib.sha256(operation_id.encode()).hexdigest()


@right("0.1")
def uuid_of_the_operation_id(operation_id, attempt):
    key = uuid.uuid5(uuid.NAMESPACE_URL, operation_id)
    return str(key)


@right("0.1")
def from_its_parts(operation_id, attempt):
    task, _, name = operation_id.partition("/")
    return "-".join([name, task])


@right("0.1")
def drawn_with_the_operation_id_as_seed(operation_id, attempt):
    return str(random.Random(operation_id).getrandbits(128))


@wrong("0.1", AFTER_REFUND, DOUBLED, "send task-1/refund    B    applied: payments-2")
def one_key_an_attempt(operation_id, attempt):
    return f"{operation_id}/{attempt}"


@wrong("0.1", AFTER_REFUND, DOUBLED)
def key_by_the_parity_of_the_attempt(operation_id, attempt):
    return operation_id + ("-odd" if attempt % 2 else "-even")


@wrong("0.1", AFTER_REFUND, DOUBLED)
def hash_of_both(operation_id, attempt):
    return hashlib.sha256(f"{operation_id}{attempt}".encode()).hexdigest()


@wrong("0.1", AFTER_REFUND, DOUBLED)
def time_in_the_key(operation_id, attempt):
    return f"{operation_id}@{time.time()}"


@wrong("0.1", AFTER_REFUND, DOUBLED)
def day_in_the_key(operation_id, attempt):
    return f"{operation_id}@{date.today()}"


@wrong("0.1", AFTER_REFUND, DOUBLED)
def minute_in_the_key(operation_id, attempt):
    return datetime.now().strftime("%H:%M ") + operation_id


@wrong("0.1", AFTER_REFUND, DOUBLED)
def random_number(operation_id, attempt):
    return str(random.random())


@wrong("0.1", AFTER_REFUND, DOUBLED)
def new_uuid(operation_id, attempt):
    return str(uuid.uuid4())


KEYS = {}


@wrong("0.1", AFTER_REFUND, DOUBLED)
def remembered_in_memory(operation_id, attempt):
    return KEYS.setdefault(operation_id, str(uuid.uuid4()))


NUMBERS: list[int] = []


@wrong("0.1", AFTER_REFUND, DOUBLED)
def counted(operation_id, attempt):
    NUMBERS.append(attempt)
    return f"key-{len(NUMBERS)}"


@wrong("0.1", AFTER_REFUND, DOUBLED)
def hash_that_differs_in_every_process(operation_id, attempt):
    return str(hash(operation_id))


@wrong("0.1", AFTER_REFUND, DOUBLED)
def process_in_the_key(operation_id, attempt):
    return f"{operation_id}#{os.getpid()}"


@wrong(
    "0.1",
    AT_ONCE,
    SWALLOWED,
    "send task-2/refund        A    applied before: payments-1",
    "task-1/refund 1x",
    "task-2/refund 0x",
    "... ",
)
def same_key_for_all(operation_id, attempt):
    return "refund"


@wrong("0.1", AT_ONCE, SWALLOWED)
def name_without_the_task(operation_id, attempt):
    return operation_id.split("/")[1]


@wrong("0.1", AT_ONCE, SWALLOWED)
def attempt_alone(operation_id, attempt):
    return str(attempt)


@wrong("0.1", AT_ONCE, REFUSED, "B    the same key came with another")
def task_without_the_name(operation_id, attempt):
    return operation_id.split("/")[0]


@wrong("0.1", "Asked for the key of task-1/refund, attempt 1, it returned None (is a return missing?).")
def nothing(operation_id, attempt):
    print(operation_id)


@wrong("0.1", "Asked for the key of task-1/refund, attempt 2, it returned None (is a return missing?).")
def nothing_from_the_second_attempt_on(operation_id, attempt):
    return operation_id if attempt == 1 else None


@wrong("0.1", "attempt 1, it returned an object of type int. A key is text, and not empty.")
def a_number(operation_id, attempt):
    return 1042


@wrong("0.1", "attempt 1, it returned an object of type bytes. A key is text, and not empty.")
def bytes_for_text(operation_id, attempt):
    return operation_id.encode()


@wrong("0.1", "attempt 1, it returned empty text. A key is text, and not empty.")
def empty_text(operation_id, attempt):
    return ""


@wrong("0.1", "attempt 1, it returned text that cannot be printed. A key is text, and not empty.")
def half_a_letter(operation_id, attempt):
    return f"{operation_id}\ud800"


@wrong("0.1", 'attempt 1, it raised TypeError: can only concatenate str (not "int") to str.')
def adds_text_and_number(operation_id, attempt):
    return operation_id + attempt


@wrong("0.1", "attempt 1, it raised NameError: name 'operation' is not defined.")
def a_name_that_is_not_there(operation_id, attempt):
    return operation  # noqa: F821


@wrong("0.1", "attempt 1, it raised TypeError: too_few_arguments() takes 1 positional argument but 2 were given.")
def too_few_arguments(operation_id):
    return operation_id


ONE_KEY = "The law that broke, one_key_at_any_time:"
NO_ATTEMPT = "no number of an attempt may change its key"


@wrong("0.1", ONE_KEY, "task-1/refund#3", NO_ATTEMPT)
def another_key_from_the_third_attempt_on(operation_id, attempt):
    return operation_id if attempt < 3 else f"{operation_id}#{attempt}"


@wrong("0.1", ONE_KEY, "task-1/refund#4")
def another_key_from_the_fourth_attempt_on(operation_id, attempt):
    return operation_id if attempt < 4 else f"{operation_id}#{attempt}"


EACH_ITS_OWN = "The law that broke, a_key_for_each_operation:"


@wrong("0.1", EACH_ITS_OWN, "task-1/refund_again", "operation_id", "it takes all of the id")
def its_first_eight_signs(operation_id, attempt):
    return operation_id[:8]


@wrong("0.1", EACH_ITS_OWN, "task-1/refund_again")
def its_first_thirteen_signs(operation_id, attempt):
    return operation_id[:13]


@wrong("0.1", EACH_ITS_OWN, "old-task-1/refund")
def its_last_nine_signs(operation_id, attempt):
    return operation_id[-9:]


@wrong("0.1", EACH_ITS_OWN, "old-task-1/refund")
def its_last_thirteen_signs(operation_id, attempt):
    return operation_id[-13:]
