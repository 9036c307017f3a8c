-- What this operation answered before.
-- in: id text, now real
-- out: version integer, value text?
SELECT version, value FROM operation WHERE id = :id AND ends_at > :now
