-- What is to be told to people (capability 63). A change of state and its note here are one transaction, so a server
-- that is killed between the end of a job and the telling tells it after its next start.

CREATE TABLE changes (                             -- states that nobody has looked at yet, to see whom to tell
  pk       INTEGER PRIMARY KEY,
  job      INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt  INTEGER NOT NULL,                       -- 0: there was none
  old      TEXT NOT NULL,
  new      TEXT NOT NULL,
  since_ns INTEGER NOT NULL,                       -- when the old state began
  time_ns  INTEGER NOT NULL
);

CREATE TABLE notices (                             -- the outbox: one row for each thing to tell and way to tell it
  pk         INTEGER PRIMARY KEY AUTOINCREMENT,
  key        TEXT NOT NULL,                        -- of what is told: never told twice in one way
  channel    TEXT NOT NULL,                        -- command webhook desktop
  job        INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  kind       TEXT NOT NULL,                        -- started ended failed stalled
  facts      TEXT NOT NULL,                        -- JSON
  created_ns INTEGER NOT NULL,
  due_ns     INTEGER,                              -- when to try next; null: done, or given up
  tries      INTEGER NOT NULL DEFAULT 0,
  sent_ns    INTEGER,                              -- null: not yet, or given up
  result     TEXT,                                 -- what the last try said
  UNIQUE (key, channel)
);
CREATE INDEX notices_by_due ON notices (due_ns) WHERE due_ns IS NOT NULL;
CREATE INDEX notices_by_job ON notices (job);
