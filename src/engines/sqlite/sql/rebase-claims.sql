-- Times of another boot say nothing: each claim gets all the time it can have had, and no process of ours guards it.
-- in: now real
-- out: nothing
UPDATE claim SET ends_at = :now + span_ms, guard = ''
