-- The process has ended: all its claims on this name are removed.
-- in: name text, process text
-- out: holds integer, units integer
DELETE FROM claim WHERE name = :name AND process = :process RETURNING holds, units
