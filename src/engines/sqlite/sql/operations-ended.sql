-- Old operations leave, some at a time.
-- in: now real, most integer
-- out: nothing
DELETE FROM operation WHERE id IN (SELECT id FROM operation WHERE ends_at <= :now LIMIT :most)
