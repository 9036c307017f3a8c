-- How long the queue is.
-- in: name text
-- out: waiters integer
SELECT waiters FROM name WHERE name = :name
