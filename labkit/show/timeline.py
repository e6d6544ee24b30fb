"""One run as a picture: time goes down, and the three views stand side by side.

A view is shown where it changes, so what one knows and another does not is seen at a glance. The text twin needs no
matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.records import Task
from labkit.runs import Moment, Run, database_view
from labkit.show.picture import Picture
from labkit.show.tables import TextTable
from labkit.states import ENDED_STATES, State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIEWS = ("what the worker believes", "what the database says", "what the remote ledger shows")
TEXT_WIDTH = 112
DITTO = '"'
WRONG = "✗ "

Ledger = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Row:
    """One moment as shown.

    Args:
        number: as in the run; empty in the last row, which shows how task and ledgers end.
        clock: the time, where it has changed.
        views: the lines of each view, None where it says what it said before. A ledger line that must not be
            starts with `WRONG`.
        state: what the database calls the task's state.
        switched: another worker than in the row before.
    """

    number: str
    clock: str
    worker: str
    point: str
    fault: str
    views: tuple[tuple[str, ...] | None, ...]
    state: State | None
    switched: bool = False

    @property
    def died(self) -> bool:
        """Whether the worker's memory ends here."""
        return "crash" in self.fault


@dataclass(frozen=True)
class Timeline(Picture):
    """A run to look at: `figure()` draws it, `text` is its twin, `alt` a sentence for who cannot see it.

    Args:
        run: the run.
        dark: for a dark page.
        search: what the search came to that has found it, in a sentence; empty for none.
        broke: the law that it breaks, and how.
    """

    run: Run
    dark: bool = False
    search: str = ""
    broke: str = ""

    @property
    def text(self) -> str:
        """The same as an aligned table; a view that says what it said before is a ditto mark."""
        rows = tuple(_twin(row) for row in rows_of(self.run))
        broke = f"broken: {self.broke}" if self.broke else ""
        lines = (self.search, self.run.title, f"verdict: {self.run.verdict}", broke)
        return str(TextTable(("#", "who, where", *VIEWS), rows, "\n".join(filter(None, lines)), width=TEXT_WIDTH))

    @property
    def alt(self) -> str:
        """What the picture shows, in a few sentences."""
        faults = [f"{moment.fault} at moment {moment.number}" for moment in self.run.moments if moment.fault]
        seen = f" Faults: {', '.join(faults)}." if faults else ""
        moments = f"{len(self.run.moments)} moments in three views"
        broke = f" Broken: {self.broke}." if self.broke else ""
        return f"Timeline: {self.run.title}. {moments}.{seen} Verdict: {self.run.verdict}.{broke}"

    def figure(self) -> Figure:
        """Draw the picture on a figure of its own; no pyplot state is touched."""
        from labkit.show.timeline_figure import draw_run

        return draw_run(self.run, self.dark, self.search, self.broke)


def timeline(run: Run, dark: bool = False) -> Timeline:
    """Show one run in its three views.

    Args:
        run: the moments in order, the last task row, the effects at the remotes, the verdict.
        dark: for a dark page.
    """
    return Timeline(run, dark)


def rows_of(run: Run) -> tuple[Row, ...]:
    """The rows of a timeline: one a moment, and one for how it all ended, after everything late has arrived."""
    rows: list[Row] = []
    before: Moment | None = None
    booked: tuple[str, ...] = ()
    for moment in run.moments:
        switched = before is not None and before.worker != moment.worker
        remembers = bool(rows) and not switched and not rows[-1].died
        same = remembers and before is not None and before.believes == moment.believes
        ledger = _ledger_lines(moment.ledger, run.task.id)
        seen = before.database if before else ""
        views = (
            None if same else (moment.believes,),
            _database_lines(moment.database, seen),
            None if ledger == booked else ledger,
        )
        clock = "" if moment.at is None or (before and before.at == moment.at) else f"{moment.at:g} s"
        where = (str(moment.number), clock, moment.worker, moment.point, moment.fault)
        rows.append(Row(*where, views, _state(moment.database), switched))
        before, booked = moment, ledger
    database = _database_lines(database_view(run.task), before.database if before else "")
    ledger = _ledger_lines(run.effects, run.task.id, run.task)
    ended = ((), database, None if ledger == booked else ledger)
    return (*rows, Row("", "", "the end", "", "", ended, run.task.state, switched=True))


def _database_lines(database: str, before: str) -> tuple[str, ...] | None:
    """State and version, then the operations that have changed since `before`; None where nothing has."""
    if database == before:
        return None
    head, _, parts = database.partition(": ")
    known = before.partition(": ")[2].split(", ")
    return (head, *(part for part in parts.split(", ") if part and part not in known))


def _ledger_lines(ledger: Ledger, task_id: str, final: Task | None = None) -> tuple[str, ...]:
    """One line an effect. Where the `final` task has ended, its record must agree with the ledger."""
    ended = final is not None and final.state in ENDED_STATES
    record = {one.id: one.standing for one in final.operations} if final and ended else {}
    lines = []
    counts = {name: 0 for name, stands in record.items() if stands == "done"} | dict(ledger)
    for name, count in sorted(counts.items()):
        stands = record.get(name, "nothing")
        agrees = not ended or (stands == "done") == (count > 0)
        if count or not agrees:
            contrary = "" if agrees else f", on record: {stands}"
            sign = WRONG if count > 1 or not agrees else ""
            lines.append(f"{sign}{name.removeprefix(f'{task_id}/')} {count}×{contrary}")
    return tuple(lines) or ("nothing yet",)


def _state(database: str) -> State | None:
    word = database.partition(" ")[0]
    return State(word) if word in set(State) else None


def _twin(row: Row) -> tuple[str, ...]:
    where = [f"{row.worker} at {row.clock}" if row.clock else row.worker, row.point]
    where += [f"!! {row.fault}"] if row.fault else []
    views = [DITTO if lines is None else "\n".join(map(_plain, lines)) for lines in row.views]
    return (row.number, "\n".join(filter(None, where)), *views)


def _plain(line: str) -> str:
    wrong = "  <- WRONG" if line.startswith(WRONG) else ""
    return line.removeprefix(WRONG).replace("×", "x") + wrong
