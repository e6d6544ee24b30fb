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


@wrong("8.2", LOST, "1 surprise (crash)", "m1, m3, m2 wait", "m1 marked; m3, m2 wait", "m1, m3 marked; m2")
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


@wrong("8.2", "The law that broke, leaves_nothing_open:")
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


@wrong("8.2", "The law that broke, in_order:", "written as m1, m3, m2, they came as m2, m3, m1")
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


@right("8.2")
def one_after_the_other(db, publish):
    handed = 0
    while row := db.execute(f"{WAITING} LIMIT 1").fetchone():
        publish(*row)
        with db:
            db.execute(MARK, row)
        handed += 1
    return handed


@wrong("8.2", "The law that broke, none_is_deleted:", "worker-1 has deleted m1", "A hint: Mark it, and leave the row")
def deletes_what_was_handed_over(db, publish):
    waiting = db.execute(WAITING).fetchall()
    for row in waiting:
        publish(*row)
        with db:
            db.execute("DELETE FROM outbox WHERE message_id = ?", row)
    return len(waiting)


@wrong("8.2", LOST, "m4 never reached its consumer", "A message written meanwhile", "A hint: Mark what was published")
def marks_whatever_waits_by_then(db, publish):
    waiting = db.execute(WAITING).fetchall()
    for (message_id,) in waiting:
        publish(message_id)
    with db:
        db.execute("UPDATE outbox SET delivered_at = 0 WHERE delivered_at IS NULL")
    return len(waiting)


@right("8.2")
def ends_where_it_is_refused(db, publish):
    handed = 0
    for (message_id,) in db.execute(WAITING).fetchall():
        try:
            publish(message_id)
        except Exception:
            break
        with db:
            db.execute(MARK, (message_id,))
        handed += 1
    return handed


@wrong(
    "8.2",
    "A consumer that refuses once",
    "The law that broke, in_order:",
    "written as m1, m3, m2, they came as m1, m2, m3",
    "publish m3  !! refused",
    "A hint: publish raised: what did you do with that?",
)
def goes_on_behind_a_refusal(db, publish):
    handed = 0
    for (message_id,) in db.execute(WAITING).fetchall():
        try:
            publish(message_id)
        except Exception:
            continue
        with db:
            db.execute(MARK, (message_id,))
        handed += 1
    return handed


@wrong(
    "8.2",
    LOST,
    "m3 never reached its consumer",
    "A consumer that refuses once",
    "publish m3  !! refused",
    "A hint: publish raised: what did you do with that?",
)
def refused_is_as_good_as_delivered(db, publish):
    handed = 0
    for (message_id,) in db.execute(WAITING).fetchall():
        try:
            publish(message_id)
            handed += 1
        except Exception:
            pass
        with db:
            db.execute(MARK, (message_id,))
    return handed


@wrong("8.2", "The law that broke, no_worker_breaks:", "database is locked", "fetchall first")
def writes_while_it_reads(db, publish):
    handed = 0
    for (message_id,) in db.execute(WAITING):
        publish(message_id)
        handed += 1
        with db:
            db.execute(MARK, (message_id,))
    return handed


@wrong("8.2", "The law that broke, counts:", "says 3.0, and has handed over 3")
def a_count_with_a_point(db, publish):
    return float(publish_then_mark(db, publish))


@wrong("8.2", "The law that broke, leaves_none_waiting:", "worker-1 returns, and m3 still waits")
def one_message_a_call(db, publish):
    row = db.execute(f"{WAITING} LIMIT 1").fetchone()
    if row is None:
        return 0
    publish(*row)
    with db:
        db.execute(MARK, row)
    return 1


def ordered_by(order, db, publish):
    waiting = db.execute(f"SELECT message_id FROM outbox WHERE delivered_at IS NULL {order}").fetchall()
    for row in waiting:
        publish(*row)
        with db:
            db.execute(MARK, row)
    return len(waiting)


@wrong("8.2", "The law that broke, in_order:", "they came as m1, m2, m3")
def as_the_rows_come(db, publish):
    return ordered_by("", db, publish)


@wrong("8.2", "The law that broke, in_order:", "they came as m1, m2, m3")
def by_their_ids(db, publish):
    return ordered_by("ORDER BY message_id", db, publish)


@wrong("8.2", "The law that broke, in_order:", "they came as m2, m1, m3")
def by_their_times(db, publish):
    return ordered_by("ORDER BY created_at", db, publish)


def at_most(limit, db, publish):
    return ordered_by(f"ORDER BY seq LIMIT {limit}", db, publish)


@wrong(
    "8.2",
    "Many messages",
    "The law that broke, leaves_none_waiting:",
    "n1 still waits",
    "119 more",
    "One call hands over all that waits",
)
def three_at_most(db, publish):
    return at_most(3, db, publish)


@wrong(
    "8.2",
    "Many messages",
    "The law that broke, leaves_none_waiting:",
    "n98 still waits",
    "One call hands over all that waits",
)
def a_hundred_at_most(db, publish):
    return at_most(100, db, publish)


@wrong("8.2", "The law that broke, in_order:", "they came as m3, m1, m2")
def by_their_times_backwards(db, publish):
    return ordered_by("ORDER BY created_at DESC", db, publish)


@wrong(
    "8.2", "The law that broke, none_comes_again:", "m1, which was marked before it was called", "WHERE delivered_at IS"
)
def all_of_them_again(db, publish):
    rows = db.execute("SELECT message_id FROM outbox ORDER BY seq").fetchall()
    for row in rows:
        publish(*row)
        with db:
            db.execute(MARK, row)
    return len(rows)


@wrong("8.2", "The law that broke, only_the_mark_changes:", "changed payload of m1 as well")
def empties_what_was_handed_over(db, publish):
    rows = db.execute(WAITING).fetchall()
    for row in rows:
        publish(*row)
        with db:
            db.execute("UPDATE outbox SET delivered_at = 0, payload = '' WHERE message_id = ?", row)
    return len(rows)


@wrong("8.2", LOST, "m3 never reached its consumer")
def of_one_task_alone(db, publish):
    rows = db.execute(WAITING.replace("IS NULL", "IS NULL AND task_id = 'task-1'")).fetchall()
    for row in rows:
        publish(*row)
        with db:
            db.execute(MARK, row)
    return len(rows)


@right("8.2")
def all_in_one_transaction(db, publish):
    with db:
        rows = db.execute(WAITING).fetchall()
        for row in rows:
            db.execute(MARK, row)
            publish(*row)
    return len(rows)


@right("8.2")
def counts_deliveries_and_notes_the_time(db, publish):
    rows = db.execute("SELECT seq, message_id FROM outbox WHERE delivered_at IS NULL ORDER BY seq").fetchall()
    for seq, message_id in rows:
        publish(message_id)
        with db:
            db.execute("UPDATE outbox SET delivered_at = 7.5, deliveries = deliveries + 1 WHERE seq = ?", (seq,))
    return len(rows)
