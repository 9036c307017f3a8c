-- A cell gets a value.
-- in: name text, version integer, value text
-- out: nothing
INSERT INTO cell (name, version, value) VALUES (:name, :version, :value)
ON CONFLICT (name) DO UPDATE SET version = excluded.version, value = excluded.value
