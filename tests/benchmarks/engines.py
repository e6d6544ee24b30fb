"""Durable-execution engines on SQLite, on the same task: so many steps, each result on record before the next."""

import sqlite3
from itertools import count, pairwise
from pathlib import Path
from typing import Any, TypedDict

from contenders import settings_of


class Dbos:
    """One workflow; its system database is put into WAL mode before it opens it."""

    steps = 1
    wal = True

    def __init__(self, folder: Path, number: int) -> None:
        from dbos import DBOS

        self.path = folder / "dbos.sqlite"
        self.db = sqlite3.connect(self.path, isolation_level=None, timeout=30)
        if self.wal:
            self.db.execute("PRAGMA journal_mode = WAL")
        DBOS(
            config={
                "name": "bench",
                "system_database_url": f"sqlite:///{self.path}",
                "executor_id": f"process-{number}",
                "log_level": "ERROR",
            }
        )
        step = DBOS.step()(send)

        @DBOS.workflow()
        def refund(steps: int) -> int:
            return sum(step(number) for number in range(steps))

        DBOS.launch()
        self.workflow = refund

    def ready(self, cycles: int) -> None:
        pass

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            self.workflow(self.steps)

    def durability(self) -> str:
        # It leaves `synchronous` as SQLite was built, and so does this connection.
        return settings_of(self.db)


def send(number: int) -> int:
    return number


class DbosThreeSteps(Dbos):
    """The same with three steps."""

    steps = 3


class DbosRollback(Dbos):
    """One step, the file as DBOS itself makes it."""

    wal = False


class Progress(TypedDict):
    """What a graph carries from node to node."""

    sent: int


class LangGraph:
    """A chain of nodes; every checkpoint is written before the next node starts."""

    nodes = 1

    def __init__(self, folder: Path, number: int) -> None:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph

        self.db = sqlite3.connect(folder / "graph.sqlite", check_same_thread=False, timeout=30)
        saver = SqliteSaver(self.db)
        saver.setup()
        self.db.execute("PRAGMA synchronous = FULL")
        graph = StateGraph(Progress)
        names = [START, *(f"refund-{step}" for step in range(1, self.nodes + 1)), END]
        for name in names[1:-1]:
            graph.add_node(name, _advance)
        for first, second in pairwise(names):
            graph.add_edge(first, second)
        self.graph: Any = graph.compile(checkpointer=saver)
        self.threads = (f"thread-{number}-{n}" for n in count(1))

    def ready(self, cycles: int) -> None:
        pass

    def run(self, cycles: int) -> None:
        for _ in range(cycles):
            config = {"configurable": {"thread_id": next(self.threads)}}
            self.graph.invoke({"sent": 0}, config, durability="sync")

    def durability(self) -> str:
        return settings_of(self.db)


def _advance(progress: Progress) -> Progress:
    return {"sent": progress["sent"] + 1}


class LangGraphThreeNodes(LangGraph):
    """The same with three nodes."""

    nodes = 3
