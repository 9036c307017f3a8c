-- All claims of a name for people to look at: holders by token, then waiters by arrival.
-- in: name text, now real
-- out: id text, units integer, token integer, endsAt real, owner text, data text?
SELECT id, units, token, ends_at AS endsAt, owner, data
FROM claim WHERE name = :name AND ends_at > :now ORDER BY token = 0, token, seq
