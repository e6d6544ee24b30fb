"""Exercise 3.2: finish a task that is still one's own."""

from answers import right, wrong

DONE = "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL"
ZOMBIE = "The law that broke, only_the_current_token:"
TABLES = "The law that broke, keeps_to_the_tables:"
WHOSE = "The law that broke, leaves_others_alone:"
ANYWAY = "The law that broke, must_be_refused:"


@right("3.2")
def one_update(db, task_id, token):
    with db:
        changed = db.execute(f"{DONE} WHERE id = ? AND state = 'running' AND lease_token = ?", (task_id, token))
    return changed.rowcount == 1


@right("3.2")
def returning(db, task_id, token):
    with db:
        rows = db.execute(
            f"{DONE} WHERE id = ? AND lease_token = ? AND state = 'running' RETURNING id", (task_id, token)
        ).fetchall()
    return len(rows) == 1


@wrong("3.2", ZOMBIE, "1 surprise (pause)")
def no_token(db, task_id, token):
    with db:
        changed = db.execute(f"{DONE} WHERE id = ? AND state = 'running'", (task_id,))
    return changed.rowcount == 1


@wrong("3.2", ANYWAY)
def at_most_the_token(db, task_id, token):
    with db:
        changed = db.execute(f"{DONE} WHERE id = ? AND state = 'running' AND lease_token <= ?", (task_id, token))
    return changed.rowcount == 1


@wrong("3.2", ZOMBIE)
def at_least_the_token(db, task_id, token):
    with db:
        changed = db.execute(f"{DONE} WHERE id = ? AND state = 'running' AND lease_token >= ?", (task_id, token))
    return changed.rowcount == 1


@wrong("3.2", ZOMBIE)
def checked_before(db, task_id, token):
    row = db.execute("SELECT lease_token FROM tasks WHERE id = ? AND state = 'running'", (task_id,)).fetchone()
    if row != (token,):
        return False
    with db:
        db.execute(f"{DONE} WHERE id = ?", (task_id,))
    return True


@wrong("3.2", ANYWAY)
def no_state(db, task_id, token):
    with db:
        changed = db.execute(f"{DONE} WHERE id = ? AND lease_token = ?", (task_id, token))
    return changed.rowcount == 1


@wrong("3.2", WHOSE)
def no_id(db, task_id, token):
    with db:
        changed = db.execute(f"{DONE} WHERE state = 'running' AND lease_token = ?", (token,))
    return changed.rowcount > 0


@wrong("3.2", "The law that broke, leaves_nothing_open:")
def commit_forgotten(db, task_id, token):
    changed = db.execute(f"{DONE} WHERE id = ? AND state = 'running' AND lease_token = ?", (task_id, token))
    return changed.rowcount == 1


@wrong("3.2", "The law that broke, every_change_has_its_version:")
def version_stays(db, task_id, token):
    with db:
        changed = db.execute(
            "UPDATE tasks SET state = 'succeeded', lease_owner = NULL, lease_expires_at = NULL "
            "WHERE id = ? AND state = 'running' AND lease_token = ?",
            (task_id, token),
        )
    return changed.rowcount == 1


@wrong("3.2", "The law that broke, says_so:")
def return_forgotten(db, task_id, token):
    with db:
        db.execute(f"{DONE} WHERE id = ? AND state = 'running' AND lease_token = ?", (task_id, token))


@wrong("3.2", "The law that broke, says_so:", "1 surprise (pause)")
def always_yes(db, task_id, token):
    with db:
        db.execute(f"{DONE} WHERE id = ? AND state = 'running' AND lease_token = ?", (task_id, token))
    return True


@wrong("3.2", TABLES, "ended with IntegrityError", "a task has a lease_expires_at exactly where")
def lease_stays(db, task_id, token):
    with db:
        changed = db.execute(
            "UPDATE tasks SET state = 'succeeded', version = version + 1 "
            "WHERE id = ? AND state = 'running' AND lease_token = ?",
            (task_id, token),
        )
    return changed.rowcount == 1


