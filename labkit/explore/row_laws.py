"""The laws for workers written in plain SQL, read off the log of their commits; see `labkit.explore.laws`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby

from labkit.errors import ChangeRefused, RemoteError
from labkit.explore import laws
from labkit.explore.bench import BenchRun, acquires
from labkit.explore.journal import WIRE, Applied, Changed, Logged, Row, Said
from labkit.explore.sqlworld import SqlLaw, SqlRun
from labkit.states import FINAL_STATES, HELD_STATES, TRANSITIONS

_EDGES = frozenset((edge.source.value, edge.target.value) for edge in TRANSITIONS)
_CANCEL = "cancel_requested"
_KEPT = frozenset({"tasks", "operations", "attempts"})
_UNVERSIONED = frozenset({"lease_expires_at", _CANCEL})


def changes_of(run: SqlRun, table: str) -> Iterator[Changed]:
    """The rows of a table that somebody has changed, in order."""
    return (one for one in run.log if isinstance(one, Changed) and one.table == table and one.commit)


def rows_of(run: SqlRun, table: str) -> list[Row]:
    """The rows of a table as they were at any time."""
    return [one.after for one in run.log if isinstance(one, Changed) and one.table == table and one.after]


def moves_of(run: SqlRun) -> Iterator[tuple[Changed, Row, Row]]:
    """The changes of tasks, each with the row before and after."""
    return ((one, one.before, one.after) for one in changes_of(run, "tasks") if one.before and one.after)


def one_says_yes(run: SqlRun) -> str:
    """Of all workers that want the task, one is told yes."""
    told = [name for name, result in run.results.items() if result]
    if len(told) > 1:
        return f"{' and '.join(told)} were all told yes"
    return "nobody was told yes" if not told and not run.dead and not run.errors else ""


def says_what_it_did(run: SqlRun) -> str:
    """A worker says yes if it has committed a change, and no if it has not."""
    changed = {one.worker for one in run.log if isinstance(one, Changed)}
    for name, result in run.results.items():
        if bool(result) != (name in changed):
            said, did = "yes" if result else "no", "something" if name in changed else "nothing"
            return f"{name} says {said}, and has changed {did}"
    return ""


def tells_its_token(run: SqlRun) -> str:
    """Whoever acquires a task is told the token that stands on record."""
    told = {change.worker: after["lease_token"] for change, _, after in moves_of(run) if acquires(change)}
    for name, token in told.items():
        if name in run.results and run.results[name] != token:
            return f"{name} acquired the task with token {token}, and was told {run.results[name]}"
    return ""


def result_and_step_in_one_commit(run: SqlRun) -> str:
    """After every commit the step of a task is the number of its operations that have a result."""
    steps, done = dict[str, int](), defaultdict[str, set[str]](set)
    changes = (one for one in run.log if isinstance(one, Changed))
    for _, commit in groupby(changes, lambda change: change.commit):
        for one in commit:
            if one.table == "tasks" and one.after is not None:
                steps[one.after["id"]] = one.after["step"]
            elif one.table == "operations" and one.after is not None and one.after["status"] == "done":
                done[one.after["task_id"]].add(one.after["operation_id"])
        for task_id, step in steps.items():
            if step != len(done[task_id]):
                return f"{task_id} was at step {step} with {_results(len(done[task_id]))}, if only for a while"
    return ""


def no_worker_breaks(run: SqlRun) -> str:
    """A worker ends by itself, by a refused change or by a remote's error; anything else is a bug of the program."""
    for name, error in run.errors.items():
        if not isinstance(error, ChangeRefused | RemoteError):
            return f"{name} ended with {type(error).__name__}: {error}"
    return ""


def decides_by_what_it_read(run: SqlRun) -> str:
    """Whoever says which version of the task it has read changes that version, or nothing."""
    read: dict[str, object] = {}
    for one in run.log:
        if isinstance(one, Said) and one.what == "read":
            read[one.worker] = one.value
        elif isinstance(one, Changed) and one.table == "tasks" and one.before is not None and one.worker in read:
            version = one.before["version"]
            if version != read[one.worker]:
                return f"{one.worker} has read version {read[one.worker]} and changed version {version}"
            read[one.worker] = version + 1
    return ""


def every_change_has_its_version(run: SqlRun) -> str:
    """The version grows by one with every change that others must notice."""
    for change, before, after in moves_of(run):
        columns = {name for name in after if change.becomes(name)}
        if not columns <= _UNVERSIONED and after["version"] != before["version"] + 1:
            versions = f"its version went from {before['version']} to {after['version']}"
            return f"{change.worker} changed {after['id']}, and {versions}"
    return ""


def final_is_final(run: SqlRun) -> str:
    """A final state never changes."""
    for change, before, after in moves_of(run):
        if before["state"] in FINAL_STATES and change.becomes("state"):
            return f"{change.worker} made {after['id']} {after['state']}, which was {before['state']}"
    return ""


def only_edges_of_the_table(run: SqlRun) -> str:
    """A state changes only along an edge of the table of transitions."""
    for change, before, after in moves_of(run):
        edge = (before["state"], after["state"])
        if change.becomes("state") and edge not in _EDGES:
            return f"{change.worker} took {after['id']} from {edge[0]} to {edge[1]}"
    return ""


def every_holder_has_a_new_token(run: SqlRun) -> str:
    """Whoever acquires a task does so with a new token, larger than any before."""
    for change, before, after in moves_of(run):
        if acquires(change) and after["lease_token"] <= before["lease_token"]:
            return f"{change.worker} took {after['id']} with token {after['lease_token']}, which is not a new one"
    return ""


