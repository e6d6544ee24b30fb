"""Exercise 7.2: what a retry loop forgets."""

from answers import right, wrong

ALL = ["attempts", "first_attempt_at", "next_run_at", "cancel_requested"]


@right("7.2")
def as_a_list():
    return ALL


@right("7.2")
def as_a_set():
    return {"cancel_requested", "next_run_at", *ALL}


@wrong("7.2", "The law that broke, waits:")
def nothing_at_all():
    return []


@wrong("7.2", "The law that broke, within_attempts:")
def all_but_the_attempts():
    return [name for name in ALL if name != "attempts"]


@wrong("7.2", "The law that broke, within_time:")
def all_but_the_beginning():
    return [name for name in ALL if name != "first_attempt_at"]


@wrong("7.2", "The law that broke, waits:")
def all_but_the_wait():
    return [name for name in ALL if name != "next_run_at"]


@wrong("7.2", "The law that broke, cancel_holds:")
def all_but_the_cancel():
    return [name for name in ALL if name != "cancel_requested"]


@wrong("7.2", "The law that broke, waits:")
def the_attempts_alone():
    return ["attempts"]


@wrong("7.2", "The law that broke, only_what_it_forgets:", "One name too many, lease_token")
def the_token_too():
    return [*ALL, "lease_token"]


@wrong("7.2", "The law that broke, only_what_it_forgets:", "One name too many, lease_token")
def everything_there_is():
    return [*ALL, "state", "lease_token", "result_ref"]


@wrong("7.2", "It names stop, which is none of the columns to choose from: attempts,")
def the_name_of_the_variable():
    return [*ALL[:3], "stop"]


@wrong("7.2", "It returned an object of type str, where a list is wanted.")
def one_text():
    return ", ".join(ALL)


@wrong("7.2", "It returned None (is a return missing?).")
def return_forgotten():
    list(ALL)


@right("7.2")
def as_the_keys_of_a_dict():
    return {"Attempts": int, "first_attempt_at": float, "next_run_at": float, "cancel_requested ": bool}.keys()
