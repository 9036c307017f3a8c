-- A cell is removed.
-- in: name text
-- out: nothing
DELETE FROM cell WHERE name = :name
