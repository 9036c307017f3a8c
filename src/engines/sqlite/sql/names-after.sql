-- The next names in order.
-- in: after text, most integer
-- out: name text
SELECT name FROM name WHERE name > :after ORDER BY name LIMIT :most
