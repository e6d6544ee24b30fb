-- The books of a remote system: somebody else's file, which no worker may read to decide anything.

CREATE TABLE effects (                                      -- what really happened
    effect_id    INTEGER PRIMARY KEY,
    operation_id TEXT NOT NULL,                             -- the caller's own reference
    request_id   TEXT NOT NULL,                             -- the sending that had this effect
    body         TEXT NOT NULL,                             -- JSON
    applied_at   REAL NOT NULL
) STRICT;

CREATE INDEX effects_of_operation ON effects (operation_id);

CREATE TABLE keys (                                         -- idempotency keys, remembered for a while
    key           TEXT PRIMARY KEY,
    body          TEXT NOT NULL,
    effect_id     INTEGER NOT NULL REFERENCES effects (effect_id),
    first_used_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fences (                                       -- the largest fencing token seen for each operation
    operation_id TEXT PRIMARY KEY,
    token        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE under_way (                                    -- late requests: their callers gave up, they did not
    seq          INTEGER PRIMARY KEY,
    operation_id TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    body         TEXT NOT NULL,
    key          TEXT,
    token        INTEGER,
    arrives_at   REAL NOT NULL
) STRICT;

CREATE TABLE requests (                                     -- every request that arrived, and what it was told
    seq          INTEGER PRIMARY KEY,
    operation_id TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    key          TEXT,
    answer       TEXT NOT NULL,
    at           REAL NOT NULL
) STRICT;
