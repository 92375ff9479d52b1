-- Tokens of other machines and people have a name; those of agents have a task.

ALTER TABLE tokens ADD COLUMN name TEXT;
