-- The first schema. Times are integer nanoseconds since the epoch (UTC). Booleans are 0 and 1.
-- WITHOUT ROWID only where rows are small: a search in such a table reads the whole of each row that it passes.
-- AUTOINCREMENT where a key outlives its row in a cache or in a viewer's cursor: it is never given to another row.

CREATE TABLE jobs (
  pk                INTEGER PRIMARY KEY AUTOINCREMENT,
  id                TEXT NOT NULL UNIQUE,          -- <name>-<suffix>
  suffix            TEXT NOT NULL UNIQUE,          -- the five characters
  uuid              TEXT NOT NULL UNIQUE,          -- also the key of the submission: same uuid, same job (P9)
  name              TEXT NOT NULL,
  experiment        TEXT,
  cluster           TEXT NOT NULL,
  engine            TEXT NOT NULL DEFAULT 'local', -- what the cluster is made of
  state             TEXT NOT NULL,
  state_since_ns    INTEGER NOT NULL,
  priority          INTEGER NOT NULL DEFAULT 0,
  spec              TEXT NOT NULL,                 -- JSON of model.job.JobSpec
  tags              TEXT NOT NULL DEFAULT '[]',    -- JSON list: --tag and hw.init(tags=)
  config            TEXT,                          -- JSON: as the program saw it
  config_attempt    INTEGER,                       -- who told it: the newest attempt, and there the lowest rank
  config_rank       INTEGER,
  provenance        TEXT,                          -- JSON
  submitted_ns      INTEGER NOT NULL,
  started_ns        INTEGER,
  ended_ns          INTEGER,
  exit_code         INTEGER,
  signal            INTEGER,
  stop_requested_ns INTEGER,
  deleted_ns        INTEGER                        -- hidden at once, removed by gc
);
CREATE INDEX jobs_by_state ON jobs (state, priority DESC, submitted_ns);
CREATE INDEX jobs_by_time ON jobs (submitted_ns);

CREATE TABLE attempts (
  pk          INTEGER PRIMARY KEY AUTOINCREMENT,
  job         INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  number      INTEGER NOT NULL,
  key         TEXT NOT NULL UNIQUE,                -- the engine's idempotency key: <uuid>-<number>
  state       TEXT NOT NULL,
  engine_id   TEXT,
  engine_word TEXT,                                -- the engine's own word for the state
  cause       TEXT,                                -- JSON {cause class text rank} or null
  exit_code   INTEGER,
  signal      INTEGER,
  created_ns  INTEGER NOT NULL,
  started_ns  INTEGER,
  ended_ns    INTEGER,
  UNIQUE (job, number)
);

CREATE TABLE tasks (
  pk       INTEGER PRIMARY KEY AUTOINCREMENT,
  attempt  INTEGER NOT NULL REFERENCES attempts (pk) ON DELETE CASCADE,
  name     TEXT NOT NULL,                          -- worker-0
  node     TEXT,
  state    TEXT NOT NULL,                          -- starting running ended lost
  heard_ns INTEGER,                                -- when its agent was last heard
  agent    TEXT,                                   -- JSON: shim pid, start, boot id, version
  result   TEXT,                                   -- JSON: the task_ended fact
  UNIQUE (attempt, name)
);

CREATE TABLE processes (
  task       INTEGER NOT NULL REFERENCES tasks (pk) ON DELETE CASCADE,
  rank       INTEGER NOT NULL,
  local_rank INTEGER NOT NULL,
  pid        INTEGER,
  state      TEXT NOT NULL,
  exit_code  INTEGER,
  signal     INTEGER,
  started_ns INTEGER,
  ended_ns   INTEGER,
  reason     TEXT,
  exception  TEXT,                                 -- JSON: the first uncaught exception
  PRIMARY KEY (task, rank)
);

CREATE TABLE streams (
  pk        INTEGER PRIMARY KEY AUTOINCREMENT,
  task      INTEGER NOT NULL REFERENCES tasks (pk) ON DELETE CASCADE,
  name      TEXT NOT NULL,
  kind      TEXT NOT NULL,
  rank      INTEGER,
  position  INTEGER NOT NULL DEFAULT 0,            -- every byte before it is applied, or is a gap
  spilled   INTEGER NOT NULL DEFAULT 0,            -- raw: every byte before it is in the plain file
  opened    TEXT,                                  -- JSON of the OPEN frame
  UNIQUE (task, name)
);