FINISH = (
    "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL "
    "WHERE id = ? AND state = 'running' AND lease_token = ?"
)


@wrong("3.2", "The law that broke, tokens_only_grow:", "from 1 to 0")
def the_token_too_is_cleared(db, task_id, token):
    with db:
        sql = FINISH.replace("lease_owner = NULL", "lease_owner = NULL, lease_token = 0")
        return db.execute(sql, (task_id, token)).rowcount == 1


@wrong("3.2", "The law that broke, given_back:", "worker-0 is its owner on record still")
def the_owner_stays(db, task_id, token):
    with db:
        return db.execute(FINISH.replace("lease_owner = NULL, ", ""), (task_id, token)).rowcount == 1


@wrong("3.2", ANYWAY, "changed task-uncertain")
def uncertain_too(db, task_id, token):
    with db:
        return db.execute(FINISH.replace("= 'running'", "IN ('running', 'uncertain')"), (task_id, token)).rowcount == 1


@wrong("3.2", "The law that broke, says_yes_or_no:", "returned None, where True or False is wanted")
def says_nothing_to_a_zombie(db, task_id, token):
    return one_update(db, task_id, token) or None


@wrong("3.2", WHOSE, "called with (task-2, 1), changed task-1", "the task_id that your function")
def one_task_for_all(db, task_id, token):
    return one_update(db, "task-1", token)


@wrong("3.2", WHOSE, "called with (task-2, 1), changed task-1", "WHERE id = ?")
def no_id_and_one_row_expected(db, task_id, token):
    with db:
        return db.execute(f"{DONE} WHERE state = 'running' AND lease_token = ?", (token,)).rowcount == 1


@wrong("3.2", "The law that broke, settled_in_the_end:", "Does your UPDATE match the row")
def always_the_first_token(db, task_id, token):
    return one_update(db, task_id, 1)


@wrong("3.2", "The law that broke, nothing_else_changes:", "changed step of task-2 as well")
def counts_a_step_as_well(db, task_id, token):
    with db:
        return db.execute(FINISH.replace("SET", "SET step = step + 1,"), (task_id, token)).rowcount == 1


@wrong("3.2", ANYWAY, "changed task-uncertain")
def whatever_has_an_owner(db, task_id, token):
    with db:
        sql = FINISH.replace("state = 'running'", "lease_owner IS NOT NULL")
        return db.execute(sql, (task_id, token)).rowcount == 1


@wrong("3.2", "no such column: None", "In SQL nothing is NULL")
def none_in_sql(db, task_id, token):
    with db:
        return db.execute(FINISH.replace("NULL", "None"), (task_id, token)).rowcount == 1


@wrong("3.2", "NOT NULL constraint failed: tasks.lease_token", "schema.sql wants a value in that column")
def the_token_becomes_null(db, task_id, token):
    with db:
        sql = FINISH.replace("lease_owner = NULL", "lease_owner = NULL, lease_token = NULL")
        return db.execute(sql, (task_id, token)).rowcount == 1


@wrong(
    "3.2", "Another task beside it", "The law that broke, nothing_else_changes:", "changed cancel_requested of task-2"
)
def the_wish_to_stop_is_cleared(db, task_id, token):
    sql = f"{DONE}, cancel_requested = 0 WHERE id = ? AND state = 'running' AND lease_token = ?"
    with db:
        return db.execute(sql, (task_id, token)).rowcount == 1


@wrong("3.2", "The law that broke, what_fits_is_granted:", "called with (task-2, 1), is told False")
def not_where_somebody_wants_it_stopped(db, task_id, token):
    sql = f"{DONE} WHERE id = ? AND state = 'running' AND lease_token = ? AND cancel_requested = 0"
    with db:
        return db.execute(sql, (task_id, token)).rowcount == 1
