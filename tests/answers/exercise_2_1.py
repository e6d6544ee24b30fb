"""Exercise 2.1: claim a task by compare-and-set."""

import sqlite3
import time

from answers import right, wrong

CLAIMED = "state = 'running', version = version + 1, lease_token = lease_token + 1, lease_expires_at = 30"
RACE = "The law that broke, one_says_yes:"
LIES = "The law that broke, says_what_it_did:"
WHOSE = "The law that broke, leaves_others_alone:"
TABLES = "The law that broke, keeps_to_the_tables:"
OPEN = "The law that broke, leaves_nothing_open:"
KIND = "The law that broke, says_yes_or_no:"
ANYWAY = "The law that broke, must_be_refused:"


@right("2.1")
def one_update(db, task_id, expected_version):
    with db:
        changed = db.execute(
            f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'",
            (task_id, expected_version),
        )
    return changed.rowcount == 1


@right("2.1")
def update_returning(db, task_id, expected_version):
    rows = db.execute(
        f"UPDATE tasks SET {CLAIMED} WHERE id = :id AND version = :seen AND state = 'queued' RETURNING version",
        {"id": task_id, "seen": expected_version},
    ).fetchall()
    db.commit()
    return bool(rows)


@right("2.1")
def lock_first_then_look(db, task_id, expected_version):
    db.execute("BEGIN IMMEDIATE")
    row = db.execute("SELECT version, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    free = row == (expected_version, "queued")
    if free:
        db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ?", (task_id,))
    db.commit()
    return free


@wrong("2.1", RACE, "1 surprise (switch to worker-2)")
def look_then_write(db, task_id, expected_version):
    row = db.execute("SELECT version, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row != (expected_version, "queued"):
        return False
    with db:
        db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ?", (task_id,))
    return True


@wrong("2.1", LIES, "says yes, and has changed nothing")
def row_count_ignored(db, task_id, expected_version):
    with db:
        db.execute(
            f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'", (task_id, expected_version)
        )
    return True


@wrong("2.1", RACE, "it fails even in the quiet run")
def no_condition_at_all(db, task_id, expected_version):
    with db:
        changed = db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ?", (task_id,))
    return changed.rowcount == 1


@wrong("2.1", ANYWAY, "Versions that do not fit: it fails even in the quiet run")
def no_version(db, task_id, expected_version):
    with db:
        changed = db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND state = 'queued'", (task_id,))
    return changed.rowcount == 1


@wrong("2.1", ANYWAY, "A task that is not queued: it fails")
def no_state(db, task_id, expected_version):
    with db:
        changed = db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ?", (task_id, expected_version))
    return changed.rowcount == 1


@wrong("2.1", OPEN, "worker-1 has left a transaction open")
def commit_forgotten(db, task_id, expected_version):
    changed = db.execute(
        f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'", (task_id, expected_version)
    )
    return changed.rowcount == 1


@wrong("2.1", LIES, "says no, and has changed something")
def return_forgotten(db, task_id, expected_version):
    with db:
        db.execute(
            f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'", (task_id, expected_version)
        )


@wrong("2.1", WHOSE)
def any_queued_task(db, task_id, expected_version):
    with db:
        changed = db.execute(f"UPDATE tasks SET {CLAIMED} WHERE version = ? AND state = 'queued'", (expected_version,))
    return changed.rowcount > 0


@wrong("2.1", "The law that broke, every_change_has_its_version:")
def version_stays(db, task_id, expected_version):
    with db:
        changed = db.execute(
            "UPDATE tasks SET state = 'running', lease_token = lease_token + 1, lease_expires_at = 30 "
            "WHERE id = ? AND version = ? AND state = 'queued'",
            (task_id, expected_version),
        )
    return changed.rowcount == 1


@wrong("2.1", LIES)
def checked_again_after_writing(db, task_id, expected_version):
    with db:
        db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND state = 'queued'", (task_id,))
    row = db.execute("SELECT state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    return row == ("running",)


@wrong("2.1", "The law that broke, no_worker_breaks:", "ended with OperationalError: database is locked")
def read_and_write_in_one_deferred_transaction(db, task_id, expected_version):
    db.execute("BEGIN")
    row = db.execute("SELECT version, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row != (expected_version, "queued"):
        db.rollback()
        return False
    db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ?", (task_id,))
    db.commit()
    return True


@right("2.1")
def without_implicit_transactions(db, task_id, expected_version):
    db.isolation_level = None
    sql = f"UPDATE tasks SET {CLAIMED} WHERE (id, version, state) = (?, ?, 'queued')"
    return db.execute(sql, (task_id, expected_version)).rowcount


@right("2.1")
def by_the_difference_of_all_changes(db, task_id, expected_version):
    before = db.total_changes
    db.executescript(
        f"BEGIN IMMEDIATE; UPDATE tasks SET {CLAIMED} "
        f"WHERE id = '{task_id}' AND version = {expected_version} AND state = 'queued'; COMMIT;"
    )
    return db.total_changes > before


@right("2.1")
def tries_again_when_locked(db, task_id, expected_version):
    for _ in range(5):
        try:
            with db:
                db.execute("BEGIN")
                row = db.execute("SELECT version, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
                if row != (expected_version, "queued"):
                    return False
                db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ?", (task_id,))
            return True
        except sqlite3.OperationalError:
            time.sleep(0.05)
    return False


@wrong("2.1", OPEN, "worker-2 has left a transaction open")
def only_the_winner_commits(db, task_id, expected_version):
    sql = f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'"
    if db.execute(sql, (task_id, expected_version)).rowcount == 1:
        db.commit()
        return True
    return False


@wrong("2.1", OPEN, "the connection of its caller closed")
def closes_what_is_not_its_own(db, task_id, expected_version):
    try:
        return one_update(db, task_id, expected_version)
    finally:
        db.close()


@wrong("2.1", "The law that broke, no_worker_breaks:", "ended with LookupError: lost")
def raises_for_no(db, task_id, expected_version):
    if not one_update(db, task_id, expected_version):
        raise LookupError("lost")
    return True


@wrong("2.1", "The law that broke, each_call_says_what_it_did:", "is told True, and this call did nothing")
def counts_all_changes_of_the_connection(db, task_id, expected_version):
    one_update(db, task_id, expected_version)
    return db.total_changes > 0


@wrong("2.1", ANYWAY, "changed task-uncertain")
def not_one_of_the_states_that_come_to_mind(db, task_id, expected_version):
    states = "('running', 'succeeded', 'failed', 'cancelled')"
    sql = f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state NOT IN {states}"
    with db:
        return db.execute(sql, (task_id, expected_version)).rowcount == 1


@wrong("2.1", ANYWAY, "called with (task-1, 4), changed task-1")
def at_most_the_version(db, task_id, expected_version):
    sql = f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version <= ? AND state = 'queued'"
    with db:
        return db.execute(sql, (task_id, expected_version)).rowcount == 1


@wrong("2.1", "The law that broke, claims_at_once:", "it was still queued after that commit")
def the_version_first(db, task_id, expected_version):
    sql = "UPDATE tasks SET version = version + 1 WHERE id = ? AND version = ? AND state = 'queued'"
    with db:
        won = db.execute(sql, (task_id, expected_version)).rowcount == 1
    if won:
        with db:
            db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ?", (task_id,))
    return won


TAKEN: set[str] = set()


@wrong("2.1", RACE, "1 surprise")
def remembered_in_memory(db, task_id, expected_version):
    if task_id in TAKEN:
        return False
    TAKEN.add(task_id)
    return look_then_write(db, task_id, expected_version)


@wrong("2.1", "The law that broke, no_worker_breaks:", "which has not run: write a plain function")
async def a_coroutine(db, task_id, expected_version):
    return one_update(db, task_id, expected_version)


@wrong("2.1", "The law that broke, bounded:", "worker-2 sleeps and looks again, more than 15 times")
def waits_until_it_wins(db, task_id, expected_version):
    while not one_update(db, task_id, expected_version):
        time.sleep(5)
    return True


@wrong("2.1", KIND, "returned None, where True or False is wanted", "a path without a `return`")
def says_nothing_where_it_did_nothing(db, task_id, expected_version):
    return one_update(db, task_id, expected_version) or None


def claimed(db, setting, where, values):
    with db:
        return db.execute(f"UPDATE tasks SET {setting} WHERE {where} AND state = 'queued'", values).rowcount == 1


@wrong("2.1", "The law that broke, leaves_others_alone:", "called with (task-2, 3), changed task-1", "WHERE id = ?")
def one_task_for_all(db, task_id, expected_version):
    return claimed(db, CLAIMED, "id = 'task-1' AND version = ?", (expected_version,))


@wrong("2.1", "The law that broke, what_fits_is_granted:", "called with (task-2, 3), is told False", "no constant in")
def always_the_first_version(db, task_id, expected_version):
    return claimed(db, CLAIMED, "id = ? AND version = 1", (task_id,))


@wrong("2.1", WHOSE, "called with (task-1, 1), changed task-2", "WHERE id = ?")
def no_id_and_one_row_expected(db, task_id, expected_version):
    return claimed(db, CLAIMED, "version = ?", (expected_version,))


@wrong("2.1", "The law that broke, every_holder_has_a_new_token:", "lease_token = lease_token + 1")
def the_token_stays(db, task_id, expected_version):
    stays = CLAIMED.replace("lease_token = lease_token + 1, ", "")
    return claimed(db, stays, "id = ? AND version = ?", (task_id, expected_version))


@wrong("2.1", TABLES, "worker-1 ended with IntegrityError", "CHECK constraint failed", "a task has a lease_expires_at")
def no_lease(db, task_id, expected_version):
    for_ever = CLAIMED.replace(", lease_expires_at = 30", "")
    return claimed(db, for_ever, "id = ? AND version = ?", (task_id, expected_version))


@wrong("2.1", "The law that broke, nothing_else_changes:", "changed step of task-1 as well")
def counts_a_step_as_well(db, task_id, expected_version):
    sql = f"UPDATE tasks SET {CLAIMED}, step = step + 1 WHERE id = ? AND version = ? AND state = 'queued'"
    with db:
        return db.execute(sql, (task_id, expected_version)).rowcount == 1


@wrong("2.1", "unrecognized token", "Is an f before its quotes missing")
def an_f_forgotten(db, task_id, expected_version):
    with db:
        sql = "UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'"
        return db.execute(sql, (task_id, expected_version)).rowcount == 1


@wrong("2.1", "database is locked", "may find the database locked later")
def looks_in_a_transaction(db, task_id, expected_version):
    db.execute("BEGIN")
    row = db.execute("SELECT version, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    took = row == (expected_version, "queued")
    if took:
        db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ?", (task_id,))
    db.execute("COMMIT")
    return took


@wrong("2.1", "The law that broke, tokens_only_grow:", "from 6 to 1", "lease_token = lease_token + 1")
def always_the_first_token(db, task_id, expected_version):
    sql = f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'"
    with db:
        return db.execute(sql.replace("lease_token + 1", "1"), (task_id, expected_version)).rowcount == 1


@wrong("2.1", "The law that broke, tokens_only_grow:", "from 6 to 2", "lease_token = lease_token + 1")
def the_version_for_a_token(db, task_id, expected_version):
    sql = f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ? AND state = 'queued'"
    with db:
        return db.execute(sql.replace("lease_token + 1", "version + 1"), (task_id, expected_version)).rowcount == 1
