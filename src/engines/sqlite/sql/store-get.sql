-- The boot that the times in this file belong to, and whether some of them cannot be of this one.
-- in: now real
-- out: boot text, strange integer
SELECT boot,
  EXISTS (SELECT 1 FROM claim WHERE ends_at > :now + span_ms + 1000)
  OR EXISTS (
    SELECT 1 FROM name
    WHERE sole <> '' AND json_extract(sole, '$.endsAt') > :now + json_extract(sole, '$.spanMs') + 1000
  ) AS strange
FROM store
