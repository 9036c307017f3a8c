-- Tombstones start anew.
-- in: endsAt real
-- out: nothing
UPDATE tombstone SET ends_at = :endsAt
