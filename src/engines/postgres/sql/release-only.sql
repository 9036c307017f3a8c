-- Gives back the only claim of a name, without a tombstone, in one plain statement. Changes nothing when there are other
-- claims, or when it is not this client's: then the function is called.
-- verb: release
-- in: name, id, tombstone, client
-- out: answer
UPDATE holdfast.name t SET taken = 0, holders = 0, soonest_end = 'infinity', touched_at = clock_timestamp(), sole_id = '',
  sole = NULL
WHERE t.name = :name AND t.sole_id = :id AND NOT :tombstone AND (t.sole).client = :client AND t.soonest_end > clock_timestamp()
  AND set_config('lock_timeout', '3s', true) <> ''
RETURNING '"released"' AS answer
