-- All live tokens, for the exact fence.
-- in: name text
-- out: token integer
SELECT token FROM claim WHERE name = :name AND token > 0 ORDER BY token
