-- Holders whose lease has ended leave.
-- in: name text, now real
-- out: units integer
DELETE FROM claim WHERE name = :name AND token > 0 AND ends_at <= :now RETURNING units
