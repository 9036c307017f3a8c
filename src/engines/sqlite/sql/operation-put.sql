-- Remember what this operation answered.
-- in: id text, kind text, version integer, value text?, endsAt real
-- out: nothing
INSERT INTO operation (id, kind, version, value, ends_at) VALUES (:id, :kind, :version, :value, :endsAt)
ON CONFLICT (id) DO UPDATE SET
  kind = excluded.kind, version = excluded.version, value = excluded.value, ends_at = excluded.ends_at
