-- Times of another boot cannot be compared: each claim gets all the time that it can have had left, and depends on no process.
-- in: now real
-- out: nothing
UPDATE claim SET ends_at = :now + span_ms, process = '', since = NULL
