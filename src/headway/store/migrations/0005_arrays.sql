-- Arrays: many jobs submitted as one. And what lets the queue be read without reading all of it.

CREATE TABLE arrays (
  uuid         TEXT PRIMARY KEY,                   -- the key of the submission: same uuid, same array (P9)
  id           TEXT NOT NULL UNIQUE,               -- <name>-<suffix>
  suffix       TEXT NOT NULL UNIQUE,               -- five characters that no job has either
  name         TEXT NOT NULL,
  parent       TEXT,                               -- id of the array that this one repeats
  submitted_ns INTEGER NOT NULL
) WITHOUT ROWID;

ALTER TABLE jobs ADD COLUMN array TEXT;            -- arrays.uuid
ALTER TABLE jobs ADD COLUMN array_index INTEGER;
ALTER TABLE jobs ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;  -- an attempt was made, or at least meant
UPDATE jobs SET begun = 1 WHERE pk IN (SELECT job FROM attempts);
CREATE TRIGGER attempts_begin AFTER INSERT ON attempts BEGIN
  UPDATE jobs SET begun = 1 WHERE pk = NEW.job AND begun = 0;
END;
-- A suffix that an array has is as good as taken: nothing is inserted, and another one is drawn.
CREATE TRIGGER jobs_suffix BEFORE INSERT ON jobs WHEN EXISTS (SELECT 1 FROM arrays WHERE suffix = NEW.suffix) BEGIN
  SELECT RAISE(IGNORE);
END;
CREATE INDEX jobs_by_array ON jobs (array, state, deleted_ns, ended_ns, started_ns) WHERE array IS NOT NULL;
CREATE INDEX jobs_by_queue ON jobs (begun, state, cluster, priority DESC, submitted_ns, pk);
CREATE INDEX jobs_to_stop ON jobs (pk) WHERE stop_requested_ns IS NOT NULL AND ended_ns IS NULL;
