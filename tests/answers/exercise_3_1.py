"""Exercise 3.1: take over from a worker whose lease has run out."""

import time

from answers import right, wrong

TAKE = "UPDATE tasks SET lease_owner = ?, lease_expires_at = ?, lease_token = lease_token + 1, version = version + 1"
EXPIRED = "WHERE id = ? AND state = 'running' AND lease_expires_at <= ?"
KIND = "The law that broke, says_token_or_none:"
TOKEN = "The law that broke, every_holder_has_a_new_token:"
WHOSE = "The law that broke, leaves_others_alone:"
HELD = "The law that broke, only_the_current_token:"


@right("3.1")
def returning_the_token(db, task_id, worker, now, lease_seconds):
    with db:
        row = db.execute(
            f"{TAKE} {EXPIRED} RETURNING lease_token", (worker, now + lease_seconds, task_id, now)
        ).fetchone()
    return None if row is None else row[0]


@right("3.1")
def read_back_in_the_same_transaction(db, task_id, worker, now, lease_seconds):
    try:
        if db.execute(f"{TAKE} {EXPIRED}", (worker, now + lease_seconds, task_id, now)).rowcount == 0:
            return None
        (token,) = db.execute("SELECT lease_token FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return token
    finally:
        db.commit()


@wrong("3.1", HELD, "worker-1 took task-1, which somebody held until 30")
def no_expiry(db, task_id, worker, now, lease_seconds):
    with db:
        sql = f"{TAKE} WHERE id = ? AND state = 'running' RETURNING lease_token"
        row = db.execute(sql, (worker, now + lease_seconds, task_id)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", HELD)
def expiry_turned_round(db, task_id, worker, now, lease_seconds):
    with db:
        sql = f"{TAKE} WHERE id = ? AND state = 'running' AND lease_expires_at >= ? RETURNING lease_token"
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", HELD)
def a_clock_of_its_own(db, task_id, worker, now, lease_seconds):
    with db:
        sql = f"{TAKE} {EXPIRED} RETURNING lease_token"
        row = db.execute(sql, (worker, now + lease_seconds, task_id, time.time())).fetchone()
    return None if row is None else row[0]


@wrong("3.1", TOKEN, "which is not a new one", "lease_token = lease_token + 1")
def the_old_token(db, task_id, worker, now, lease_seconds):
    with db:
        sql = (
            "UPDATE tasks SET lease_owner = ?, lease_expires_at = ?, version = version + 1 "
            f"{EXPIRED} RETURNING lease_token"
        )
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", "The law that broke, tells_its_token:")
def told_the_token_before(db, task_id, worker, now, lease_seconds):
    with db:
        sql = f"{TAKE} {EXPIRED} RETURNING lease_token - 1"
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", "The law that broke, tells_its_token:")
def true_for_the_token(db, task_id, worker, now, lease_seconds):
    with db:
        return db.execute(f"{TAKE} {EXPIRED}", (worker, now + lease_seconds, task_id, now)).rowcount == 1 or None


@wrong("3.1", "The law that broke, tells_its_token:", "with token 2, and was told 3")
def read_back_after_the_commit(db, task_id, worker, now, lease_seconds):
    with db:
        changed = db.execute(f"{TAKE} {EXPIRED}", (worker, now + lease_seconds, task_id, now)).rowcount
    if not changed:
        return None
    return db.execute("SELECT lease_token FROM tasks WHERE id = ?", (task_id,)).fetchone()[0]


@wrong("3.1", "The law that broke, lease_as_asked:", "until 30, where 60 was asked for")
def lease_from_the_old_end(db, task_id, worker, now, lease_seconds):
    with db:
        sql = (
            "UPDATE tasks SET lease_owner = ?, lease_expires_at = ?, lease_token = lease_token + 1, "
            f"version = version + 1 {EXPIRED} RETURNING lease_token"
        )
        row = db.execute(sql, (worker, lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", "The law that broke, lease_as_asked:")
def owner_stays(db, task_id, worker, now, lease_seconds):
    with db:
        sql = (
            "UPDATE tasks SET lease_expires_at = ?, lease_token = lease_token + 1, version = version + 1 "
            f"{EXPIRED} RETURNING lease_token"
        )
        row = db.execute(sql, (now + lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", "The law that broke, one_says_yes:", "nobody was told yes")
def a_second_too_late(db, task_id, worker, now, lease_seconds):
    with db:
        sql = f"{TAKE} WHERE id = ? AND state = 'running' AND lease_expires_at < ? RETURNING lease_token"
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", "The law that broke, leaves_nothing_open:")
def commit_forgotten(db, task_id, worker, now, lease_seconds):
    row = db.execute(f"{TAKE} {EXPIRED} RETURNING lease_token", (worker, now + lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", HELD, "1 surprise (switch to worker-3)")
def looks_and_then_takes(db, task_id, worker, now, lease_seconds):
    row = db.execute("SELECT lease_expires_at, lease_token FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None or row[0] is None or row[0] > now:
        return None
    with db:
        db.execute(
            "UPDATE tasks SET lease_owner = ?, lease_expires_at = ?, lease_token = ?, version = version + 1 "
            "WHERE id = ? AND state = 'running'",
            (worker, now + lease_seconds, row[1] + 1, task_id),
        )
    return row[1] + 1


@wrong("3.1", "The law that broke, every_change_has_its_version:")
def version_stays(db, task_id, worker, now, lease_seconds):
    with db:
        sql = (
            "UPDATE tasks SET lease_owner = ?, lease_expires_at = ?, lease_token = lease_token + 1 "
            f"{EXPIRED} RETURNING lease_token"
        )
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()
    return None if row is None else row[0]


@wrong("3.1", WHOSE)
def whatever_has_expired(db, task_id, worker, now, lease_seconds):
    with db:
        rows = db.execute(
            f"{TAKE} WHERE state = 'running' AND lease_expires_at <= ? RETURNING lease_token",
            (worker, now + lease_seconds, now),
        ).fetchall()
    return rows[0][0] if rows else None


@wrong("3.1", HELD, "which worker-1 held until 59", "The holder renews just then", "leaves the version alone")
def compares_the_version_alone(db, task_id, worker, now, lease_seconds):
    sql = "SELECT version, lease_token FROM tasks WHERE id = ? AND state = 'running' AND lease_expires_at <= ?"
    row = db.execute(sql, (task_id, now)).fetchone()
    if row is None:
        return None
    with db:
        changed = db.execute(f"{TAKE} WHERE id = ? AND version = ?", (worker, now + lease_seconds, task_id, row[0]))
    return row[1] + 1 if changed.rowcount == 1 else None


@wrong("3.1", TOKEN, "with token 30, which is not a new one")
def the_time_for_a_token(db, task_id, worker, now, lease_seconds):
    sql = f"{TAKE} {EXPIRED} RETURNING lease_token".replace("lease_token = lease_token + 1", f"lease_token = {now:.0f}")
    with db:
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()
    return row and row[0]


@wrong("3.1", "The law that broke, tells_its_token:", "1 surprise (pause)")
def reads_the_token_after_the_commit(db, task_id, worker, now, lease_seconds):
    with db:
        changed = db.execute(f"{TAKE} {EXPIRED}", (worker, now + lease_seconds, task_id, now)).rowcount
    if changed:
        return db.execute("SELECT lease_token FROM tasks WHERE id = ?", (task_id,)).fetchone()[0]
    return None


@wrong("3.1", "The law that broke, nothing_else_changes:", "changed attempts of task-1 as well")
def begins_anew(db, task_id, worker, now, lease_seconds):
    sql = TAKE.replace("SET", "SET step = 0, attempts = 0,")
    with db:
        row = db.execute(f"{sql} {EXPIRED} RETURNING lease_token", (worker, now + lease_seconds, task_id, now))
        found = row.fetchone()
    return found and found[0]


@wrong("3.1", "The law that broke, no_worker_breaks:", "fetchone()` may give None")
def there_is_always_a_row(db, task_id, worker, now, lease_seconds):
    with db:
        sql = f"{TAKE} {EXPIRED} RETURNING lease_token"
        return db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()[0]


@wrong("3.1", KIND, "returned 0, where a token or None is wanted", "return None itself")
def zero_for_nothing(db, task_id, worker, now, lease_seconds):
    return returning_the_token(db, task_id, worker, now, lease_seconds) or 0


@wrong("3.1", KIND, "returned False, where a token or None is wanted")
def false_for_nothing(db, task_id, worker, now, lease_seconds):
    return returning_the_token(db, task_id, worker, now, lease_seconds) or False


@wrong("3.1", KIND, "returned (), where a token or None", "Tasks that do not run:")
def an_empty_row_for_nothing(db, task_id, worker, now, lease_seconds):
    (held,) = db.execute("SELECT count(*) FROM tasks WHERE id = ? AND state = 'running'", (task_id,)).fetchone()
    return returning_the_token(db, task_id, worker, now, lease_seconds) if held else ()


@wrong("3.1", KIND, "returned 1001.0, where a token or None is wanted")
def a_token_with_a_point(db, task_id, worker, now, lease_seconds):
    token = returning_the_token(db, task_id, worker, now, lease_seconds)
    return None if token is None else float(token)


@wrong("3.1", WHOSE, "called with (task-2, worker-1, 30.0, 45.0), changed task-1", "the task_id that your function")
def one_task_for_all(db, task_id, worker, now, lease_seconds):
    return returning_the_token(db, "task-1", worker, now, lease_seconds)


@wrong("3.1", "The law that broke, lease_as_asked:", "until 60, where 75 was asked for")
def always_as_long(db, task_id, worker, now, lease_seconds):
    return returning_the_token(db, task_id, worker, now, 30.0)


@wrong("3.1", "The law that broke, lease_as_asked:", "its owner on record is worker-2")
def always_the_same_owner(db, task_id, worker, now, lease_seconds):
    return returning_the_token(db, task_id, "worker-2", now, lease_seconds)


@wrong("3.1", "The law that broke, must_be_refused:", "changed task-uncertain", "An uncertain one has a lease, too")
def no_state(db, task_id, worker, now, lease_seconds):
    with db:
        sql = f"{TAKE} WHERE id = ? AND lease_expires_at <= ? RETURNING lease_token"
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now)).fetchone()
    return row and row[0]


@wrong("3.1", WHOSE, "changed task-2")
def no_id(db, task_id, worker, now, lease_seconds):
    sql = f"{TAKE} WHERE state = 'running' AND lease_expires_at <= ? RETURNING lease_token"
    with db:
        rows = db.execute(sql, (worker, now + lease_seconds, now)).fetchall()
    return rows[0][0] if len(rows) == 1 else None


@wrong("3.1", HELD, "which somebody held until 30")
def a_little_early(db, task_id, worker, now, lease_seconds):
    sql = f"{TAKE} {EXPIRED} RETURNING lease_token"
    with db:
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now + 5)).fetchone()
    return row and row[0]


@wrong(
    "3.1", "The law that broke, lease_as_asked:", "until 60, where 130 was asked for", "A lease that ran out long ago:"
)
def counts_from_the_old_end(db, task_id, worker, now, lease_seconds):
    sql = f"{TAKE} {EXPIRED} RETURNING lease_token".replace(
        "lease_expires_at = ?", "lease_expires_at = lease_expires_at + ?", 1
    )
    with db:
        row = db.execute(sql, (worker, lease_seconds, task_id, now)).fetchone()
    return row and row[0]


@wrong("3.1", "statements in progress", "Fetch every row of a SELECT or of a RETURNING before you commit")
def commits_before_it_fetches(db, task_id, worker, now, lease_seconds):
    found = db.execute(f"{TAKE} {EXPIRED} RETURNING lease_token", (worker, now + lease_seconds, task_id, now))
    db.commit()
    row = found.fetchone()
    return row and row[0]


@wrong("3.1", "A lease that ran out long ago", "The law that broke, what_fits_is_granted:", "may have its old name")
def never_from_one_of_its_own_name(db, task_id, worker, now, lease_seconds):
    sql = f"{TAKE} {EXPIRED} AND lease_owner <> ? RETURNING lease_token"
    with db:
        row = db.execute(sql, (worker, now + lease_seconds, task_id, now, worker)).fetchone()
    return None if row is None else row[0]
