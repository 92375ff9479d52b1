-- How a person asked a job to stop: NULL, by its engine; else the signal that was passed on, and then it is waited for.

ALTER TABLE jobs ADD COLUMN stop_signal INTEGER;
