-- The process is gone, and with it all its claims on this name.
-- in: name text, guard text
-- out: token integer, units integer
DELETE FROM claim WHERE name = :name AND guard = :guard RETURNING token, units
