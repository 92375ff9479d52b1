-- The end of a task ends its tokens, and a task that leaves files asks with each of them whether it may.

CREATE INDEX tokens_by_task ON tokens (task, ended_ns) WHERE task IS NOT NULL;
