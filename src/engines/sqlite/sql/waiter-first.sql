-- The first that waits.
-- in: name text
-- out: id text, units integer, token integer, holds integer, endsAt real, leaseMs real, exact integer, client text, process text
SELECT id, units, token, holds, ends_at AS endsAt, lease_ms AS leaseMs, exact, client, process
FROM claim WHERE name = :name AND holds = 0 ORDER BY token LIMIT 1
