-- All live tokens, for the exact fence.
-- in: name text
-- out: token integer
SELECT token FROM claim WHERE name = :name AND holds = 1 ORDER BY token
