-- The version for a change of any cell.
-- out: version integer
UPDATE store SET cell_version = cell_version + 1 RETURNING cell_version AS version
