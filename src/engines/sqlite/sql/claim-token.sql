-- A quorum raises the token of a holder.
-- in: token integer, name text, id text
-- out: nothing
UPDATE claim SET token = :token WHERE name = :name AND id = :id
