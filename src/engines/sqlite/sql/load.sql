-- The first statement of every transaction: the store, a name, and whether the claim has a tombstone under it.
-- in: name text, id text, now real
-- out: boot text, tokenFloor integer, hasTombstone integer, capacity integer?, taken integer?, holders integer?, waiters integer?, lastToken integer?, soonestEnd real?, frontToken integer?, frontEnd real?, sole text?
SELECT
  s.boot, s.token_floor AS tokenFloor,
  EXISTS (SELECT 1 FROM tombstone t WHERE t.id = :id AND t.name = :name AND t.ends_at > :now) AS hasTombstone,
  n.capacity, n.taken, n.holders, n.waiters, n.last_token AS lastToken,
  n.soonest_end AS soonestEnd, n.front_token AS frontToken, n.front_end AS frontEnd, n.sole
FROM store s
LEFT JOIN name n ON n.name = :name
