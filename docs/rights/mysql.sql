-- What a program needs that uses locks in MySQL or MariaDB, and no more. An administrator runs it, after the text of
-- migrationSql(), and the grants again after an update of Holdfast that brought a migration.
CREATE USER app IDENTIFIED BY 'change-me';
GRANT EXECUTE ON holdfast.* TO app;
GRANT SELECT ON holdfast.migration TO app;
GRANT SELECT, UPDATE ON holdfast.store TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.name TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.claim TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.tombstone TO app;
GRANT SELECT, INSERT, DELETE ON holdfast.message TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.cell TO app;
GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.operation TO app;
