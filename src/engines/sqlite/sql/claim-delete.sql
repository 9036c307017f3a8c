-- The claim leaves.
-- in: name text, id text
-- out: nothing
DELETE FROM claim WHERE name = :name AND id = :id
