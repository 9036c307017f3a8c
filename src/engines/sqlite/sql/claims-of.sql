-- All claims of a name for people to look at: holders, then waiters, each in order of their tokens.
-- in: name text, now real
-- out: id text, units integer, token integer, holds integer, endsAt real, owner text, data text?, since real?
SELECT id, units, token, holds, ends_at AS endsAt, owner, data, since
FROM claim WHERE name = :name AND ends_at > :now ORDER BY holds DESC, token
