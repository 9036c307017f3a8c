-- What this operation answered before.
-- in: id text, now real
-- out: kind text, version integer, value text?
SELECT kind, version, value FROM operation WHERE id = :id AND ends_at > :now
