-- A student's journal: what was predicted, checked and explained. Rows are added, never changed.

CREATE TABLE entries (
    seq  INTEGER PRIMARY KEY,
    at   REAL NOT NULL,                                     -- seconds since 1970-01-01, UTC
    kind TEXT NOT NULL CHECK (kind IN ('prediction', 'check', 'why')),
    name TEXT NOT NULL,                                     -- of the prediction, or the exercise's number
    data TEXT NOT NULL                                      -- JSON
) STRICT;

CREATE INDEX entries_by_name ON entries (kind, name, seq);
