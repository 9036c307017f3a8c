-- A cell.
-- in: name text
-- out: version integer, value text
SELECT version, value FROM cell WHERE name = :name
