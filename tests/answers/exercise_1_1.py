"""Exercise 1.1: the edges of a plain task."""

from answers import right, wrong
from labkit import up_to_lesson

EDGES = [
    ("claim", "queued", "running", "version matches; due (next_run_at <= now)"),
    ("ask", "running", "awaiting_confirmation", "the step wants approval"),
    ("answer", "awaiting_confirmation", "queued", "not declined"),
    ("answer", "awaiting_confirmation", "cancelled", "declined or cancel requested (direction do)"),
    ("expire", "awaiting_confirmation", "failed", "approval deadline passed"),
    ("cancel", "queued", "cancelled", "cancel requested (direction do)"),
    ("cancel", "awaiting_confirmation", "cancelled", "cancel requested (direction do)"),
    ("cancel", "running", "cancelled", "cancel requested (direction do); token matches"),
    ("succeed", "running", "succeeded", "every operation has a result"),
    ("fail", "running", "failed", "permission, invalid or budget spent; nothing in doubt"),
]
FOREIGN = "The law that broke, only_edges_of_the_table:"
MISSING = "The law that broke, no_edge_is_missing:"
CONDITION = "The law that broke, conditions_of_the_edge:"


def but(place, *edge):
    return [*EDGES[:place], tuple(edge), *EDGES[place + 1 :]]


@right("1.1")
def one_by_one():
    return EDGES


@right("1.1")
def from_the_table():
    return [
        (edge.event, edge.source, edge.target, edge.condition)
        for edge in up_to_lesson(1)
        if edge.source is not edge.target
    ]


@wrong("1.1", FOREIGN, "fail queued failed")
def fails_before_it_runs():
    return [*EDGES, ("fail", "queued", "failed", "nothing in doubt")]


@wrong("1.1", FOREIGN, "claim failed running: no such edge", "has ended")
def claims_what_has_failed():
    return [*EDGES, ("claim", "failed", "running", "due (next_run_at <= now)")]


@wrong("1.1", FOREIGN, "claim succeeded running")
def runs_again_after_success():
    return [*EDGES, ("claim", "succeeded", "running", "version matches")]


@wrong("1.1", FOREIGN, "answer awaiting_confirmation running: no such edge")
def an_answer_lets_it_run_at_once():
    return but(2, "answer", "awaiting_confirmation", "running", "not declined")


@wrong(
    "1.1",
    FOREIGN,
    "intend running running: an edge of the table, but it stays in its state",
    "Only arrows from one state to another",
)
def what_stays_too():
    return [*EDGES, ("intend", "running", "running", "nothing in doubt")]


@wrong("1.1", MISSING, "cancel awaiting_confirmation cancelled: it is missing")
def nobody_cancels_while_it_waits():
    return EDGES[:6] + EDGES[7:]


@wrong("1.1", MISSING, "expire awaiting_confirmation failed: it is missing")
def an_approval_is_waited_for_for_ever():
    return EDGES[:4] + EDGES[5:]


@wrong("1.1", MISSING, "claim queued running: it is missing")
def nothing_at_all():
    return []


@wrong("1.1", CONDITION, "claim queued running: what sets it apart is missing: due (next_run_at <= now)")
def claims_without_being_due():
    return but(0, "claim", "queued", "running", "version matches")


@wrong("1.1", CONDITION, "fail running failed: it does not ask for: something in doubt")
def fails_what_is_in_doubt():
    return but(9, "fail", "running", "failed", "permission, invalid or budget spent; something in doubt")


@wrong("1.1", CONDITION, "it does not ask for: when it is done")
def words_of_its_own():
    return but(8, "succeed", "running", "succeeded", "when it is done")


@wrong("1.1", "The law that broke, each_edge_once:")
def an_edge_for_each_condition():
    return [*EDGES, ("claim", "queued", "running", "due (next_run_at <= now)")]


@wrong("1.1", "Edge 1 is no tuple of four texts")
def arrows_alone():
    return [edge[:3] for edge in EDGES]


@wrong("1.1", "It returned None (is a return missing?).")
def return_forgotten():
    list(EDGES)


@right("1.1")
def in_capitals_one_by_one():
    for event, source, target, condition in EDGES:
        yield event.upper(), source.replace("_", " ").upper(), target, condition


@wrong("1.1", "It returned an object of type str, where a list is wanted.")
def a_text():
    return "; ".join(" ".join(edge) for edge in EDGES)


@wrong("1.1", FOREIGN, "? queued running: no such edge")
def half_a_letter():
    return [("\ud800", "queued", "running", "due (next_run_at <= now)")]


@wrong("1.1", FOREIGN)
def very_long_names():
    return [("x" * 10_000, "queued", f"running {number}", "") for number in range(100)]


@wrong("1.1", FOREIGN)
def without_an_end():
    while True:
        yield "claim", "queued", "done", ""


@right("1.1")
def with_capitals():
    return but(0, "claim", "queued", "running", "Version matches; Due (next_run_at <= now)")


@wrong("1.1", CONDITION, "claim queued running: the table puts it so: due (next_run_at <= now)", "by semicolons")
def what_stands_in_brackets():
    return but(0, "claim", "queued", "running", "next_run_at <= now")


@wrong("1.1", CONDITION, "claim queued running: the table puts it so: due (next_run_at <= now)")
def in_one_word():
    return but(0, "claim", "queued", "running", "due")


@wrong("1.1", CONDITION, "the table puts it so: permission, invalid or budget spent")
def each_cause_for_itself():
    return but(9, "fail", "running", "failed", "permission; invalid; budget spent")


@wrong("1.1", CONDITION, "the table puts it so: declined or cancel requested (direction do)")
def each_wish_for_itself():
    return but(3, "answer", "awaiting_confirmation", "cancelled", "declined; cancel requested (direction do)")


@wrong("1.1", CONDITION, "join conditions by a semicolon: version matches; due (next_run_at <= now)", "by semicolons")
def joined_by_a_comma():
    return but(0, "claim", "queued", "running", "Version matches, due (next_run_at <= now)")


@wrong("1.1", CONDITION, "join conditions by a semicolon: ", "approval deadline passed", "nothing in doubt")
def joined_by_and():
    return but(4, "expire", "awaiting_confirmation", "failed", "approval deadline passed and nothing in doubt")


@wrong("1.1", "1 edge does not agree", "it is there twice", "Leave one of the two out: they are the same.")
def the_same_edge_twice():
    return [*EDGES, EDGES[0]]
