"""Exercise 1.2: the model's context from the rows."""

from answers import right, wrong

ENDED = ("succeeded", "failed", "cancelled", "compensated")


def system(task):
    return {"role": "system", "text": f"Carry out {task['kind']}, {task['id']}, by these facts."}


def fact(one):
    known = f"is done, reference {one['result_ref']}" if one["status"] == "done" else "has an unknown outcome"
    return {"role": "tool", "text": f"{one['name']} {known}."}


def user(text):
    return {"role": "user", "text": text}


def known(operations):
    found = [one for one in operations if one["status"] == "done" or one["in_doubt"]]
    return sorted(found, key=lambda one: one["position"])


def next_one(task, operations):
    pending = sorted((one for one in operations if one["status"] == "pending"), key=lambda one: one["position"])
    if task["state"] == "awaiting_confirmation" or any(one["in_doubt"] for one in operations):
        return "Wait: a doubt is being settled."
    if task["state"] in ENDED or not pending:
        return "Nothing is left to do."
    return "Stop: a cancel was requested." if task["cancel_requested"] else f"Next: {pending[0]['name']}"


@right("1.2")
def three_parts(task, operations):
    facts = [fact(one) for one in known(operations)]
    return [system(task), *facts, user(next_one(task, operations))]


@right("1.2")
def step_by_step(task, operations):
    messages, upcoming, doubt = [system(task)], None, task["state"] == "awaiting_confirmation"
    for one in sorted(operations, key=lambda row: row["position"]):
        if one["status"] == "done":
            messages.append({"role": "tool", "text": f"{one['name']}: {one['result_ref']}"})
        elif one["in_doubt"]:
            doubt = True
            messages.append({"role": "tool", "text": f"{one['name']}: unknown"})
        elif upcoming is None:
            upcoming = one["name"]
    if doubt:
        last = "Wait"
    elif task["state"] in ENDED or upcoming is None:
        last = "Nothing"
    else:
        last = "Stop" if task["cancel_requested"] else f"Next: {upcoming}."
    return [*messages, user(last)]


@wrong("1.2", "The law that broke, no_second_effect:", "the model calls refund, which is in doubt")
def what_is_in_doubt_is_called_again(task, operations):
    pending = sorted((one for one in operations if one["status"] == "pending"), key=lambda one: one["position"])
    if task["state"] in ENDED or not pending:
        return [system(task), *map(fact, known(operations)), user("Nothing")]
    last = "Stop" if task["cancel_requested"] else f"Next: {pending[0]['name']}"
    return [system(task), *map(fact, known(operations)), user(last)]


@wrong("1.2", "The law that broke, no_second_effect:", "the model calls refund, which is in doubt")
def always_the_first(task, operations):
    first = min(operations, key=lambda one: one["position"])
    return [system(task), *map(fact, known(operations)), user(f"Next: {first['name']}")]


@wrong("1.2", "The law that broke, says_what_is_next:", "'Next: refund' is what is next")
def in_the_order_of_the_rows(task, operations):
    pending = [one for one in operations if one["status"] == "pending"]
    last = next_one(task, operations)
    if last.startswith("Next"):
        last = f"Next: {pending[0]['name']}"
    return [system(task), *map(fact, known(operations)), user(last)]


@wrong("1.2", "The law that broke, says_what_is_next:", "'Stop' is what is next")
def a_cancel_is_overlooked(task, operations):
    return [system(task), *map(fact, known(operations)), user(next_one(task | {"cancel_requested": 0}, operations))]


@wrong("1.2", "The law that broke, says_what_is_next:", "'Nothing' is what is next")
def goes_on_after_the_end(task, operations):
    return [system(task), *map(fact, known(operations)), user(next_one(task | {"state": "running"}, operations))]


@wrong("1.2", "The law that broke, says_what_is_next:", "'Wait' is what is next")
def skips_what_is_in_doubt(task, operations):
    rows = [one for one in operations if not one["in_doubt"]]
    return [system(task), *map(fact, known(operations)), user(next_one(task, rows))]


@wrong("1.2", "The law that broke, tells_the_facts:", "does not say payments-1")
def without_the_reference(task, operations):
    facts = [{"role": "tool", "text": f"{one['name']} is done or unknown"} for one in known(operations)]
    return [system(task), *facts, user(next_one(task, operations))]


@wrong("1.2", "The law that broke, tells_the_facts:")
def every_operation_told(task, operations):
    facts = [fact(one) for one in sorted(operations, key=lambda one: one["position"])]
    return [system(task), *facts, user(next_one(task, operations))]


@wrong("1.2", "The law that broke, tells_the_facts:")
def nothing_is_told(task, operations):
    return [system(task), user(next_one(task, operations))]


@wrong("1.2", "The law that broke, tells_the_facts:", "does not say unknown")
def a_doubt_passes_for_a_failure(task, operations):
    facts = [
        {"role": "tool", "text": f"{one['name']} failed"} if one["in_doubt"] else fact(one) for one in known(operations)
    ]
    return [system(task), *facts, user(next_one(task, operations))]


