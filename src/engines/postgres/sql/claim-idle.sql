-- Takes an idle name without tombstones in one plain statement: as a function it costs twice as much. Changes nothing when the
-- name is in use or unknown: then the function is called. One clock throughout, the time at which the statement came in: time
-- spent waiting for the row is off the lease. The filter with lock_timeout is passed before the row that it lets through is locked.
-- verb: claim
-- in: name, id, units, capacity, leaseMs, owner, data, exact, atLeast, reserve, client, listens
-- out: answer
UPDATE holdfast.name t SET capacity = :capacity, taken = :units, holders = 1,
  last_token = greatest(t.last_token + 1, holdfast.micros(statement_timestamp()), :atLeast) + :reserve,
  low_token = greatest(t.last_token + 1, holdfast.micros(statement_timestamp()), :atLeast),
  soonest_end = statement_timestamp() + :leaseMs * interval '1 millisecond', touched_at = statement_timestamp(), sole_id = :id,
  sole = ROW(
    :name, :id, :units, greatest(t.last_token + 1, holdfast.micros(statement_timestamp()), :atLeast), true,
    statement_timestamp() + :leaseMs * interval '1 millisecond', :leaseMs, :exact, :client, :listens, :owner, :data
  )
WHERE t.name = :name AND t.holders = 0 AND t.waiters = 0 AND t.tombstones_end <= statement_timestamp() AND :units <= :capacity
  AND set_config('lock_timeout', '3s', true) <> ''
RETURNING format(
  '{"kind":"granted","leftMs":%s,"token":%s,"floor":%2$s%s}', holdfast.left_ms(t.soonest_end, clock_timestamp()),
  t.low_token, CASE WHEN :exact THEN format(',"live":[%s]', t.low_token) END
) AS answer
