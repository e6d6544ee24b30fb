"""Exercise 8.2: a relay that delivers at least once."""

import uuid

from answers import right, wrong

WAITING = "SELECT message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq"
MARK = "UPDATE outbox SET delivered_at = 0 WHERE message_id = ?"
LOST = "The law that broke, every_message_is_handed_over:"


@right("8.2")
def publish_then_mark(db, publish):
    waiting = db.execute(WAITING).fetchall()
    for (message_id,) in waiting:
        publish(message_id)
        with db:
            db.execute(MARK, (message_id,))
    return len(waiting)


@right("8.2")
def all_and_then_all_marks(db, publish):
    names = [name for (name,) in db.execute(WAITING)]
    for name in names:
        publish(name)
    with db:
        db.executemany(MARK, [(name,) for name in names])
    return len(names)


@wrong("8.2", LOST, "1 surprise (crash)")
def mark_then_publish(db, publish):
    waiting = db.execute(WAITING).fetchall()
    for (message_id,) in waiting:
        with db:
            db.execute(MARK, (message_id,))
        publish(message_id)
    return len(waiting)


@wrong("8.2", LOST, "1 surprise (crash)")
def takes_them_off_first(db, publish):
    with db:
        rows = db.execute(
            "UPDATE outbox SET delivered_at = 0 WHERE delivered_at IS NULL RETURNING seq, message_id"
        ).fetchall()
    for _, message_id in sorted(rows):
        publish(message_id)
    return len(rows)


@wrong("8.2", LOST)
def marks_and_never_publishes(db, publish):
    waiting = db.execute(WAITING).fetchall()
    with db:
        db.executemany(MARK, waiting)
    return 0


@wrong("8.2", "The law that broke, marked:")
def never_marks(db, publish):
    waiting = db.execute(WAITING).fetchall()
    for (message_id,) in waiting:
        publish(message_id)
    return len(waiting)


@wrong("8.2", "The law that broke, marked:")
def commit_forgotten(db, publish):
    waiting = db.execute(WAITING).fetchall()
    for (message_id,) in waiting:
        publish(message_id)
        db.execute(MARK, (message_id,))
    return len(waiting)


@wrong("8.2", "The law that broke, every_message_keeps_its_id:")
def a_new_id_for_each_delivery(db, publish):
    waiting = db.execute(WAITING).fetchall()
    for (message_id,) in waiting:
        publish(f"{message_id}-{uuid.uuid5(uuid.NAMESPACE_URL, message_id)}")
        with db:
            db.execute(MARK, (message_id,))
    return len(waiting)


@wrong("8.2", "The law that broke, in_order:", "m3, m2, m1")
def the_newest_first(db, publish):
    waiting = db.execute(f"{WAITING} DESC").fetchall()
    for (message_id,) in waiting:
        publish(message_id)
        with db:
            db.execute(MARK, (message_id,))
    return len(waiting)


@wrong("8.2", "The law that broke, counts:", "says None, and has handed over 3")
def count_forgotten(db, publish):
    for (message_id,) in db.execute(WAITING).fetchall():
        publish(message_id)
        with db:
            db.execute(MARK, (message_id,))


@wrong("8.2", LOST, "1 surprise")
def a_crash_in_publish_counts_as_delivered(db, publish):
    waiting = db.execute(WAITING).fetchall()
    try:
        with db:
            db.executemany(MARK, waiting)
        for (message_id,) in waiting:
            publish(message_id)
    except BaseException:
        db.rollback()
        raise
    return len(waiting)


@wrong("8.2", LOST, "m2 never reached its consumer")
def only_the_first(db, publish):
    row = db.execute("SELECT message_id FROM outbox ORDER BY seq").fetchone()
    publish(row[0])
    with db:
        db.execute(MARK, row)
    return 1
