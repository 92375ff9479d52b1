-- What a job tracked beside its points: how its metrics are meant, its own summary, media, and artifacts with their
-- versions and who made and used them.

CREATE TABLE metric_definitions (
  job  INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  name TEXT NOT NULL,                              -- a metric, or a pattern with *
  data TEXT NOT NULL,                              -- JSON {x goal summary}
  PRIMARY KEY (job, name)
) WITHOUT ROWID;

CREATE TABLE summary_values (                        -- values that the program itself gave as its outcome
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  name    TEXT NOT NULL,
  value   TEXT NOT NULL,                           -- JSON
  attempt INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  PRIMARY KEY (job, name)
) WITHOUT ROWID;

CREATE TABLE media (                               -- images, audio, tables, histograms, text, figures
  pk      INTEGER PRIMARY KEY,
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  rank    INTEGER,
  key     TEXT NOT NULL,                           -- drawn by the process: its pieces have it, too
  name    TEXT NOT NULL,
  step    INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  kind    TEXT NOT NULL,
  mime    TEXT NOT NULL,
  size    INTEGER NOT NULL,
  meta    TEXT NOT NULL,                           -- JSON
  UNIQUE (job, attempt, key)
);
CREATE INDEX media_by_name ON media (job, name, step);

CREATE TABLE media_pieces (
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  key     TEXT NOT NULL,
  number  INTEGER NOT NULL,
  data    BLOB NOT NULL,
  PRIMARY KEY (job, attempt, key, number)
);

CREATE TABLE artifacts (                           -- one version of a file or folder; its files lie in the home
  pk         INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL,
  version    INTEGER NOT NULL,                     -- 0, 1, 2 … of this name
  digest     TEXT NOT NULL,                        -- of the list of its files: the same content is the same version
  type       TEXT NOT NULL,
  size       INTEGER NOT NULL,
  files      TEXT NOT NULL,                        -- JSON [{path digest size}]
  meta       TEXT NOT NULL,                        -- JSON
  created_ns INTEGER NOT NULL,
  UNIQUE (name, version),
  UNIQUE (name, digest)
);

CREATE TABLE artifact_aliases (
  name     TEXT NOT NULL,
  alias    TEXT NOT NULL,                          -- latest, best …: one version of the name has it
  artifact INTEGER NOT NULL REFERENCES artifacts (pk) ON DELETE CASCADE,
  PRIMARY KEY (name, alias)
) WITHOUT ROWID;

CREATE TABLE artifact_uses (                       -- lineage
  artifact INTEGER NOT NULL REFERENCES artifacts (pk) ON DELETE CASCADE,
  job      INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  role     TEXT NOT NULL,                          -- made used
  attempt  INTEGER NOT NULL,
  step     INTEGER,
  time_ns  INTEGER NOT NULL,
  PRIMARY KEY (artifact, job, role)
) WITHOUT ROWID;
CREATE INDEX artifact_uses_by_job ON artifact_uses (job);

CREATE TABLE artifact_parts (                      -- told, and waiting for the bytes of its files
  job     INTEGER NOT NULL REFERENCES jobs (pk) ON DELETE CASCADE,
  attempt INTEGER NOT NULL,
  task    INTEGER NOT NULL REFERENCES tasks (pk) ON DELETE CASCADE,
  key     TEXT NOT NULL,
  number  INTEGER NOT NULL,
  time_ns INTEGER NOT NULL,
  data    TEXT NOT NULL,                           -- JSON: the fact
  PRIMARY KEY (job, task, key, number)
) WITHOUT ROWID;
