-- The end of the queue: the last that waits, else the youngest holder.
-- in: name text
-- out: id text, endsAt real, client text
SELECT id, ends_at AS endsAt, client
FROM claim WHERE name = :name ORDER BY holds, token DESC LIMIT 1
