-- Takes an idle name without tombstones in one plain statement: a CALL costs this server twice as much. Changes no row when
-- the name is in use or unknown: then the procedure is called. The token that it mints is the connection's last insert id.
-- `last_token` is set after `sole_token`, which is computed from what it was before.
-- verb: claim
-- in: name, id, units, capacity, leaseMs, owner, data, exact, atLeast, reserve, client, listens
-- out: nothing
UPDATE holdfast.name SET capacity = :capacity, taken = :units, holders = 1,
  soonest_end = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :leaseMs * 1000,
  touched_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
  sole_token = LAST_INSERT_ID(GREATEST(last_token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), :atLeast)),
  last_token = GREATEST(last_token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), :atLeast) + :reserve,
  sole_id = :id, sole_lease_ms = :leaseMs, sole_exact = :exact, sole_client = :client, sole_listens = :listens,
  sole_owner = :owner, sole_data = :data
WHERE name = :name AND holders = 0 AND waiters = 0
  AND tombstones_end <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
