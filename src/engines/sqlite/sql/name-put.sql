-- What changed on a name in this step, in one go at its end.
-- in: name text, capacity integer, taken integer, holders integer, waiters integer, lastToken integer, soonestEnd real, frontToken integer, frontEnd real, sole text
-- out: nothing
INSERT INTO name (name, capacity, taken, holders, waiters, last_token, soonest_end, front_token, front_end, sole)
VALUES (:name, :capacity, :taken, :holders, :waiters, :lastToken, :soonestEnd, :frontToken, :frontEnd, :sole)
ON CONFLICT (name) DO UPDATE SET
  capacity = excluded.capacity, taken = excluded.taken, holders = excluded.holders, waiters = excluded.waiters,
  last_token = excluded.last_token, soonest_end = excluded.soonest_end,
  front_token = excluded.front_token, front_end = excluded.front_end, sole = excluded.sole
