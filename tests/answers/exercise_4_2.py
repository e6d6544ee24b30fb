"""Exercise 4.2: what the database says after a crash."""

from answers import right, wrong

TRUE = {
    "start": "queued: pending",
    "claim": "running: pending",
    "intend": "running: in doubt",
    "send": "running: in doubt",
    "checkpoint": "running: done",
    "succeed": "succeeded: done",
}
FIRST = "not passed."


@right("4.2")
def as_a_dict():
    return dict(TRUE)


@right("4.2")
def point_by_point():
    found = dict.fromkeys(("intend", "send"), "running: in doubt")
    found["start"], found["claim"] = "Queued: pending", "running:  pending"
    return found | {"checkpoint": "running: done", "succeed": "succeeded: done"}


@wrong("4.2", FIRST, "Behind send that is not ")
def the_database_knows_what_was_sent():
    return TRUE | {"send": "running: done"}


@wrong("4.2", FIRST, "Behind intend that is not ")
def an_intent_is_nothing_yet():
    return TRUE | {"intend": "running: pending"}


@wrong("4.2", FIRST, "Behind intend that is not ")
def an_intent_is_as_good_as_done():
    return TRUE | {"intend": "running: done", "send": "running: done"}


@wrong("4.2", FIRST, "Behind claim that is not ")
def a_crash_gives_the_task_back():
    return dict.fromkeys(TRUE, "queued: pending") | {"succeed": "succeeded: done"}


@wrong("4.2", FIRST, "Behind claim that is not ")
def a_crash_fails_the_task():
    return TRUE | dict.fromkeys(("claim", "intend", "send"), "failed: pending")


@wrong("4.2", FIRST, "Behind checkpoint that is not ")
def a_result_ends_the_task():
    return TRUE | {"checkpoint": "succeeded: done"}


@wrong("4.2", FIRST, "Behind intend that is not ")
def in_doubt_shows_in_the_state_at_once():
    return TRUE | {"intend": "uncertain: in doubt", "send": "uncertain: in doubt"}


@wrong("4.2", FIRST, "Behind start that is not ")
def running_from_the_start():
    return TRUE | {"start": "running: pending"}


@wrong("4.2", "with the keys start, claim, intend, send, checkpoint, succeed; found: keys claim, start.")
def half_of_it():
    return {gap: TRUE[gap] for gap in ("start", "claim")}


@wrong("4.2", "It returned None (is a return missing?).")
def nothing():
    print(TRUE)


@wrong("4.2", "found: list.")
def a_list():
    return list(TRUE.values())


@wrong("4.2", "It raised NameError: name 'queued' is not defined.")
def quotes_forgotten():
    return {"start": queued}  # noqa: F821


@right("4.2")
def written_in_another_way():
    return {gap: told.upper().replace(": ", ":").replace(" ", "_") for gap, told in as_a_dict().items()}


@wrong("4.2", 'Of start it says something of type tuple; text such as "queued: pending" is wanted.')
def pairs():
    return dict.fromkeys(("start", "claim", "intend", "send", "checkpoint", "succeed"), ("queued", "pending"))