@wrong("1.2", "The law that broke, names_the_task:")
def which_task_is_not_said(task, operations):
    facts = [fact(one) for one in known(operations)]
    return [{"role": "system", "text": "Go on."}, *facts, user(next_one(task, operations))]


SEEN: list[dict] = []


@wrong("1.2", "The law that broke, tells_the_facts:")
def a_transcript_that_grows(task, operations):
    SEEN.extend(fact(one) for one in known(operations))
    return [system(task), *SEEN, user(next_one(task, operations))]


@wrong("1.2", "returned an object of type str, where a list is wanted.")
def one_text(task, operations):
    return f"{task['id']}: {next_one(task, operations)}"


@wrong("1.2", "The law that broke, only_from_the_rows:")
def facts_in_the_order_of_hashes(task, operations):
    salt = hash("a string that hashes differently in every process")
    return [
        system(task) | {"text": f"{task['id']} {salt}"},
        *map(fact, known(operations)),
        user(next_one(task, operations)),
    ]


@right("1.2")
def says_that_it_must_not_be_called_again(task, operations):
    facts = [fact(one) for one in known(operations)]
    for one in facts:
        if "unknown" in one["text"]:
            one["text"] += " It may have failed or not: do not call it again; nobody must retry it."
    return [system(task), *facts, user(next_one(task, operations))]


@wrong("1.2", "The law that broke, says_what_is_next:", "'Wait' is what is next", "a person is asked to approve")
def waits_for_doubts_alone(task, operations):
    if task["state"] == "awaiting_confirmation" and not any(one["in_doubt"] for one in operations):
        return [system(task), *map(fact, known(operations)), user(next_one(task | {"state": "queued"}, operations))]
    return three_parts(task, operations)


@wrong("1.2", "The law that broke, says_what_is_next:", "'Nothing' is what is next", "after the task failed")
def a_failed_task_goes_on(task, operations):
    state = "running" if task["state"] == "failed" else task["state"]
    return [system(task), *map(fact, known(operations)), user(next_one(task | {"state": state}, operations))]


@wrong("1.2", "The law that broke, no_second_effect:", "the model calls refund, which is in doubt")
def tells_to_call_what_is_in_doubt_again(task, operations):
    facts = [fact(one) for one in known(operations)]
    for one in facts:
        if "unknown" in one["text"]:
            one["text"] = one["text"].split()[0] + " failed for unknown reasons, call it again."
    return [system(task), *facts, user(next_one(task, operations))]


def last_in_order(task, operations, *order):
    """The last message by rules in an order of its own."""
    pending = sorted((one for one in operations if one["status"] == "pending"), key=lambda one: one["position"])
    fits = {
        "Wait": task["state"] == "awaiting_confirmation" or any(one["in_doubt"] for one in operations),
        "Nothing": task["state"] in ENDED or not pending,
        "Stop": task["cancel_requested"],
    }
    return next((word for word in order if fits[word]), f"Next: {pending[0]['name'] if pending else ''}")


def in_order(task, operations, *order):
    return [system(task), *map(fact, known(operations)), user(last_in_order(task, operations, *order))]


@right("1.2")
def in_the_order_asked_for(task, operations):
    return in_order(task, operations, "Wait", "Nothing", "Stop")


@right("1.2")
def unknown_with_a_capital(task, operations):
    facts = [fact(one) for one in known(operations)]
    facts = [one | {"text": one["text"].replace("an unknown outcome", "OUTCOME: Unknown")} for one in facts]
    return [system(task), *facts, user(next_one(task, operations))]


@wrong("1.2", "The law that broke, says_what_is_next:", "'Nothing' is what is next", "after the task was cancelled")
def stop_before_all_else(task, operations):
    return in_order(task, operations, "Stop", "Wait", "Nothing")


@wrong("1.2", "The law that broke, says_what_is_next:", "'Nothing' is what is next", "after the task was cancelled")
def stop_before_nothing(task, operations):
    return in_order(task, operations, "Wait", "Stop", "Nothing")


@wrong("1.2", "The law that broke, says_what_is_next:", "'Nothing' is what is next", "when all is done, and a cancel")
def stop_where_all_is_done(task, operations):
    if task["state"] in ENDED:
        return in_order(task, operations, "Wait", "Nothing")
    return in_order(task, operations, "Wait", "Stop", "Nothing")


@wrong("1.2", "The law that broke, says_what_is_next:", "'Wait' is what is next", "while the refund is in doubt, and a")
def stop_where_something_is_in_doubt(task, operations):
    if any(one["in_doubt"] for one in operations):
        return in_order(task, operations, "Stop", "Wait")
    return in_order(task, operations, "Wait", "Nothing", "Stop")


@wrong(
    "1.2", "The law that broke, says_what_is_next:", "'Wait' is what is next", "while a person is asked, and a cancel"
)
def stop_while_a_person_is_asked(task, operations):
    if task["state"] == "awaiting_confirmation":
        return in_order(task, operations, "Stop", "Wait")
    return in_order(task, operations, "Wait", "Nothing", "Stop")


@wrong("1.2", "The law that broke, names_the_task:", "before another task begins", "for task-1")
def always_the_same_task(task, operations):
    first, *others = three_parts(task, operations)
    return [first | {"text": "These are the facts for task-1."}, *others]
