-- What changed on a name in this step, in one go at its end.
-- in: name text, capacity integer, taken integer, holders integer, waiters integer, lastToken integer, lastSeq integer, soonestEnd real, frontSeq integer, frontEnd real, sole text
-- out: nothing
INSERT INTO name (name, capacity, taken, holders, waiters, last_token, last_seq, soonest_end, front_seq, front_end, sole)
VALUES (:name, :capacity, :taken, :holders, :waiters, :lastToken, :lastSeq, :soonestEnd, :frontSeq, :frontEnd, :sole)
ON CONFLICT (name) DO UPDATE SET
  capacity = excluded.capacity, taken = excluded.taken, holders = excluded.holders, waiters = excluded.waiters,
  last_token = excluded.last_token, last_seq = excluded.last_seq, soonest_end = excluded.soonest_end,
  front_seq = excluded.front_seq, front_end = excluded.front_end, sole = excluded.sole
