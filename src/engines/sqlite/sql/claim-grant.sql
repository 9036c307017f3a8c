-- A waiting claim is granted.
-- in: since real, name text, id text
-- out: nothing
UPDATE claim SET holds = 1, since = :since WHERE name = :name AND id = :id
