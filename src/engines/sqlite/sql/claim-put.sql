-- A new claim, granted (token > 0) or waiting.
-- in: name text, id text, seq integer, units integer, token integer, endsAt real, spanMs real, leaseMs real, tokenAtLeast integer, exact integer, client text, process text, owner text, data text?
-- out: nothing
INSERT INTO claim (name, id, seq, units, token, ends_at, span_ms, lease_ms, token_at_least, exact, client, process, owner, data)
VALUES (:name, :id, :seq, :units, :token, :endsAt, :spanMs, :leaseMs, :tokenAtLeast, :exact, :client, :process, :owner, :data)
