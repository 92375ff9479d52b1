-- A bar of a loop inside another is not the job's; and the usual time between two positions tells a
-- stop from a slow step.
ALTER TABLE progress ADD COLUMN inner INTEGER NOT NULL DEFAULT 0;
ALTER TABLE progress ADD COLUMN gap_s REAL;
