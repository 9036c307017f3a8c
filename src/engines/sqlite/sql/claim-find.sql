-- A claim as it stands, and whether it has a tombstone.
-- in: name text, id text, now real
-- out: hasTombstone integer, id text?, units integer?, token integer?, holds integer?, endsAt real?, leaseMs real?, exact integer?, client text?, process text?
SELECT
  EXISTS (SELECT 1 FROM tombstone t WHERE t.id = :id AND t.name = :name AND t.ends_at > :now) AS hasTombstone,
  c.id, c.units, c.token, c.holds, c.ends_at AS endsAt, c.lease_ms AS leaseMs, c.exact, c.client, c.process
FROM store s
LEFT JOIN claim c ON c.name = :name AND c.id = :id
