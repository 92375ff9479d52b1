-- The page counts and lists all jobs of a home on every change, by state and by time: without reading the jobs themselves.

CREATE INDEX jobs_kept ON jobs (state, submitted_ns) WHERE deleted_ns IS NULL;
