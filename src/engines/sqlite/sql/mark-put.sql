-- Late copies of this claim will answer "gone".
-- in: id text, name text, endsAt real
-- out: nothing
INSERT INTO mark (id, name, ends_at) VALUES (:id, :name, :endsAt)
ON CONFLICT (id, name) DO UPDATE SET ends_at = excluded.ends_at
