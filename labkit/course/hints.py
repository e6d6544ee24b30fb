"""Hints that several exercises give, by the kind of mistake."""

from __future__ import annotations

from collections.abc import Mapping

BOTH_YES = "Two workers read the same row before either wrote. Put the condition into the UPDATE, not before it."
NOT_SAID = "Return what the UPDATE did: its affected-row count (-1 tells nothing). And is the change committed?"
YES_OR_NO = "Return the affected-row count == 1, whatever came of it; a path without a `return` returns None."
LEFT_OPEN = "Every path out of your function must end its transaction, also where nothing was changed: use `with db:`."
LOOKED = "looked, and then wrote"
"""Words by which a hint can ask for a worker that read right before it wrote; see `Setting`."""

READ_THEN_WROTE = (
    "It has looked, and then written: in between somebody else could. `with db:` begins with the first write, not "
    "with a SELECT before it. Let the UPDATE itself ask."
)
BREAKS = "The last words say what was wrong, and in which line. Names of tables and columns stand in labkit/schema.sql."
THIS_CALL = "Count what this one UPDATE has changed, not what was changed before."
GUARDS = "Which columns must the WHERE clause compare, beside the id?"
FITS = "Every argument says what is wanted: compare each in the WHERE clause, and no constant in its place."
TABLES = "A CHECK in schema.sql says: a task has a lease_expires_at exactly where it is running or uncertain."
WHOSE = "Whose row is it? WHERE id = ?, with the task_id that your function was called with."
NEW_TOKEN = "Whoever acquires a task gets a token of its own: lease_token = lease_token + 1."
TOKEN = "Somebody else may hold the task by now. What do you have that only the present holder has?"
VERSION = "Others notice a change by its version."
NOTHING_ELSE = "What others have put into the row is still true: leave it as it is."

EVERYWHERE: Mapping[str, str] = {
    "nothing_is_deleted": "A row that is gone tells nobody anything. What becomes of it is a change of its state.",
    "only_edges_of_the_table": "Which state leads to which? The table of transitions says so: labkit/states.py.",
    "effect_at_its_own_remote": "Every operation says where it belongs: remotes[operation.remote].",
    "effect_as_planned": "What is to be sent is on record already: operation.request, as it stands.",
}
"""By the name of the law, where an exercise has nothing of its own to say."""

NAMES = "Names of tables and columns stand in labkit/schema.sql. In SQL nothing is NULL, and text has single quotes."
SQL_TEXT = "Look at the text of the SQL itself. Is an f before its quotes missing, a comma, a bracket?"
VALUES = "As many values as question marks, all in one tuple; a single one is `(task_id,)`."
FELL = "The last words say what was wrong. A call that is refused returns; it raises nothing."
ERRORS: Mapping[str, str] = {
    "database is locked": "A transaction that reads first may find the database locked later: begin with the UPDATE.",
    "statements in progress": "Fetch every row of a SELECT or of a RETURNING before you commit.",
    "no such ": NAMES,
    "has no column": NAMES,
    "unrecognized token": SQL_TEXT,
    "syntax error": SQL_TEXT,
    "incomplete input": SQL_TEXT,
    "binding": VALUES,
    "NoneType": "Return None where it is not to be had: `fetchone()` may give None, too.",
    "NOT NULL constraint": "schema.sql wants a value in that column. What have you written into it?",
    "lease_expires_at IS NOT NULL": TABLES,
}
"""Where to look, by words of an error of Python or SQLite."""


def of_errors() -> Mapping[str, str]:
    """Hints for calls that end with an error, as a `Setting` wants them."""
    laws = ("raises_nothing", "no_worker_breaks", "keeps_to_the_tables")
    closer = {f"{law}: {words}": hint for law in laws for words, hint in ERRORS.items()}
    return {**closer, "raises_nothing": FELL, "no_worker_breaks": FELL}
