"""Exercise 2.1: claim a task by compare-and-set."""

from answers import right, wrong

CLAIMED = "state = 'running', version = version + 1, lease_token = lease_token + 1, lease_expires_at = 30"
RACE = "The law that broke, one_says_yes:"
LIES = "The law that broke, says_what_it_did:"
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


@wrong("2.1", ANYWAY, "A stale version: it fails even in the quiet run")
def no_version(db, task_id, expected_version):
    with db:
        changed = db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND state = 'queued'", (task_id,))
    return changed.rowcount == 1


@wrong("2.1", ANYWAY, "A task that is not queued: it fails")
def no_state(db, task_id, expected_version):
    with db:
        changed = db.execute(f"UPDATE tasks SET {CLAIMED} WHERE id = ? AND version = ?", (task_id, expected_version))
    return changed.rowcount == 1


@wrong("2.1", LIES, "says yes, and has changed nothing")
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


@wrong("2.1", "The law that broke, leaves_others_alone:")
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
