-- Old marks leave, some at a time.
-- in: now real, most integer
-- out: nothing
DELETE FROM mark WHERE (id, name) IN (SELECT id, name FROM mark WHERE ends_at <= :now LIMIT :most)
