-- The range of every series, so that tables of many jobs read no points. Only finite values count.
-- `ranged` is how many points the range covers: fewer than `points` where some were stored by an earlier
-- release; housekeeping then computes it once from the points themselves.

ALTER TABLE latest ADD COLUMN low REAL;
ALTER TABLE latest ADD COLUMN low_step INTEGER;
ALTER TABLE latest ADD COLUMN high REAL;
ALTER TABLE latest ADD COLUMN high_step INTEGER;
ALTER TABLE latest ADD COLUMN ranged INTEGER NOT NULL DEFAULT 0;
CREATE INDEX latest_unranged ON latest (series) WHERE ranged < points;
