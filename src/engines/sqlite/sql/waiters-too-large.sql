-- Waiters that can never fit again leave.
-- in: name text, capacity integer
-- out: id text, client text, endsAt real
DELETE FROM claim WHERE name = :name AND holds = 0 AND units > :capacity RETURNING id, client, ends_at AS endsAt
