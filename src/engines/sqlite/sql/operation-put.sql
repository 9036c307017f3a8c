-- Remember what this operation answered.
-- in: id text, version integer, value text?, endsAt real
-- out: nothing
INSERT INTO operation (id, version, value, ends_at) VALUES (:id, :version, :value, :endsAt)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, value = excluded.value, ends_at = excluded.ends_at
