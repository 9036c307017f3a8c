-- The claim leaves, and is told as it stood.
-- in: name text, id text
-- out: id text, units integer, token integer, holds integer, endsAt real, leaseMs real, exact integer, client text, process text
DELETE FROM claim WHERE name = :name AND id = :id
RETURNING id, units, token, holds, ends_at AS endsAt, lease_ms AS leaseMs, exact, client, process
