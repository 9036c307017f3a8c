-- The first statement of every step: the store, a name, and whether a claim under it was marked as released.
-- in: name text, id text, now real
-- out: boot text, tokenFloor integer, marked integer, capacity integer?, taken integer?, holders integer?, waiters integer?, lastToken integer?, lastSeq integer?, soonestEnd real?, frontSeq integer?, frontEnd real?, sole text?
SELECT
  s.boot, s.token_floor AS tokenFloor,
  EXISTS (SELECT 1 FROM mark m WHERE m.id = :id AND m.name = :name AND m.ends_at > :now) AS marked,
  n.capacity, n.taken, n.holders, n.waiters, n.last_token AS lastToken, n.last_seq AS lastSeq,
  n.soonest_end AS soonestEnd, n.front_seq AS frontSeq, n.front_end AS frontEnd, n.sole
FROM store s
LEFT JOIN name n ON n.name = :name
