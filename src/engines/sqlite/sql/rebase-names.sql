-- Look at every name when it is next used.
-- in: now real
-- out: nothing
UPDATE name SET soonest_end = :now, front_end = :now WHERE holders + waiters > 0
