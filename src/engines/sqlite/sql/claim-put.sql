-- A new claim, which holds or waits.
-- in: name text, id text, units integer, token integer, holds integer, endsAt real, spanMs real, leaseMs real, exact integer, client text, process text, owner text, data text?, since real?
-- out: nothing
INSERT INTO claim (name, id, units, token, holds, ends_at, span_ms, lease_ms, exact, client, process, owner, data, since)
VALUES (:name, :id, :units, :token, :holds, :endsAt, :spanMs, :leaseMs, :exact, :client, :process, :owner, :data, :since)
