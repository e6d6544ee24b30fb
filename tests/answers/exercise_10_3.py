"""Exercise 10.3: a law that accepts the right programs and catches the wrong ones."""

from answers import right, wrong

REFUSES = "The law that broke, accepts_the_right:"
SLIPS = "The law that broke, catches_the_wrong:"
ENDED = {"succeeded", "failed", "cancelled", "compensated"}


def doubled(run):
    return any(count > 1 for count in run.effects.values())


def agrees(run):
    return all((status == "done") == (run.effects.get(name, 0) == 1) for name, status in run.operations.items())


def at_rest(run):
    return run.state in ENDED or run.state == "awaiting_confirmation"


@right("10.3")
def three_laws(run):
    return not doubled(run) and at_rest(run) and (run.state not in ENDED or agrees(run))


@right("10.3")
def state_by_state(run):
    if max(run.effects.values(), default=0) > 1:
        return False
    if run.state in ("queued", "running", "uncertain"):
        return False
    if run.state == "awaiting_confirmation":
        return True
    done = {name for name, status in run.operations.items() if status == "done"}
    return done == {name for name, count in run.effects.items() if count}


@wrong("10.3", REFUSES, "Your law saw: state 'cancelled', operations {'task-1/refund': 'pending'}, effects {}.")
def only_success(run):
    return run.state == "succeeded" and not doubled(run)


@wrong("10.3", REFUSES, "nobody answers")
def nobody_may_be_asked(run):
    return run.state in ENDED and not doubled(run) and agrees(run)


@wrong("10.3", REFUSES, "nobody answers")
def record_and_ledger_at_any_time(run):
    return agrees(run) and not doubled(run) and at_rest(run)


@wrong("10.3", REFUSES)
def never_anything(run):
    return False


@wrong(
    "10.3",
    SLIPS,
    "One that sends again without a key slips through",
    "Your law saw: state 'succeeded', operations {'task-1/refund': 'done'}, effects {'task-1/refund': 2}.",
)
def always(run):
    return True


@wrong("10.3", SLIPS, "One that sends again without a key slips through")
def an_effect_is_an_effect(run):
    ended = {name for name, status in run.operations.items() if status == "done"}
    return at_rest(run) and (run.state not in ENDED or ended == {name for name in run.effects if run.effects[name]})


@wrong("10.3", SLIPS, "One that takes what is in doubt for done slips through")
def nothing_twice(run):
    return not doubled(run) and at_rest(run)


@wrong("10.3", SLIPS, "One that never settles a doubt slips through", "A hint: Look at the state")
def whatever_is_left(run):
    return not doubled(run) and (run.state not in ENDED or agrees(run))


@wrong("10.3", SLIPS, "One that takes what is in doubt for done slips through")
def by_the_record_alone(run):
    done = all(status == "done" for status in run.operations.values())
    return at_rest(run) and not doubled(run) and (run.state != "succeeded" or done)


@wrong("10.3", "it returned str, not True or False.")
def in_words(run):
    return "fine" if three_laws(run) else "broken"


@wrong("10.3", "it raised KeyError: 'task-1/refund'.")
def every_operation_has_an_effect(run):
    return run.effects["task-1/refund"] == 1


@right("10.3")
def in_numbers(run):
    return 1 if three_laws(run) else 0


@wrong("10.3", SLIPS, "One that calls a time-out a failure slips through")
def only_what_is_on_record(run):
    kept = all(run.effects.get(name, 0) == 1 for name, status in run.operations.items() if status == "done")
    return not doubled(run) and at_rest(run) and (run.state not in ENDED or kept)


@wrong("10.3", SLIPS, "One that sends once more before it asks slips through")
def twice_is_fine_while_a_person_is_asked(run):
    return at_rest(run) and (run.state not in ENDED or (agrees(run) and not doubled(run)))


@wrong("10.3", SLIPS, "One that leaves alone what was put back slips through")
def queued_is_at_rest(run):
    return not doubled(run) and (at_rest(run) or run.state == "queued") and (run.state not in ENDED or agrees(run))


@wrong("10.3", "it returned None (is a return missing?).")
def return_forgotten(run):
    three_laws(run)
