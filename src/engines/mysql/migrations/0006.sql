-- Cells.

-- A cell, as JSON; version 0 and null when there is none.
-- in: p_name VARBINARY(512)
-- out: one row with answer
CREATE PROCEDURE holdfast.cell_read(p_name VARBINARY(512)) SQL SECURITY INVOKER
SELECT COALESCE(
  (SELECT CONCAT('{"version":', version, ',"value":', value, '}') FROM holdfast.cell WHERE name = p_name),
  '{"version":0,"value":null}'
) AS answer
//
-- Write a cell over the version that was read; null removes it. A known operation answers as it did the first time. There is
-- no channel to tell it on: whoever watches looks.
-- in: p_name VARBINARY(512), p_operation VARBINARY(512), p_expected BIGINT, p_value MEDIUMBLOB, p_mark_ms BIGINT, p_channel VARBINARY(64)
-- out: one row with answer
CREATE PROCEDURE holdfast.cell_write(p_name VARBINARY(512), p_operation VARBINARY(512), p_expected BIGINT, p_value MEDIUMBLOB, p_mark_ms BIGINT, p_channel VARBINARY(64))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now, v_version, v_next BIGINT DEFAULT 0;
  DECLARE v_answer, v_value MEDIUMBLOB;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  CALL holdfast.clock(v_now);
  -- First of all: a copy of this operation waits here until the first has ended.
  INSERT IGNORE INTO holdfast.operation VALUES (p_operation, '', v_now + p_mark_ms * 1000);
  IF ROW_COUNT() = 0 THEN
    SELECT answer INTO v_answer FROM holdfast.operation WHERE id = p_operation;
  ELSE
    -- The lock on this row decides between all writers of cells.
    SELECT cell_version + 1 INTO v_next FROM holdfast.store FOR UPDATE;
    SELECT version, value INTO v_version, v_value FROM holdfast.cell WHERE name = p_name;
    IF v_version <> p_expected THEN
      SET v_answer = CONCAT('{"kind":"conflict","cell":{"version":', v_version, ',"value":', COALESCE(v_value, 'null'), '}}');
    ELSEIF p_value IS NULL THEN
      DELETE FROM holdfast.cell WHERE name = p_name;
      SET v_answer = '{"kind":"written","cell":{"version":0,"value":null}}';
    ELSE
      UPDATE holdfast.store SET cell_version = v_next;
      INSERT INTO holdfast.cell VALUES (p_name, v_next, p_value) ON DUPLICATE KEY UPDATE version = v_next, value = p_value;
      SET v_answer = CONCAT('{"kind":"written","cell":{"version":', v_next, ',"value":', p_value, '}}');
    END IF;
    UPDATE holdfast.operation SET answer = v_answer WHERE id = p_operation;
  END IF;
  COMMIT;
  SELECT v_answer AS answer;
END
//
