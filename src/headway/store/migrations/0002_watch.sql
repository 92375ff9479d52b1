-- What is watched live: progress, log records, usage, checkpoints, timings.

CREATE TABLE progress (                            -- the absolute position of each tracker; a resend changes nothing
  task        INTEGER NOT NULL REFERENCES tasks (pk) ON DELETE CASCADE,
  pid         INTEGER NOT NULL,
  tracker     INTEGER NOT NULL,
  source      TEXT NOT NULL,                       -- api, or output: read from what the program printed
  rank        INTEGER,
  msg         TEXT NOT NULL,                       -- JSON list of words
  completed   REAL NOT NULL,
  total       REAL,
  state       TEXT NOT NULL,                       -- running completed failed closed
  distributed INTEGER NOT NULL DEFAULT 0,          -- shared by processes: their positions add up
  rate        REAL,
  eta_s       REAL,
  started_ns  INTEGER,
  updated_ns  INTEGER NOT NULL,
  PRIMARY KEY (task, pid, tracker, source)
) WITHOUT ROWID;

CREATE TABLE records (                             -- what went through `logging`
  pk      INTEGER PRIMARY KEY,
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  seq     INTEGER NOT NULL,                        -- 1, 2, 3 … of a job, in the order they came
  attempt INTEGER NOT NULL,
  rank    INTEGER,
  time_ns INTEGER NOT NULL,
  levelno INTEGER NOT NULL,
  printed INTEGER NOT NULL,                        -- a handler of the program shows it in its output too
  text    TEXT NOT NULL,
  data    TEXT NOT NULL                            -- JSON: the rest of the fact
);
CREATE UNIQUE INDEX records_by_job ON records (job, seq);

CREATE TABLE record_totals (                       -- of the records of a job that are kept
  job       INTEGER PRIMARY KEY REFERENCES jobs (pk) ON DELETE CASCADE,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  bytes     INTEGER NOT NULL
);

CREATE TABLE usage (                               -- level 0: each sample; 1: 10 s; 2: 60 s, with min, mean and max
  task    INTEGER NOT NULL REFERENCES tasks (pk) ON DELETE CASCADE,
  level   INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  data    BLOB NOT NULL,                           -- JSON of the fact, deflated
  PRIMARY KEY (task, level, time_ns)
) WITHOUT ROWID;
CREATE INDEX usage_by_age ON usage (level, time_ns);

CREATE TABLE usage_last (                          -- the last sample of a task in short, for lists
  task        INTEGER PRIMARY KEY REFERENCES tasks (pk) ON DELETE CASCADE,
  time_ns     INTEGER NOT NULL,
  data        TEXT NOT NULL,                       -- JSON {ranks: [[rank, cpu, memory]], gpus: [[rank, load, memory]]}
  peak_bytes  INTEGER,                             -- the most memory that one rank has used
  peak_rank   INTEGER
);

CREATE TABLE checkpoints (
  pk      INTEGER PRIMARY KEY,
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  rank    INTEGER,
  time_ns INTEGER NOT NULL,
  tags    TEXT NOT NULL                            -- JSON list
);
CREATE INDEX checkpoints_by_job ON checkpoints (job, time_ns);

CREATE TABLE timings (                             -- totals so far of one named event of one process
  task   INTEGER NOT NULL REFERENCES tasks (pk) ON DELETE CASCADE,
  pid    INTEGER NOT NULL,
  name   TEXT NOT NULL,
  rank   INTEGER,
  count  INTEGER NOT NULL,
  mean_s REAL NOT NULL,
  std_s  REAL NOT NULL,
  min_s  REAL NOT NULL,
  max_s  REAL NOT NULL,
  PRIMARY KEY (task, pid, name)
) WITHOUT ROWID;
