"""Exercise 2.2: go on after an interruption, only from what was seen."""

from answers import right, wrong

STEP = "UPDATE tasks SET step = step + 1, version = version + 1"
OPEN = "The law that broke, leaves_nothing_open:"
READ_AGAIN = "The law that broke, decides_by_what_it_read:"


@right("2.2")
def compare_in_the_update(db, task_id, seen_version):
    with db:
        changed = db.execute(f"{STEP} WHERE id = ? AND version = ? AND state = 'running'", (task_id, seen_version))
    return changed.rowcount == 1


@right("2.2")
def with_a_cursor(db, task_id, seen_version):
    cursor = db.cursor()
    cursor.execute(
        "UPDATE tasks SET step = step + 1, version = :next WHERE id = :id AND version = :seen AND state = 'running'",
        {"next": seen_version + 1, "id": task_id, "seen": seen_version},
    )
    db.commit()
    return cursor.rowcount > 0


@wrong("2.2", READ_AGAIN)
def reads_the_version_again(db, task_id, seen_version):
    (version,) = db.execute("SELECT version FROM tasks WHERE id = ?", (task_id,)).fetchone()
    with db:
        changed = db.execute(f"{STEP} WHERE id = ? AND version = ? AND state = 'running'", (task_id, version))
    return changed.rowcount == 1


@wrong("2.2", READ_AGAIN)
def no_version(db, task_id, seen_version):
    with db:
        changed = db.execute(f"{STEP} WHERE id = ? AND state = 'running'", (task_id,))
    return changed.rowcount == 1


@wrong("2.2", READ_AGAIN)
def tries_until_it_fits(db, task_id, seen_version):
    for version in range(seen_version, seen_version + 5):
        with db:
            changed = db.execute(f"{STEP} WHERE id = ? AND version = ? AND state = 'running'", (task_id, version))
        if changed.rowcount == 1:
            return True
    return False


@wrong("2.2", READ_AGAIN)
def at_least_the_version(db, task_id, seen_version):
    with db:
        changed = db.execute(f"{STEP} WHERE id = ? AND version >= ? AND state = 'running'", (task_id, seen_version))
    return changed.rowcount == 1


