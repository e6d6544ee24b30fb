"""Exercise 8.1: a change and its message in one transaction."""

import sqlite3
import uuid

from answers import right, wrong

END = "UPDATE tasks SET state = 'succeeded', version = version + 1, lease_owner = NULL, lease_expires_at = NULL"
MINE = "WHERE id = ? AND state = 'running' AND lease_token = ?"
POST = (
    "INSERT INTO outbox (message_id, task_id, topic, payload, created_at) "
    "VALUES (:message_id, :task_id, :topic, :payload, :created_at)"
)
ANYWAY = "The law that broke, must_be_refused:"
GIVEN = "The law that broke, announced_as_given:"


@right("8.1")
def both_in_one(db, task_id, token, message):
    with db:
        if db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message})
    return True


@right("8.1")
def message_first_and_rolled_back(db, task_id, token, message):
    (known,) = db.execute("SELECT count(*) FROM outbox WHERE message_id = ?", (message["message_id"],)).fetchone()
    if known:
        return False
    db.execute(POST, message | {"task_id": task_id})
    if db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 1:
        db.commit()
        return True
    db.rollback()
    return False


@wrong("8.1", "The law that broke, every_end_is_announced:", "1 surprise (crash)")
def the_message_afterwards(db, task_id, token, message):
    with db:
        changed = db.execute(f"{END} {MINE}", (task_id, token)).rowcount
    if changed:
        with db:
            db.execute(POST, {"task_id": task_id, **message})
    return changed == 1


@wrong("8.1", "The law that broke, announces_only_what_happened:")
def the_message_before(db, task_id, token, message):
    with db:
        db.execute(POST.replace("INSERT", "INSERT OR IGNORE"), {"task_id": task_id, **message})
    with db:
        return db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 1


@wrong("8.1", "The law that broke, announces_only_what_happened:", "1 surprise (pause)")
def the_message_whoever_ends_it(db, task_id, token, message):
    with db:
        changed = db.execute(f"{END} {MINE}", (task_id, token)).rowcount
        db.execute(POST.replace("INSERT", "INSERT OR IGNORE"), {"task_id": task_id, **message})
    return changed == 1


TAKEN = ("A message that the outbox refuses", "The law that broke, both_or_neither:", "A hint: The INSERT is refused")


@wrong("8.1", *TAKEN, "worker-1 made task-1 succeeded, and its message was refused: that id is taken")
def a_refused_message_is_passed_over(db, task_id, token, message):
    with db:
        changed = db.execute(f"{END} {MINE}", (task_id, token)).rowcount
        try:
            if changed:
                db.execute(POST, {"task_id": task_id, **message})
        except sqlite3.IntegrityError:
            pass
    return changed == 1


@wrong("8.1", *TAKEN, "worker-1 made task-1 succeeded, and its message was refused: that id is taken")
def or_ignore(db, task_id, token, message):
    with db:
        changed = db.execute(f"{END} {MINE}", (task_id, token)).rowcount
        if changed:
            db.execute(POST.replace("INSERT", "INSERT OR IGNORE"), {"task_id": task_id, **message})
    return changed == 1


@wrong("8.1", *TAKEN, "worker-1 has deleted the message of task-2, task-1/succeeded")
def or_replace(db, task_id, token, message):
    with db:
        changed = db.execute(f"{END} {MINE}", (task_id, token)).rowcount
        if changed:
            db.execute(POST.replace("INSERT", "INSERT OR REPLACE"), {"task_id": task_id, **message})
    return changed == 1


@right("8.1")
def a_refused_message_is_a_no(db, task_id, token, message):
    try:
        return both_in_one(db, task_id, token, message)
    except sqlite3.IntegrityError:
        return False


@wrong("8.1", "The law that broke, announces_only_what_happened:", "1 surprise (pause)", "<- WRONG", "row count says")
def whatever_the_row_count(db, task_id, token, message):
    with db:
        db.execute(f"{END} {MINE}", (task_id, token))
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", "The law that broke, every_end_is_announced:")
def no_message(db, task_id, token, message):
    with db:
        return db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 1


