-- The hold was handed over and its process is about to end in peace: from now on only the lease decides.
-- in: name text, id text
-- out: nothing
UPDATE claim SET guard = '' WHERE name = :name AND id = :id
