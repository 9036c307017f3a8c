-- A hold shrinks.
-- in: units integer, name text, id text
-- out: nothing
UPDATE claim SET units = :units WHERE name = :name AND id = :id