@wrong("2.2", READ_AGAIN)
def looks_and_then_writes(db, task_id, seen_version):
    row = db.execute("SELECT version, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row != (seen_version, "running"):
        return False
    with db:
        db.execute(f"{STEP} WHERE id = ?", (task_id,))
    return True


@wrong("2.2", "The law that broke, must_be_refused:", "A task that does not run")
def no_state(db, task_id, seen_version):
    with db:
        changed = db.execute(f"{STEP} WHERE id = ? AND version = ?", (task_id, seen_version))
    return changed.rowcount == 1


@wrong("2.2", OPEN)
def commit_forgotten(db, task_id, seen_version):
    changed = db.execute(f"{STEP} WHERE id = ? AND version = ? AND state = 'running'", (task_id, seen_version))
    return changed.rowcount == 1


@wrong("2.2", "The law that broke, says_what_it_did:")
def always_yes(db, task_id, seen_version):
    with db:
        db.execute(f"{STEP} WHERE id = ? AND version = ? AND state = 'running'", (task_id, seen_version))
    return True


@wrong("2.2", "The law that broke, every_change_has_its_version:")
def version_stays(db, task_id, seen_version):
    with db:
        changed = db.execute(
            "UPDATE tasks SET step = step + 1 WHERE id = ? AND version = ? AND state = 'running'",
            (task_id, seen_version),
        )
    return changed.rowcount == 1


@wrong("2.2", "The law that broke, leaves_others_alone:")
def every_task_of_that_version(db, task_id, seen_version):
    with db:
        changed = db.execute(f"{STEP} WHERE version = ? AND state = 'running'", (seen_version,))
    return changed.rowcount > 0


ADVANCE = "UPDATE tasks SET step = step + 1, version = version + 1 WHERE id = ? AND version = ? AND state = 'running'"


@wrong("2.2", OPEN)
def only_the_winner_commits(db, task_id, seen_version):
    won = db.execute(ADVANCE, (task_id, seen_version)).rowcount == 1
    if won:
        db.commit()
    return won


@wrong("2.2", "The law that broke, one_step_each:", "from step 4 to 1")
def always_the_first_step(db, task_id, seen_version):
    with db:
        return db.execute(ADVANCE.replace("step + 1", "1"), (task_id, seen_version)).rowcount == 1


@wrong("2.2", "The law that broke, nothing_else_changes:", "changed lease_expires_at of task-1 as well")
def takes_it_over_as_well(db, task_id, seen_version):
    sql = ADVANCE.replace("SET", "SET lease_token = lease_token + 1, lease_expires_at = lease_expires_at + 30,")
    with db:
        return db.execute(sql, (task_id, seen_version)).rowcount == 1


@wrong("2.2", "The law that broke, each_call_says_what_it_did:")
def counts_all_changes_of_the_connection(db, task_id, seen_version):
    with db:
        db.execute(ADVANCE, (task_id, seen_version))
    return db.total_changes > 0


@wrong("2.2", "The law that broke, says_yes_or_no:", "returned 'yes', where True or False is wanted")
def yes_in_words(db, task_id, seen_version):
    return "yes" if compare_in_the_update(db, task_id, seen_version) else ""


def advanced(db, where, values):
    with db:
        return db.execute(f"{STEP} WHERE {where} AND state = 'running'", values).rowcount == 1


@wrong("2.2", "The law that broke, leaves_others_alone:", "called with (task-2, 3), changed task-1", "WHERE id = ?")
def one_task_for_all(db, task_id, seen_version):
    return advanced(db, "id = 'task-1' AND version = ?", (seen_version,))


@wrong("2.2", "The law that broke, what_fits_is_granted:", "called with (task-2, 3), is told False", "no constant in")
def always_the_second_version(db, task_id, seen_version):
    return advanced(db, "id = ? AND version = 2", (task_id,))


@wrong("2.2", "The law that broke, leaves_others_alone:", "called with (task-1, 2), changed task-2", "WHERE id = ?")
def no_id_and_one_row_expected(db, task_id, seen_version):
    return advanced(db, "version = ?", (seen_version,))


@wrong("2.2", "The law that broke, must_be_refused:", "changed task-uncertain")
def whatever_has_an_owner(db, task_id, seen_version):
    with db:
        sql = f"{STEP} WHERE id = ? AND version = ? AND lease_owner IS NOT NULL"
        return db.execute(sql, (task_id, seen_version)).rowcount == 1


@wrong("2.2", "The law that broke, every_change_has_its_version:", "its version went from 2 to 2", "in one UPDATE")
def in_two_transactions(db, task_id, seen_version):
    with db:
        sql = "UPDATE tasks SET step = step + 1 WHERE id = ? AND version = ? AND state = 'running'"
        changed = db.execute(sql, (task_id, seen_version)).rowcount
    if changed:
        with db:
            db.execute("UPDATE tasks SET version = version + 1 WHERE id = ?", (task_id,))
    return changed == 1


@wrong("2.2", "The law that broke, every_change_has_its_version:", "step 0", "a comma between them")
def joined_by_and(db, task_id, seen_version):
    with db:
        sql = STEP.replace("1, version", "1 AND version") + " WHERE id = ? AND version = ? AND state = 'running'"
        return db.execute(sql, (task_id, seen_version)).rowcount == 1


@wrong("2.2", "ended with ValueError: it has moved on", "The last words say what was wrong")
def raises_of_its_own(db, task_id, seen_version):
    if not compare_in_the_update(db, task_id, seen_version):
        raise ValueError("it has moved on")
    return True


@wrong("2.2", "The law that broke, somebody_goes_on:", "all were told no", "Whose row is it? WHERE id = ?")
def no_id_and_taken_back_unless_one(db, task_id, seen_version):
    changed = db.execute(f"{STEP} WHERE version = ? AND state = 'running'", (seen_version,)).rowcount
    if changed == 1:
        db.commit()
        return True
    db.rollback()
    return False


@wrong("2.2", "One worker calls three times", "The law that broke, one_step_each:", "from step 0 to 5")
def always_the_fifth_step(db, task_id, seen_version):
    with db:
        return db.execute(ADVANCE.replace("step + 1", "5"), (task_id, seen_version)).rowcount == 1
