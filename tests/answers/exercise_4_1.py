"""Exercise 4.1: a checkpoint, result and step in one transaction."""

from answers import right, wrong

STEP = "UPDATE tasks SET step = step + 1, version = version + 1"
MINE = "WHERE id = ? AND state = 'running' AND lease_token = ?"
RESULT = "UPDATE operations SET status = 'done', result_ref = ? WHERE operation_id = ? AND status = 'pending'"
TORN = "The law that broke, result_and_step_in_one_commit:"
ANYWAY = "The law that broke, must_be_refused:"
WHOSE = "The law that broke, leaves_others_alone:"
ZOMBIE = "The law that broke, only_the_current_token:"


@right("4.1")
def the_task_first(db, task_id, token, operation_id, result):
    pending = "AND EXISTS (SELECT 1 FROM operations WHERE operation_id = ? AND task_id = ? AND status = 'pending')"
    with db:
        if db.execute(f"{STEP} {MINE} {pending}", (task_id, token, operation_id, task_id)).rowcount == 0:
            return False
        db.execute(RESULT, (result, operation_id))
    return True


@right("4.1")
def rolled_back_where_it_does_not_fit(db, task_id, token, operation_id, result):
    recorded = db.execute(f"{RESULT} AND task_id = ?", (result, operation_id, task_id)).rowcount
    stepped = db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount
    if recorded == 1 and stepped == 1:
        db.commit()
        return True
    db.rollback()
    return False


@wrong("4.1", TORN)
def two_transactions(db, task_id, token, operation_id, result):
    with db:
        changed = db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount
    if changed:
        with db:
            db.execute(RESULT, (result, operation_id))
    return bool(changed)


@wrong("4.1", TORN)
def result_first_and_alone(db, task_id, token, operation_id, result):
    with db:
        if db.execute(RESULT, (result, operation_id)).rowcount == 0:
            return False
    with db:
        return db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 1


@wrong("4.1", TORN)
def result_whoever_holds_the_task(db, task_id, token, operation_id, result):
    with db:
        db.execute(RESULT, (result, operation_id))
        return db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 1


@wrong("4.1", ZOMBIE)
def no_token(db, task_id, token, operation_id, result):
    with db:
        if db.execute(RESULT, (result, operation_id)).rowcount == 0:
            return False
        return db.execute(f"{STEP} WHERE id = ? AND state = 'running'", (task_id,)).rowcount == 1


@wrong("4.1", ANYWAY)
def no_state(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} WHERE id = ? AND lease_token = ?", (task_id, token)).rowcount == 0:
            return False
        if db.execute(RESULT, (result, operation_id)).rowcount == 0:
            db.rollback()
            return False
    return True


@wrong("4.1", TORN)
def step_without_a_result(db, task_id, token, operation_id, result):
    with db:
        return db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 1


@wrong("4.1", TORN)
def result_without_a_step(db, task_id, token, operation_id, result):
    with db:
        return db.execute(RESULT, (result, operation_id)).rowcount == 1


