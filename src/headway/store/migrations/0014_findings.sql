-- What the diagnosis of a failed attempt found: JSON {verdict findings hypotheses fingerprint}, bounded.

ALTER TABLE attempts ADD COLUMN findings TEXT;
