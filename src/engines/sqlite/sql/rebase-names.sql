-- Look at every name when it is next used; the only claims that stand in the names' rows get their time too.
-- in: now real
-- out: nothing
UPDATE name SET
  soonest_end = :now, front_end = :now,
  sole = iif(sole = '', '', json_set(sole, '$.endsAt', :now + json_extract(sole, '$.spanMs'), '$.guard', ''))
WHERE holders + waiters > 0
