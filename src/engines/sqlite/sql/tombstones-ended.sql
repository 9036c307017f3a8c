-- Old tombstones are removed, some at a time.
-- in: now real, most integer
-- out: id text
DELETE FROM tombstone WHERE (id, name) IN (SELECT id, name FROM tombstone WHERE ends_at <= :now LIMIT :most)
RETURNING id
