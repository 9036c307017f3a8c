-- The first statement of every step: the store, a name, and a claim under it.
-- in: name text, id text, now real
-- out: boot text, tokenFloor integer, marked integer, capacity integer?, taken integer?, holders integer?, waiters integer?, lastToken integer?, lastSeq integer?, soonestEnd real?, frontSeq integer?, frontEnd real?, seq integer?, units integer?, token integer?, endsAt real?, leaseMs real?, tokenAtLeast integer?, exact integer?, client text?, guard text?
SELECT
  s.boot, s.token_floor AS tokenFloor,
  EXISTS (SELECT 1 FROM mark m WHERE m.id = :id AND m.name = :name AND m.ends_at > :now) AS marked,
  n.capacity, n.taken, n.holders, n.waiters, n.last_token AS lastToken, n.last_seq AS lastSeq,
  n.soonest_end AS soonestEnd, n.front_seq AS frontSeq, n.front_end AS frontEnd,
  c.seq, c.units, c.token, c.ends_at AS endsAt, c.lease_ms AS leaseMs, c.token_at_least AS tokenAtLeast,
  c.exact, c.client, c.guard
FROM store s
LEFT JOIN name n ON n.name = :name
LEFT JOIN claim c ON c.name = :name AND c.id = :id
