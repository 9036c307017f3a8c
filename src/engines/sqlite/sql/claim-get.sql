-- A claim as it stands.
-- in: name text, id text
-- out: id text, seq integer, units integer, token integer, endsAt real, leaseMs real, tokenAtLeast integer, exact integer, client text, process text
SELECT id, seq, units, token, ends_at AS endsAt, lease_ms AS leaseMs, token_at_least AS tokenAtLeast, exact, client, process
FROM claim WHERE name = :name AND id = :id
