-- A flipped bit in a job's description may leave it as valid as it was, with another command or folder.

-- CRC-32 of spec; NULL: of an earlier release, and not checked
ALTER TABLE jobs ADD COLUMN spec_crc INTEGER;