def only_the_current_token(run: SqlRun) -> str:
    """Only the holder changes a task that is held; others acquire it when its lease has run out."""
    holders: dict[str, str] = {}
    for change, before, after in moves_of(run):
        holder, held = holders.get(after["id"], ""), before["state"] in HELD_STATES
        if acquires(change):
            if held and before["lease_expires_at"] > change.at:
                whose = f"which {holder or 'somebody'} held until {before['lease_expires_at']:g}"
                return f"{change.worker} took {after['id']}, {whose}"
            holders[after["id"]] = change.worker
        elif held and change.worker != holder and {name for name in after if change.becomes(name)} != {_CANCEL}:
            return f"{change.worker} changed {after['id']} while {holder} held token {before['lease_token']}"
    return ""


def no_new_intent_after_a_cancel(run: SqlRun) -> str:
    """Once a cancel is requested, no operation is begun: by its first attempt on record, or by sending it without."""
    requested: set[str] = set()
    begun: set[str] = set()
    for one in run.log:
        row = one.after if isinstance(one, Changed) and one.table == "tasks" else None
        if row is not None and row["cancel_requested"] and row["direction"] == "do":
            requested.add(row["id"])
        operation_id = _begun_by(one)
        task_id, _, name = operation_id.partition("/")
        if task_id in requested and operation_id not in begun and not name.endswith("/undo"):
            return f"{operation_id} was begun after the cancel"
        begun.add(operation_id)
    return ""


def _begun_by(one: Logged) -> str:
    """The operation that this begins, if it was not begun before. What arrives late was sent some time before that."""
    if isinstance(one, Changed) and one.table == "attempts" and one.after is not None:
        return str(one.after["operation_id"])
    return one.operation_id if isinstance(one, Applied) and one.worker != WIRE else ""


def nothing_is_deleted(run: SqlRun) -> str:
    """Tasks, operations and attempts stay on record, whatever becomes of them."""
    for one in run.log:
        if isinstance(one, Changed) and one.table in _KEPT and one.before is not None and one.after is None:
            name = one.before["id" if one.table == "tasks" else "operation_id"]
            return f"{one.worker} deleted {name} from {one.table}"
    return ""


def undone_in_order(run: SqlRun) -> str:
    """Operations are undone last done first, and only those that were done; what cannot be undone is passed over."""
    done: list[str] = list(run.before) if isinstance(run, BenchRun) else []
    never = _never_undone(run)
    for one in run.log:
        if not isinstance(one, Applied):
            continue
        name, undoes, _ = one.operation_id.partition("/undo")
        if not undoes:
            done.append(name)
        elif name not in done:
            return f"{name} was undone, and had never been done"
        else:
            behind = done[done.index(name) + 1 :]
            if not never.issuperset(behind):
                return f"{name} was undone before what was done after it"
            done.remove(name)
    return ""


def _never_undone(run: SqlRun) -> set[str]:
    """The operations that cannot be undone: there is no request for it, and nobody has planned or done it."""
    undone = {one.operation_id for one in run.log if isinstance(one, Applied)}
    rows = rows_of(run, "operations")
    undone |= {row["operation_id"] for row in rows if row["status"] != "cannot_be_undone"}
    return {
        row["operation_id"]
        for row in rows
        if row["undo_request"] is None and f"{row['operation_id']}/undo" not in undone
    }


def settled_in_the_end(run: SqlRun) -> str:
    """What can be settled is settled: after recovery no task is left queued, running or uncertain."""
    query = "SELECT id, state FROM tasks WHERE state IN ('queued', 'running', 'uncertain') ORDER BY id"
    for task_id, state in run.db.execute(query):
        return f"{task_id} is left {state}"
    return ""


def _of_each_record(law: laws.Law) -> SqlLaw:
    """A law of the task store, for each task of a run of plain SQL that keeps the store's tables."""

    def checked(run: SqlRun) -> str:
        records = run.records.values() if isinstance(run, BenchRun) else ()
        return next(filter(None, map(law, records)), "")

    checked.__name__, checked.__doc__ = law.__name__, law.__doc__
    return checked


no_second_effect = _of_each_record(laws.no_second_effect)
success_means_done = _of_each_record(laws.success_means_done)
record_and_ledger_agree = _of_each_record(laws.record_and_ledger_agree)

effect_at_its_own_remote = _of_each_record(laws.effect_at_its_own_remote)

CLAIM_LAWS: tuple[SqlLaw, ...] = (
    says_what_it_did,
    one_says_yes,
    nothing_is_deleted,
    only_edges_of_the_table,
    no_worker_breaks,
)
"""For functions that try something once, and say whether it was granted."""

WORKER_LAWS: tuple[SqlLaw, ...] = (
    no_second_effect,
    effect_at_its_own_remote,
    undone_in_order,
    success_means_done,
    record_and_ledger_agree,
    nothing_is_deleted,
    final_is_final,
    only_edges_of_the_table,
    only_the_current_token,
    every_holder_has_a_new_token,
    every_change_has_its_version,
    no_new_intent_after_a_cancel,
    no_worker_breaks,  # before what such an error leaves behind
    settled_in_the_end,
)
"""For workers on the lab's tables that are started again until nothing is left to do."""


def named(*chosen: SqlLaw) -> Mapping[str, SqlLaw]:
    """Laws by their names, in this order, as a scenario wants them."""
    return {law.__name__: law for law in chosen}


def _results(count: int) -> str:
    return "1 result" if count == 1 else f"{count} results"
