-- Idle names between two others (the second included) are forgotten; the highest token goes into the floor.
-- in: after text, upTo text
-- out: lastToken integer
DELETE FROM name WHERE name > :after AND name <= :upTo AND holders = 0 AND waiters = 0 RETURNING last_token AS lastToken
