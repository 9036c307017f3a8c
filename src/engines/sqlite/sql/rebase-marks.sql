-- Marks start anew.
-- in: endsAt real
-- out: nothing
UPDATE mark SET ends_at = :endsAt
