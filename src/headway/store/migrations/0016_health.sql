-- What was found of jobs while they ran: hangs and slowness. A row without an end still holds.

CREATE TABLE health (
  pk       INTEGER PRIMARY KEY,
  job      INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt  INTEGER NOT NULL,                       -- its number
  kind     TEXT NOT NULL,                          -- hang or slow
  since_ns INTEGER NOT NULL,                       -- since when it is so
  found_ns INTEGER NOT NULL,                       -- when it was found, and last seen
  ended_ns INTEGER,                                -- it is over
  request  INTEGER,                                -- of the stacks that it was found with
  finding  TEXT NOT NULL                           -- JSON {cause class confidence rank text evidence advice …}
);
CREATE INDEX health_by_job ON health (job, attempt, kind);