@wrong("4.1", ANYWAY)
def a_second_result(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute(
            "UPDATE operations SET status = 'done', result_ref = ? WHERE operation_id = ?", (result, operation_id)
        )
    return True


@wrong("4.1", "The law that broke, every_change_has_its_version:")
def version_stays(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"UPDATE tasks SET step = step + 1 {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute(RESULT, (result, operation_id))
    return True


@wrong("4.1", "The law that broke, leaves_nothing_open:")
def commit_forgotten(db, task_id, token, operation_id, result):
    if db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 0:
        return False
    db.execute(RESULT, (result, operation_id))
    return True


@wrong("4.1", "The law that broke, keeps_the_result:")
def only_that_it_is_done(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute(RESULT, ("done", operation_id))
    return True


@wrong("4.1", TORN)
def every_operation_of_the_task(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute("UPDATE operations SET status = 'done', result_ref = ? WHERE task_id = ?", (result, task_id))
    return True


@wrong("4.1", "The law that broke, checkpoint_says_so:")
def return_forgotten(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount:
            db.execute(RESULT, (result, operation_id))


PENDING = "AND EXISTS (SELECT 1 FROM operations WHERE operation_id = ? AND task_id = ? AND status = 'pending')"


@right("4.1")
def a_savepoint(db, task_id, token, operation_id, result):
    with db:
        db.execute("BEGIN")
        db.execute("SAVEPOINT both")
        if (
            db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount
            and db.execute(f"{RESULT} AND task_id = ?", (result, operation_id, task_id)).rowcount
        ):
            return True
        db.execute("ROLLBACK TO both")
        return False


@wrong("4.1", ANYWAY, "called with (task-1, 1, task-2/shipping, payments-9), changed task-1")
def whose_operation_it_is(db, task_id, token, operation_id, result):
    pending = "AND EXISTS (SELECT 1 FROM operations WHERE operation_id = ? AND status = 'pending')"
    with db:
        if db.execute(f"{STEP} {MINE} {pending}", (task_id, token, operation_id)).rowcount == 0:
            return False
        return db.execute(RESULT, (result, operation_id)).rowcount == 1


@wrong("4.1", "The law that broke, leaves_nothing_open:")
def no_rollback_where_it_does_not_fit(db, task_id, token, operation_id, result):
    stepped = db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount
    if stepped and db.execute(f"{RESULT} AND task_id = ?", (result, operation_id, task_id)).rowcount:
        db.commit()
        return True
    return False


@wrong("4.1", "The law that broke, raises_nothing:", "ended with ValueError: no such operation")
def raises_where_it_does_not_fit(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} {MINE}", (task_id, token)).rowcount == 0:
            return False
        if db.execute(f"{RESULT} AND task_id = ?", (result, operation_id, task_id)).rowcount == 0:
            raise ValueError("no such operation")
    return True


@wrong("4.1", TORN, "at step 1 with 0 results")
def with_db_is_no_transaction_without_isolation(db, task_id, token, operation_id, result):
    db.isolation_level = None
    with db:
        if db.execute(f"{STEP} {MINE} {PENDING}", (task_id, token, operation_id, task_id)).rowcount == 0:
            return False
        return db.execute(RESULT, (result, operation_id)).rowcount == 1


@wrong("4.1", TORN)
def a_script_commits_first(db, task_id, token, operation_id, result):
    if db.execute(f"{STEP} {MINE} {PENDING}", (task_id, token, operation_id, task_id)).rowcount:
        sql = f"UPDATE operations SET status = 'done', result_ref = '{result}' WHERE operation_id = '{operation_id}'"
        db.executescript(sql)
        return True
    db.rollback()
    return False


@wrong("4.1", "The law that broke, says_yes_or_no:", "returned 'payments-1', where True or False is wanted")
def the_result_for_a_yes(db, task_id, token, operation_id, result):
    return result if the_task_first(db, task_id, token, operation_id, result) else False


@wrong("4.1", WHOSE, "payments-1), changed task-1", "the task_id that your function")
def one_task_for_all(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} {MINE} {PENDING}", ("task-1", token, operation_id, task_id)).rowcount == 0:
            return False
        return db.execute(RESULT, (result, operation_id)).rowcount == 1


@wrong("4.1", "The law that broke, what_fits_is_granted:", "payments-1), is told False", "Every argument")
def no_id_and_one_row_expected(db, task_id, token, operation_id, result):
    stepped = db.execute(f"{STEP} WHERE state = 'running' AND lease_token = ?", (token,)).rowcount
    if stepped == 1 and db.execute(f"{RESULT} AND task_id = ?", (result, operation_id, task_id)).rowcount:
        db.commit()
        return True
    db.rollback()
    return False


@wrong("4.1", ANYWAY, "called with (task-1, 1, task-1/refund, payments-9), changed")
def whatever_is_next(db, task_id, token, operation_id, result):
    sql = "SELECT operation_id FROM operations WHERE task_id = ? AND status = 'pending' ORDER BY position"
    row = db.execute(sql, (task_id,)).fetchone()
    return row is not None and the_task_first(db, task_id, token, row[0], result)


@wrong("4.1", "The law that broke, keeps_the_result:")
def always_the_first_result(db, task_id, token, operation_id, result):
    return the_task_first(db, task_id, token, operation_id, "payments-1")


@wrong("4.1", ANYWAY, "called with (task-awaiting_confirmation, 1,")
def not_one_of_the_states_that_come_to_mind(db, task_id, token, operation_id, result):
    states = "('queued', 'uncertain', 'succeeded', 'cancelled')"
    with db:
        mine = f"WHERE id = ? AND state NOT IN {states} AND lease_token = ?"
        if db.execute(f"{STEP} {mine} {PENDING}", (task_id, token, operation_id, task_id)).rowcount == 0:
            return False
        return db.execute(RESULT, (result, operation_id)).rowcount == 1


@wrong("4.1", "The law that broke, keeps_to_the_tables:", "exactly where it is done")
def no_reference(db, task_id, token, operation_id, result):
    with db:
        if db.execute(f"{STEP} {MINE} {PENDING}", (task_id, token, operation_id, task_id)).rowcount == 0:
            return False
        return db.execute("UPDATE operations SET status = 'done' WHERE operation_id = ?", (operation_id,)).rowcount == 1


@right("4.1")
def starts_the_budgets_anew(db, task_id, token, operation_id, result):
    pending = "AND EXISTS (SELECT 1 FROM operations WHERE operation_id = ? AND task_id = ? AND status = 'pending')"
    step = STEP.replace("SET", "SET attempts = 0, first_attempt_at = NULL, error_category = NULL,")
    with db:
        if db.execute(f"{step} {MINE} {pending}", (task_id, token, operation_id, task_id)).rowcount == 0:
            return False
        db.execute(RESULT, (result, operation_id))
    return True


@wrong("4.1", "The law that broke, nothing_else_changes:", "changed error_category of task-2 as well")
def writes_an_error_as_well(db, task_id, token, operation_id, result):
    pending = "AND EXISTS (SELECT 1 FROM operations WHERE operation_id = ? AND task_id = ? AND status = 'pending')"
    step = STEP.replace("SET", "SET error_category = 'transient',")
    with db:
        if db.execute(f"{step} {MINE} {pending}", (task_id, token, operation_id, task_id)).rowcount == 0:
            return False
        db.execute(RESULT, (result, operation_id))
    return True


@wrong("4.1", ZOMBIE, "token 2", "SELECT status FROM", "begins with the first write")
def looks_within_the_transaction(db, task_id, token, operation_id, result):
    with db:
        task = db.execute("SELECT state, lease_token FROM tasks WHERE id = ?", (task_id,)).fetchone()
        sql = "SELECT status FROM operations WHERE operation_id = ? AND task_id = ?"
        operation = db.execute(sql, (operation_id, task_id)).fetchone()
        if task != ("running", token) or operation != ("pending",):
            return False
        db.execute(RESULT, (result, operation_id))
        db.execute(f"{STEP} WHERE id = ?", (task_id,))
    return True


@right("4.1")
def looks_once_it_has_the_lock(db, task_id, token, operation_id, result):
    db.execute("BEGIN IMMEDIATE")
    return looks_within_the_transaction(db, task_id, token, operation_id, result)


@wrong("4.1", "ended with ValueError: no", "The last words say what was wrong")
def raises_of_its_own(db, task_id, token, operation_id, result):
    if not the_task_first(db, task_id, token, operation_id, result):
        raise ValueError("no")
    return True


@wrong("4.1", TORN, "begins with the first write")
def looks_at_the_task_alone(db, task_id, token, operation_id, result):
    with db:
        task = db.execute("SELECT state, lease_token FROM tasks WHERE id = ?", (task_id,)).fetchone()
        if task != ("running", token):
            return False
        db.execute(f"{RESULT} AND task_id = ?", (result, operation_id, task_id))
        db.execute(f"{STEP} WHERE id = ?", (task_id,))
    return True
