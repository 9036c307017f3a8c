-- When the next lease ends.
-- in: name text
-- out: endsAt real?
SELECT min(ends_at) AS endsAt FROM claim WHERE name = :name AND holds = 1