CREATE TABLE gaps (
  stream  INTEGER NOT NULL REFERENCES streams (pk) ON DELETE CASCADE,
  offset  INTEGER NOT NULL,                        -- in the stream; of the telling record where nothing was ever written
  about   TEXT,                                    -- the stream that lacks something, where it is another one
  bytes   INTEGER NOT NULL,
  records INTEGER,
  points  INTEGER,
  reason  TEXT NOT NULL,
  time_ns INTEGER NOT NULL,
  PRIMARY KEY (stream, offset)
) WITHOUT ROWID;

CREATE TABLE chunks (                              -- raw and index bytes that are not in their file yet
  stream INTEGER NOT NULL REFERENCES streams (pk) ON DELETE CASCADE,
  offset INTEGER NOT NULL,
  data   BLOB NOT NULL,
  PRIMARY KEY (stream, offset)
);

CREATE TABLE schemas (                             -- tuples of metric names, as a stream declared them
  stream INTEGER NOT NULL REFERENCES streams (pk) ON DELETE CASCADE,
  id     INTEGER NOT NULL,
  names  TEXT NOT NULL,                            -- JSON list
  PRIMARY KEY (stream, id)
);

CREATE TABLE series (                              -- one metric of one process
  pk      INTEGER PRIMARY KEY AUTOINCREMENT,
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  process TEXT NOT NULL,                           -- <pid>-<random>: two processes of one rank stay apart
  name    TEXT NOT NULL,
  UNIQUE (job, name, attempt, rank, process)
);

CREATE TABLE bundles (                             -- metrics of one process that came in the same records
  pk      INTEGER PRIMARY KEY AUTOINCREMENT,
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  process TEXT NOT NULL,
  digest  BLOB NOT NULL,                           -- of the names
  UNIQUE (job, attempt, rank, process, digest)
);

CREATE TABLE members (                             -- which column of a bundle's blocks holds a series
  series   INTEGER NOT NULL REFERENCES series (pk) ON DELETE CASCADE,
  bundle   INTEGER NOT NULL,
  position INTEGER NOT NULL,
  PRIMARY KEY (series, bundle)
) WITHOUT ROWID;
CREATE INDEX members_by_bundle ON members (bundle, position);

CREATE TABLE blocks (                              -- points as they came: all columns of one bundle together
  pk      INTEGER PRIMARY KEY AUTOINCREMENT,       -- within a segment, the order written
  bundle  INTEGER NOT NULL REFERENCES bundles (pk) ON DELETE CASCADE,
  segment INTEGER NOT NULL,                        -- of the process's stream
  tier    INTEGER NOT NULL DEFAULT 0,              -- 0 as it came, 1 merged from many, -1 damaged and set aside
  rows    INTEGER NOT NULL,
  data    BLOB NOT NULL                            -- wire/block.py: step, time in microseconds, one column per member
);
CREATE INDEX blocks_by_bundle ON blocks (bundle, segment, pk, tier, rows);

CREATE TABLE axes (                                -- step and time, shared by metrics of one bundle
  pk    INTEGER PRIMARY KEY,
  job   INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  rows  INTEGER NOT NULL,
  data  BLOB NOT NULL
);
CREATE INDEX axes_by_job ON axes (job);

CREATE TABLE columns (                             -- compacted points of one series; level 0 is every point
  series INTEGER NOT NULL REFERENCES series (pk) ON DELETE CASCADE,
  level  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,                         -- order of the pieces: segment of the stream, then number
  axis   INTEGER,                                  -- level 0: axes.pk; higher levels carry their own axis in data
  rows   INTEGER NOT NULL,
  data   BLOB NOT NULL
);
CREATE UNIQUE INDEX columns_by_series ON columns (series, level, seq, rows);

CREATE TABLE latest (                              -- last value of every series, for lists and `hw q`
  series  INTEGER PRIMARY KEY REFERENCES series (pk) ON DELETE CASCADE,
  step    INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  value   BLOB NOT NULL,                           -- f64, 8 bytes: SQLite would turn NaN into NULL (B1)
  points  INTEGER NOT NULL                         -- accepted so far
);

CREATE TABLE events (                              -- what happened to a job, in order: states, stops, notes, exceptions
  pk      INTEGER PRIMARY KEY,
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt INTEGER,
  rank    INTEGER,
  time_ns INTEGER NOT NULL,
  type    TEXT NOT NULL,
  data    TEXT NOT NULL                            -- JSON
);
CREATE INDEX events_by_job ON events (job, pk);

CREATE TABLE tokens (
  id         TEXT PRIMARY KEY,                     -- public part
  hash       BLOB NOT NULL,                        -- sha256 of the secret part (256 random bits, so no stretching)
  role       TEXT NOT NULL,                        -- ingest read operate admin
  task       TEXT,                                 -- ingest: str(TaskKey)
  created_ns INTEGER NOT NULL,
  ended_ns   INTEGER
);

CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
