-- No name starts below this again.
-- in: token integer
-- out: nothing
UPDATE store SET token_floor = max(token_floor, :token)
