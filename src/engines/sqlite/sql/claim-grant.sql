-- A waiting claim is granted.
-- in: name text, id text
-- out: nothing
UPDATE claim SET holds = 1 WHERE name = :name AND id = :id
