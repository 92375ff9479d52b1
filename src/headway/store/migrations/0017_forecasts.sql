-- The first forecast of when a waiting job starts: what was reckoned, and what was told after the
-- correction by earlier ones. When it did start stands with the job.

CREATE TABLE forecasts (
  job     INTEGER PRIMARY KEY REFERENCES jobs (pk) ON DELETE CASCADE,
  place   TEXT NOT NULL,                          -- the cluster and its definition
  made_ns INTEGER NOT NULL,
  raw_ns  INTEGER NOT NULL,
  told_ns INTEGER NOT NULL
);
