-- As before (0007), for the verbs beside claim, release and renew.

-- Shrink a hold's units without letting go.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_units INT
-- out: one row with answer
CREATE PROCEDURE holdfast.resize(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_units, v_busy INT;
  DECLARE v_token, v_now BIGINT;
  DECLARE v_answer BLOB DEFAULT 'gone';
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  SELECT holders INTO v_busy FROM holdfast.name WHERE name = p_name FOR UPDATE;
  IF v_busy IS NOT NULL THEN
    CALL holdfast.clock(v_now);
    CALL holdfast.spill(p_name);
    CALL holdfast.settle(p_name, v_now, v_wake);
    SELECT units, token INTO v_units, v_token FROM holdfast.claim WHERE name = p_name AND id = p_id AND ends_at > v_now;
    IF v_token = 0 OR p_units > v_units THEN
      SET v_answer = 'refused';
    ELSEIF v_token IS NOT NULL THEN
      SET v_answer = 'resized';
      UPDATE holdfast.claim SET units = p_units WHERE name = p_name AND id = p_id;
      CALL holdfast.settle_without(p_name, v_now, 0, v_units - p_units, 0, v_wake);
    END IF;
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT v_answer AS answer;
END
//
-- Change a busy name's capacity: waiters that can never be served leave, what now fits enters, holders stay.
-- in: p_name VARBINARY(512), p_from INT, p_to INT
-- out: one row with answer
CREATE PROCEDURE holdfast.set_capacity(p_name VARBINARY(512), p_from INT, p_to INT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_busy, v_capacity INT;
  DECLARE v_now BIGINT;
  DECLARE v_over, v_hears TINYINT DEFAULT 0;
  DECLARE v_id, v_client VARBINARY(64);
  DECLARE v_answer BLOB DEFAULT '{"kind":"set"}';
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE large CURSOR FOR
    SELECT id, client, hears FROM holdfast.claim WHERE name = p_name AND token = 0 AND units > p_to;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  SELECT holders INTO v_busy FROM holdfast.name WHERE name = p_name FOR UPDATE;
  IF v_busy IS NOT NULL THEN
    CALL holdfast.clock(v_now);
    CALL holdfast.spill(p_name);
    CALL holdfast.settle(p_name, v_now, v_wake);
    SELECT holders + waiters, capacity INTO v_busy, v_capacity FROM holdfast.name WHERE name = p_name;
    IF v_busy > 0 AND v_capacity NOT IN (p_from, p_to) THEN
      SET v_answer = CONCAT('{"kind":"mismatch","capacity":', v_capacity, '}');
    ELSEIF v_busy > 0 AND v_capacity <> p_to THEN
      UPDATE holdfast.name SET capacity = p_to WHERE name = p_name;
      SET v_over = 0;
      OPEN large;
      work: LOOP
        FETCH large INTO v_id, v_client, v_hears;
        IF v_over THEN LEAVE work; END IF;
        DELETE FROM holdfast.claim WHERE name = p_name AND id = v_id;
        UPDATE holdfast.name SET waiters = waiters - 1 WHERE name = p_name;
        IF v_hears THEN CALL holdfast.push(v_client, 'lost', p_name, v_id, '', v_now, v_wake); END IF;
      END LOOP;
      CLOSE large;
      CALL holdfast.settle(p_name, v_now, v_wake);
    END IF;
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT v_answer AS answer;
END
//
-- One page of busy names in order: those after p_after that begin with p_prefix, or the one name p_name.
-- in: p_name VARBINARY(512), p_prefix VARBINARY(512), p_after VARBINARY(512), p_most INT
-- out: a row with the name to go on after (null at the end), then a row for each claim
CREATE PROCEDURE holdfast.inspect(p_name VARBINARY(512), p_prefix VARBINARY(512), p_after VARBINARY(512), p_most INT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_over TINYINT DEFAULT 0;
  DECLARE v_seen INT DEFAULT 0;
  DECLARE v_name, v_last VARBINARY(512) DEFAULT '';
  DECLARE v_now, v_due BIGINT;
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE page CURSOR FOR
    SELECT name, LEAST(soonest_end, front_end) FROM holdfast.name
    WHERE name > p_after AND name >= COALESCE(p_name, p_prefix) AND IF(p_name IS NULL, LEFT(name, LENGTH(p_prefix)) = p_prefix, name = p_name)
    ORDER BY name LIMIT p_most;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  CALL holdfast.clock(v_now);
  OPEN page;
  work: LOOP
    FETCH page INTO v_name, v_due;
    IF v_over THEN LEAVE work; END IF;
    SET v_seen = v_seen + 1, v_last = v_name;
    IF v_due <= v_now THEN
      SELECT name INTO v_name FROM holdfast.name WHERE name = v_name FOR UPDATE;
      IF NOT v_over THEN
        CALL holdfast.spill(v_name);
        CALL holdfast.settle(v_name, v_now, v_wake);
      END IF;
    END IF;
    SET v_over = 0;
  END LOOP;
  CLOSE page;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ ONLY;
  SELECT IF(v_seen = p_most, v_last, NULL) AS next;
  SELECT n.name, n.capacity, n.last_token, c.id, c.units, c.token, (c.ends_at - v_now) / 1000 AS left_ms, c.owner, c.data, c.seq
  FROM holdfast.name n JOIN holdfast.claim c ON c.name = n.name
  WHERE n.name > p_after AND n.name <= v_last AND c.ends_at > v_now
    AND IF(p_name IS NULL, LEFT(n.name, LENGTH(p_prefix)) = p_prefix, n.name = p_name)
  UNION ALL
  SELECT n.name, n.capacity, n.last_token, n.sole_id, n.taken, n.last_token, (n.soonest_end - v_now) / 1000, n.sole_owner,
    n.sole_data, 0
  FROM holdfast.name n
  WHERE n.name > p_after AND n.name <= v_last AND n.sole_id <> '' AND n.soonest_end > v_now
    AND IF(p_name IS NULL, LEFT(n.name, LENGTH(p_prefix)) = p_prefix, n.name = p_name)
  ORDER BY name, token = 0, token, seq;
  COMMIT AND NO CHAIN NO RELEASE;
END
//
-- One batch of what nobody looks at any more: names that have been idle for p_idle_ms, leases that ended, old marks,
-- letters that nobody fetched. What somebody works on is passed over. As JSON: the name to go on after (null at the end),
-- how many rows went, and whether old marks, operations or letters may be left.
-- in: p_after VARBINARY(512), p_most INT, p_idle_ms BIGINT
-- out: one row with answer
CREATE PROCEDURE holdfast.sweep(p_after VARBINARY(512), p_most INT, p_idle_ms BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_over TINYINT DEFAULT 0;
  DECLARE v_gone, v_busy, v_rows, v_seen INT DEFAULT 0;
  DECLARE v_name, v_up_to VARBINARY(512);
  DECLARE v_now, v_floor, v_token, v_marks_end, v_due BIGINT DEFAULT 0;
  DECLARE v_full TINYINT DEFAULT 0;
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE old CURSOR FOR
    SELECT name FROM holdfast.name WHERE name > p_after AND (v_up_to IS NULL OR name <= v_up_to) AND (
      soonest_end <= v_now OR front_end <= v_now
      OR holders = 0 AND waiters = 0 AND marks_end <= v_now AND touched_at <= v_now - p_idle_ms * 1000
    ) ORDER BY name;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  CALL holdfast.clock(v_now);
  SELECT COUNT(*), MAX(name) INTO v_seen, v_up_to
  FROM (SELECT name FROM holdfast.name WHERE name > p_after ORDER BY name LIMIT p_most) batch;
  IF v_seen < p_most THEN SET v_up_to = NULL; END IF;
  SET v_over = 0;
  OPEN old;
  work: LOOP
    FETCH old INTO v_name;
    IF v_over THEN LEAVE work; END IF;
    SELECT LEAST(soonest_end, front_end) INTO v_due FROM holdfast.name WHERE name = v_name FOR UPDATE SKIP LOCKED;
    IF NOT v_over THEN
      IF v_due <= v_now THEN
        CALL holdfast.spill(v_name);
        CALL holdfast.settle(v_name, v_now, v_wake);
      END IF;
      SELECT holders + waiters, last_token, marks_end INTO v_busy, v_token, v_marks_end FROM holdfast.name WHERE name = v_name;
      -- While there may be marks the row stays: whoever takes an unknown name does not look for any.
      IF v_busy = 0 AND v_marks_end <= v_now THEN
        DELETE FROM holdfast.name WHERE name = v_name;
        SET v_floor = GREATEST(v_floor, v_token), v_gone = v_gone + 1;
      END IF;
    END IF;
    SET v_over = 0;
  END LOOP;
  CLOSE old;
  -- In the same transaction that forgets the names: their tokens cannot come again.
  IF v_floor > 0 THEN UPDATE holdfast.store SET token_floor = v_floor WHERE one = 1 AND token_floor < v_floor; END IF;
  DELETE FROM holdfast.mark WHERE ends_at <= v_now ORDER BY ends_at LIMIT p_most;
  SET v_rows = ROW_COUNT(), v_gone = v_gone + v_rows, v_full = v_rows = p_most;
  DELETE FROM holdfast.operation WHERE ends_at <= v_now ORDER BY ends_at LIMIT p_most;
  SET v_rows = ROW_COUNT(), v_gone = v_gone + v_rows, v_full = v_full OR v_rows = p_most;
  DELETE FROM holdfast.mail WHERE ends_at <= v_now ORDER BY seq LIMIT p_most;
  SET v_rows = ROW_COUNT(), v_gone = v_gone + v_rows, v_full = v_full OR v_rows = p_most;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT CONCAT(
    '{"next":', COALESCE(JSON_QUOTE(CONVERT(v_up_to USING utf8mb4)), 'null'), ',"rows":', v_gone, ',"full":',
    IF(v_full, 'true', 'false'), '}'
  ) AS answer;
END
//
-- A cell, as JSON; version 0 and null when there is none.
-- in: p_name VARBINARY(512)
-- out: one row with answer
CREATE PROCEDURE holdfast.cell_read(p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ ONLY;
  SELECT COALESCE(
    (SELECT CONCAT('{"version":', version, ',"value":', value, '}') FROM holdfast.cell WHERE name = p_name),
    '{"version":0,"value":null}'
  ) AS answer;
  COMMIT AND NO CHAIN NO RELEASE;
END
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
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  CALL holdfast.clock(v_now);
  -- First of all: a copy of this operation waits here until the first has ended.
  INSERT IGNORE INTO holdfast.operation VALUES (p_operation, '', v_now + p_mark_ms * 1000);
  IF ROW_COUNT() = 0 THEN
    SELECT answer INTO v_answer FROM holdfast.operation WHERE id = p_operation;
  ELSE
    -- The lock on this row decides between all writers of cells.
    SELECT cell_version + 1 INTO v_next FROM holdfast.store WHERE one = 1 FOR UPDATE;
    SELECT version, value INTO v_version, v_value FROM holdfast.cell WHERE name = p_name;
    IF v_version <> p_expected THEN
      SET v_answer = CONCAT('{"kind":"conflict","cell":{"version":', v_version, ',"value":', COALESCE(v_value, 'null'), '}}');
    ELSEIF p_value IS NULL THEN
      DELETE FROM holdfast.cell WHERE name = p_name;
      SET v_answer = '{"kind":"written","cell":{"version":0,"value":null}}';
    ELSE
      UPDATE holdfast.store SET cell_version = v_next WHERE one = 1;
      INSERT INTO holdfast.cell VALUES (p_name, v_next, p_value) ON DUPLICATE KEY UPDATE version = v_next, value = p_value;
      SET v_answer = CONCAT('{"kind":"written","cell":{"version":', v_next, ',"value":', p_value, '}}');
    END IF;
    UPDATE holdfast.operation SET answer = v_answer WHERE id = p_operation;
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  SELECT v_answer AS answer;
END
//
