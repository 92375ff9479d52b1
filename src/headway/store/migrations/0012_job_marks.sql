-- What people say of a job after the fact: `hw star`, `hw bug`, `hw describe`.
ALTER TABLE jobs ADD COLUMN star INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN bug INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN description TEXT NOT NULL DEFAULT '';
