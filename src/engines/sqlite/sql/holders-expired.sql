-- Holders whose lease has ended leave.
-- in: name text, now real
-- out: units integer
DELETE FROM claim WHERE name = :name AND holds = 1 AND ends_at <= :now RETURNING units
