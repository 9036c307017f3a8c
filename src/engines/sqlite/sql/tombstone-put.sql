-- Late copies of this claim are answered "gone".
-- in: id text, name text, endsAt real
-- out: nothing
INSERT INTO tombstone (id, name, ends_at) VALUES (:id, :name, :endsAt)
ON CONFLICT (id, name) DO UPDATE SET ends_at = excluded.ends_at
