-- Names between two others on which a lease has ended and nobody looked.
-- in: after text, upTo text, now real
-- out: name text
SELECT name FROM name WHERE name > :after AND name <= :upTo AND holders + waiters > 0 AND min(soonest_end, front_end) <= :now
