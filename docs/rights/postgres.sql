-- What a program needs that uses locks in PostgreSQL, and no more. The owner of the schema runs it, after the text of
-- migrationSql(), and the grants again after an update of Holdfast that brought a migration.
CREATE ROLE app LOGIN PASSWORD 'change-me';
GRANT USAGE ON SCHEMA holdfast TO app;
GRANT SELECT ON holdfast.migration TO app;
GRANT SELECT, UPDATE ON holdfast.store TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.name, holdfast.claim TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.tombstone, holdfast.cell, holdfast.operation TO app;
GRANT USAGE ON SEQUENCE holdfast.cell_version TO app;
-- PostgreSQL lets everybody run a new function, with the rights of whoever runs it.
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO app;
