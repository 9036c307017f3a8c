-- Operations start anew.
-- in: endsAt real
-- out: nothing
UPDATE operation SET ends_at = :endsAt
