-- Old operations leave, some at a time.
-- in: now real, most integer
-- out: id text
DELETE FROM operation WHERE id IN (SELECT id FROM operation WHERE ends_at <= :now LIMIT :most)
RETURNING id
