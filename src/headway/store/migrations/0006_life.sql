-- Retries, holds and ends without an attempt: retry is JSON {do counted text wait_s not_before_ns}, what follows an
-- attempt's failure; held is the task_held fact; cause is JSON {cause class text rank} of an end that no attempt had.

ALTER TABLE attempts ADD COLUMN retry TEXT;
ALTER TABLE tasks ADD COLUMN held TEXT;
ALTER TABLE jobs ADD COLUMN cause TEXT;
