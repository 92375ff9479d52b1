-- Stacks of all processes of a task, as its agent collected them; the last few of each task are kept.

CREATE TABLE stacks (
  task    INTEGER NOT NULL REFERENCES tasks (pk) ON DELETE CASCADE,
  request INTEGER NOT NULL,                        -- the number that the server gave it; the same for all tasks
  time_ns INTEGER NOT NULL,
  data    BLOB NOT NULL,                           -- JSON of the fact, deflated
  PRIMARY KEY (task, request)
);
