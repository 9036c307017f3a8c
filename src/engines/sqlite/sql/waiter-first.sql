-- The first in the queue: one step in an index, however long the queue is.
-- in: name text
-- out: id text, seq integer, units integer, token integer, endsAt real, leaseMs real, tokenAtLeast integer, exact integer, client text, process text
SELECT id, seq, units, token, ends_at AS endsAt, lease_ms AS leaseMs, token_at_least AS tokenAtLeast, exact, client, process
FROM claim WHERE name = :name AND token = 0 ORDER BY seq LIMIT 1
