-- The hold was handed over and its process is about to end: from now on only the lease decides.
-- in: name text, id text
-- out: nothing
UPDATE claim SET process = '' WHERE name = :name AND id = :id
