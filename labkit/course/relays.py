"""Where a relay of exercise 8.2 is tried: messages wait, and their consumer is told of each."""

from __future__ import annotations

from typing import Any

from labkit.course.laws import asked, leaves_nothing_open
from labkit.course.outbox_laws import (
    MESSAGES,
    counts,
    in_order,
    leaves_none_waiting,
    marked,
    none_comes_again,
    none_is_deleted,
    only_the_mark_changes,
)
from labkit.course.rows import OTHER, TASK
from labkit.course.searching import Answer
from labkit.explore.bench import Bench, outbox_due
from labkit.explore.benchworld import BenchScenario
from labkit.explore.message_laws import every_message_is_handed_over, every_message_keeps_its_id
from labkit.explore.row_laws import named, no_worker_breaks
from labkit.explore.scenario import Scenario

MANY = 120
WAITING = "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) VALUES (?, ?, 'told', '{}', ?)"
ANOTHER_INDEX = "DROP INDEX outbox_undelivered; CREATE INDEX outbox_undelivered ON outbox (delivered_at, message_id)"
"""By which SQLite finds rows in another order than that of `seq`, as long as no order is asked for."""

DELIVERED = (
    leaves_nothing_open,
    no_worker_breaks,
    every_message_keeps_its_id,
    every_message_is_handed_over,
    marked,
    none_is_deleted,
    only_the_mark_changes,
    none_comes_again,
)


def delivering(answer: Answer) -> Scenario:
    """Relays that may die anywhere carry three waiting messages to their consumer."""

    def relays(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, bench.publish)

    laws = named(*DELIVERED, in_order, leaves_none_waiting, counts)
    return BenchScenario(relays, _waiting, laws, 1, frozenset({"crash", "switch"}), due=outbox_due)


def many_wait(answer: Answer) -> Scenario:
    """More messages wait than any batch has room for."""

    def relays(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, bench.publish)

    def prepare(db: Any) -> None:
        _waiting(db)
        db.executemany(WAITING, [(f"n{number}", TASK, 0) for number in range(1, MANY + 1)])

    laws = named(*DELIVERED, in_order, leaves_none_waiting, counts)
    return BenchScenario(relays, prepare, laws, 1, frozenset(), due=outbox_due)


def written_meanwhile(answer: Answer) -> Scenario:
    """A message is written while a relay is at work."""

    def works(db: Any, bench: Bench) -> Any:
        if bench.name != "worker-2":
            return asked(db, bench, answer, bench.publish)
        with db:
            db.execute(WAITING, ("m4", TASK, 0))
        return 0

    laws = named(*DELIVERED, counts)
    return BenchScenario(works, _waiting, laws, 2, frozenset({"switch"}), due=outbox_due)


def refused_once(answer: Answer) -> Scenario:
    """The consumer refuses the second message when it comes for the first time."""

    def relays(db: Any, bench: Bench) -> Any:
        def publish(message_id: str) -> None:
            refuses = bench.name == "worker-1" and message_id == MESSAGES[1]
            (bench.publish_in_vain if refuses else bench.publish)(message_id)

        return asked(db, bench, answer, publish)

    laws = named(*DELIVERED, in_order, counts)
    return BenchScenario(relays, _waiting, laws, 1, frozenset(), due=outbox_due)


def two_relays(answer: Answer) -> Scenario:
    """Two relays at once."""

    def relays(db: Any, bench: Bench) -> Any:
        return asked(db, bench, answer, bench.publish)

    laws = named(*DELIVERED, counts)
    return BenchScenario(relays, _waiting, laws, 2, frozenset({"crash", "switch"}), due=outbox_due)


def _waiting(db: Any) -> None:
    db.executescript(ANOTHER_INDEX)
    db.executemany("INSERT INTO tasks (id, kind) VALUES (?, 'refund')", [(TASK,), (OTHER,)])
    db.executemany(WAITING, zip(MESSAGES, (TASK, OTHER, TASK), (-1, 0, -2), strict=True))
