-- The tables of the task store. Times are seconds of the store's clock, as REAL.
-- Read them with any SQLite tool; change them only through TaskStore, or through a conditional UPDATE like its own.

CREATE TABLE tasks (
    id               TEXT PRIMARY KEY,
    kind             TEXT NOT NULL,
    state            TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'uncertain',
                     'awaiting_confirmation', 'succeeded', 'failed', 'cancelled', 'compensated')),
    version          INTEGER NOT NULL DEFAULT 1,            -- one more with every change of where it stands
    direction        TEXT NOT NULL DEFAULT 'do' CHECK (direction IN ('do', 'undo')),
    step             INTEGER NOT NULL DEFAULT 0,            -- operations of this direction that need nothing more
    lease_owner      TEXT,                                  -- who holds it, for people; never compared
    lease_token      INTEGER NOT NULL DEFAULT 0,            -- the fencing token: a counter that only grows
    lease_expires_at REAL,
    attempts         INTEGER NOT NULL DEFAULT 0,            -- sendings of the current operation
    max_attempts     INTEGER NOT NULL DEFAULT 5,
    first_attempt_at REAL,                                  -- when the current budget of time began
    max_seconds      REAL NOT NULL DEFAULT 3600,
    next_run_at      REAL NOT NULL DEFAULT 0,               -- not to be claimed before
    awaiting_for     TEXT CHECK (awaiting_for IN ('approval', 'doubt')),
    awaiting_until   REAL,
    error_category   TEXT CHECK (error_category IN ('transient', 'permission', 'invalid', 'unconfirmed')),
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    created_at       REAL NOT NULL DEFAULT 0,
    CHECK ((state IN ('running', 'uncertain')) = (lease_expires_at IS NOT NULL)),
    CHECK ((state = 'awaiting_confirmation') = (awaiting_for IS NOT NULL))
) STRICT;

CREATE INDEX tasks_due ON tasks (next_run_at, id) WHERE state = 'queued' AND NOT (cancel_requested AND direction = 'do');
CREATE INDEX tasks_held ON tasks (lease_expires_at, id) WHERE state IN ('running', 'uncertain');

CREATE TABLE operations (
    operation_id   TEXT PRIMARY KEY,                        -- stable over every attempt; the idempotency key
    task_id        TEXT NOT NULL REFERENCES tasks (id),
    name           TEXT NOT NULL,
    position       INTEGER NOT NULL,                        -- from 0 within task and direction
    direction      TEXT NOT NULL DEFAULT 'do' CHECK (direction IN ('do', 'undo')),
    remote         TEXT NOT NULL,
    request        TEXT NOT NULL,                           -- JSON
    undo_request   TEXT,                                    -- JSON; NULL: nothing can make up for it
    needs_approval INTEGER NOT NULL DEFAULT 0 CHECK (needs_approval IN (0, 1)),
    approved_by    TEXT,
    status         TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'done', 'cannot_be_undone')),
    result_ref     TEXT,                                    -- the remote's own reference
    result_source  TEXT,                                    -- how we know: response, key, status query, person …
    UNIQUE (task_id, direction, position),
    CHECK ((status = 'done') = (result_ref IS NOT NULL))
) STRICT;

CREATE TABLE attempts (
    operation_id TEXT NOT NULL REFERENCES operations (operation_id),
    n            INTEGER NOT NULL,                          -- from 1 within the operation
    request_id   TEXT NOT NULL,                             -- on record before it is sent
    token        INTEGER NOT NULL,                          -- the lease it was sent under
    sent_at      REAL NOT NULL,
    outcome      TEXT CHECK (outcome IN ('applied', 'not_sent', 'refused', 'not_applied')),  -- NULL: unknown
    PRIMARY KEY (operation_id, n)
) STRICT, WITHOUT ROWID;

-- An operation is in doubt while an attempt has no known outcome and no result is recorded.
CREATE VIEW in_doubt AS
SELECT o.task_id, o.operation_id, min(a.sent_at) AS first_sent_at, max(a.sent_at) AS last_sent_at
FROM operations AS o JOIN attempts AS a USING (operation_id)
WHERE o.status = 'pending' AND a.outcome IS NULL
GROUP BY o.task_id, o.operation_id;

-- The next operation of a task: the first of its direction that is still pending.
CREATE VIEW next_operation AS
SELECT o.task_id, o.operation_id, o.needs_approval, o.approved_by, min(o.position) AS position
FROM operations AS o JOIN tasks AS t ON t.id = o.task_id AND t.direction = o.direction
WHERE o.status = 'pending'
GROUP BY o.task_id;

CREATE TABLE events (                                       -- the history: rows are added, never changed
    seq     INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    at      REAL NOT NULL,
    event   TEXT NOT NULL,
    source  TEXT,                                           -- NULL: the task was queued for the first time
    target  TEXT NOT NULL,
    version INTEGER NOT NULL,
    token   INTEGER NOT NULL,
    worker  TEXT,
    detail  TEXT NOT NULL DEFAULT '{}'                      -- JSON: evidence and its source, answers, errors
) STRICT;

CREATE INDEX events_of_task ON events (task_id, seq);
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events is append-only'); END;
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events is append-only'); END;

CREATE TABLE outbox (                                       -- written in the transaction of the change it announces
    seq          INTEGER PRIMARY KEY,
    message_id   TEXT NOT NULL UNIQUE,                      -- the same on every delivery
    task_id      TEXT NOT NULL REFERENCES tasks (id),
    topic        TEXT NOT NULL,
    payload      TEXT NOT NULL,                             -- JSON
    created_at   REAL NOT NULL,
    deliveries   INTEGER NOT NULL DEFAULT 0,
    delivered_at REAL
) STRICT;

CREATE INDEX outbox_undelivered ON outbox (seq) WHERE delivered_at IS NULL;

CREATE TABLE messages (                                     -- the transcript; no decision is ever read from it
    task_id TEXT NOT NULL REFERENCES tasks (id),
    n       INTEGER NOT NULL,                               -- from 1 within the task
    role    TEXT NOT NULL,
    content TEXT NOT NULL,                                  -- JSON
    PRIMARY KEY (task_id, n)
) STRICT, WITHOUT ROWID;
