-- Gives back the only claim of a name, without a tombstone, in one plain statement. Changes no row when there are other
-- claims, or when it is not this client's: then the procedure is called.
-- verb: release
-- in: name, id, client
-- out: nothing
UPDATE holdfast.name SET taken = 0, holders = 0, soonest_end = 8000000000000000000,
  touched_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), sole_id = DEFAULT(sole_id)
WHERE name = :name AND sole_id = :id AND sole_client = :client
  AND soonest_end > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
