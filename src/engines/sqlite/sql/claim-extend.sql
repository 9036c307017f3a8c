-- A heartbeat. From now on the claim depends on the process that sent it: the hold may have been handed over to it.
-- in: endsAt real, spanMs real, process text, name text, id text
-- out: nothing
UPDATE claim SET ends_at = :endsAt, span_ms = :spanMs, process = :process WHERE name = :name AND id = :id
