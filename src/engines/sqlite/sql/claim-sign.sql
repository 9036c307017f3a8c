-- A heartbeat. Whoever gives it guards the claim from now on: it may have been handed over to another process.
-- in: endsAt real, spanMs real, guard text, name text, id text
-- out: nothing
UPDATE claim SET ends_at = :endsAt, span_ms = :spanMs, guard = :guard WHERE name = :name AND id = :id