@wrong("8.1", "The law that broke, only_the_current_token:")
def no_token(db, task_id, token, message):
    with db:
        if db.execute(f"{END} WHERE id = ? AND state = 'running'", (task_id,)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", ANYWAY, "A hint: Which columns must the WHERE clause compare", "The token alone is not enough")
def no_state(db, task_id, token, message):
    with db:
        if db.execute(f"{END} WHERE id = ? AND lease_token = ?", (task_id, token)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", "The law that broke, leaves_nothing_open:")
def commit_forgotten(db, task_id, token, message):
    if db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 0:
        return False
    db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", "The law that broke, every_change_has_its_version:")
def version_stays(db, task_id, token, message):
    with db:
        sql = "UPDATE tasks SET state = 'succeeded', lease_owner = NULL, lease_expires_at = NULL"
        if db.execute(f"{sql} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", "The law that broke, says_so:")
def return_forgotten(db, task_id, token, message):
    with db:
        if db.execute(f"{END} {MINE}", (task_id, token)).rowcount:
            db.execute(POST, {"task_id": task_id, **message})


@wrong("8.1", "The law that broke, keeps_to_the_tables:", "ended with IntegrityError")
def the_lease_stays(db, task_id, token, message):
    with db:
        sql = "UPDATE tasks SET state = 'succeeded', version = version + 1"
        if db.execute(f"{sql} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message})
    return True


@right("8.1")
def only_where_one_row_has_changed(db, task_id, token, message):
    post = POST.replace("VALUES (", "SELECT ").replace(":created_at)", ":created_at WHERE changes() = 1")
    with db:
        changed = db.execute(f"{END} {MINE}", (task_id, token)).rowcount
        db.execute(post, {"task_id": task_id, **message})
    return changed


@wrong("8.1", "The law that broke, announced_as_given:", "whose message_id is")
def an_id_of_its_own(db, task_id, token, message):
    return both_in_one(db, task_id, token, message | {"message_id": str(uuid.uuid5(uuid.NAMESPACE_URL, task_id))})


@wrong("8.1", "The law that broke, tokens_only_grow:")
def the_token_too_is_cleared(db, task_id, token, message):
    with db:
        sql = f"{END}, lease_token = 0 {MINE}"
        if db.execute(sql, (task_id, token)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", "The law that broke, says_yes_or_no:", "returned None, where True or False is wanted", "(pause)")
def says_nothing_where_it_is_not_its_own(db, task_id, token, message):
    return both_in_one(db, task_id, token, message) or None


@wrong(
    "8.1", "The law that broke, announces_only_what_happened:", "1 surprise (pause)", "worker-2 ended with Integrity"
)
def the_message_first_and_again(db, task_id, token, message):
    with db:
        db.execute(POST, {"task_id": task_id, **message})
        return db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 1


@wrong("8.1", GIVEN, 'whose payload is {}, not {"order": 1042}')
def a_payload_of_its_own(db, task_id, token, message):
    return both_in_one(db, task_id, token, message | {"payload": "{}"})


@wrong("8.1", GIVEN, "whose created_at is 0.0, not 1.5")
def a_time_of_its_own(db, task_id, token, message):
    return both_in_one(db, task_id, token, message | {"created_at": 0})


@wrong("8.1", "Two tasks, one after the other", GIVEN, "whose task_id is task-1, not task-2")
def always_the_same_task(db, task_id, token, message):
    return both_in_one(db, task_id, token, message | {"task_id": "task-1"})


@wrong(
    "8.1",
    "The law that broke, no_worker_breaks:",
    "OperationalError: no such column: task_id",
    "end worker-1",
    "Names of tables and columns stand in labkit/schema.sql",
)
def a_column_that_is_not_there(db, task_id, token, message):
    with db:
        ended = db.execute(f"{END} WHERE task_id = ? AND state = 'running' AND lease_token = ?", (task_id, token))
        if ended.rowcount == 1:
            db.execute(POST, {"task_id": task_id, **message})
    return ended.rowcount == 1


TWO = "Two tasks, one after the other"


@wrong("8.1", TWO, "The law that broke, what_fits_is_granted:", "called with (task-2, 2,", "Whose row is it?")
def no_id_and_taken_back_unless_one(db, task_id, token, message):
    if db.execute(f"{END} WHERE state = 'running' AND lease_token = ?", (token,)).rowcount != 1:
        db.rollback()
        return False
    with db:
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", TWO, "The law that broke, leaves_others_alone:", "called with (task-2, 2,", "changed task-1")
def the_first_under_this_token(db, task_id, token, message):
    mine = "WHERE id = (SELECT min(id) FROM tasks WHERE state = 'running' AND lease_token = ?)"
    with db:
        if db.execute(f"{END} {mine}", (token,)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong(
    "8.1", "A message that the outbox refuses", "The law that broke, says_what_it_did:", "its message is known already"
)
def announced_means_done(db, task_id, token, message):
    known = "SELECT 1 FROM outbox WHERE message_id = ?"
    if db.execute(known, (message["message_id"],)).fetchone():
        return db.execute("SELECT state FROM tasks WHERE id = ?", (task_id,)).fetchone() is not None
    return both_in_one(db, task_id, token, message)


@wrong("8.1", "A message that the outbox refuses", "The law that broke, says_what_it_did:", "and has changed nothing")
def a_refused_message_is_a_yes(db, task_id, token, message):
    try:
        return both_in_one(db, task_id, token, message)
    except sqlite3.IntegrityError:
        return True


@wrong("8.1", "A message that the outbox refuses", "The law that broke, says_yes_or_no:", "returned None")
def a_refused_message_is_passed_over_in_silence(db, task_id, token, message):
    try:
        return both_in_one(db, task_id, token, message)
    except sqlite3.IntegrityError:
        return None


def ends_by(sql, db, task_id, token, message, **others):
    with db:
        if db.execute(f"{sql} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute(POST, {"task_id": task_id, **message, **others})
    return True


@wrong("8.1", TWO, "The law that broke, given_back:", "worker-0 is its owner on record still", "lease_owner = NULL")
def the_owner_stays(db, task_id, token, message):
    return ends_by(END.replace("lease_owner = NULL, ", ""), db, task_id, token, message)


@wrong("8.1", TWO, "The law that broke, nothing_else_changes:", "changed step of task-2 as well")
def a_step_as_well(db, task_id, token, message):
    return ends_by(f"{END}, step = step + 1", db, task_id, token, message)


@wrong("8.1", TWO, GIVEN, "whose topic is task.succeeded, not refunds")
def always_the_same_topic(db, task_id, token, message):
    return ends_by(END, db, task_id, token, message, topic="task.succeeded")


@wrong("8.1", TWO, GIVEN, "whose message_id is task-2/succeeded, not told-task-2")
def an_id_made_of_the_task(db, task_id, token, message):
    return ends_by(END, db, task_id, token, message, message_id=f"{task_id}/succeeded")


@wrong("8.1", GIVEN, "wrote task-1/succeeded as delivered, and nobody will hand it over")
def marked_as_delivered(db, task_id, token, message):
    with db:
        if db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 0:
            return False
        post = POST.replace("created_at)", "created_at, delivered_at)", 1).replace(":created_at)", ":created_at, 0)")
        db.execute(post, {"task_id": task_id, **message})
    return True


@wrong("8.1", TWO, "The law that broke, messages_stay:", "the message of task-2, task-2/begun")
def one_message_a_task(db, task_id, token, message):
    with db:
        if db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 0:
            return False
        db.execute("DELETE FROM outbox WHERE task_id = ?", (task_id,))
        db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong(
    "8.1", TWO, "The law that broke, every_end_has_its_message:", "made task-2 succeeded, and its message is not there"
)
def told_once_is_told(db, task_id, token, message):
    told = db.execute("SELECT 1 FROM outbox WHERE task_id = ?", (task_id,)).fetchone()
    with db:
        if db.execute(f"{END} {MINE}", (task_id, token)).rowcount == 0:
            return False
        if not told:
            db.execute(POST, {"task_id": task_id, **message})
    return True


@wrong("8.1", "A task that has ended, and said so", ANYWAY, "is told True, and has changed nothing", "changed no row")
def announced_by_this_task_means_done(db, task_id, token, message):
    known = "SELECT 1 FROM outbox WHERE message_id = ? AND task_id = ?"
    if db.execute(known, (message["message_id"], task_id)).fetchone():
        return True
    return both_in_one(db, task_id, token, message)


@right("8.1")
def the_message_first_in_the_same_transaction(db, task_id, token, message):
    class NotMine(Exception):
        pass

    try:
        with db:
            db.execute(POST, {"task_id": task_id, **message})
            if db.execute(f"{END} {MINE}", (task_id, token)).rowcount != 1:
                raise NotMine
    except NotMine:
        return False
    return True
