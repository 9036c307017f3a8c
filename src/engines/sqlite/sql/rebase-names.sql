-- Every name is checked for ended leases when it is next used; claims that are kept in the names' rows get their time too.
-- in: now real
-- out: nothing
UPDATE name SET
  soonest_end = :now, front_end = :now,
  sole = iif(sole = '', '', json_remove(json_set(sole, '$.endsAt', :now + json_extract(sole, '$.spanMs'), '$.process', ''), '$.since'))
WHERE holders + waiters > 0
