-- The holders with the lowest tokens.
-- in: name text, most integer
-- out: id text, token integer, client text, process text, owner text
SELECT id, token, client, process, owner
FROM claim WHERE name = :name AND holds = 1 ORDER BY token LIMIT :most
