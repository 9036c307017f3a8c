-- The holders with the lowest tokens.
-- in: name text, most integer
-- out: id text, token integer, client text, guard text, owner text
SELECT id, token, client, guard, owner
FROM claim WHERE name = :name AND token > 0 ORDER BY token LIMIT :most
