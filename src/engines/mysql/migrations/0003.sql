-- The verbs: one call decides, in one transaction that ends with it.

-- Ask. The first statement is all there is to an idle name without marks; everything else is the long way. It has few
-- variables: a procedure makes all of them on each call.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_client VARBINARY(64), p_hears TINYINT
-- out: one row with answer
CREATE PROCEDURE holdfast.claim(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_client VARBINARY(64), p_hears TINYINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  UPDATE holdfast.name SET
    capacity = p_capacity, taken = p_units, holders = 1, soonest_end = v_now + p_lease_ms * 1000, touched_at = v_now,
    last_token = LAST_INSERT_ID(GREATEST(last_token + 1, v_now, p_at_least)), sole_id = p_id, sole_lease_ms = p_lease_ms,
    sole_exact = p_exact, sole_client = p_client, sole_hears = p_hears, sole_owner = p_owner, sole_data = p_data
  WHERE name = p_name AND holders = 0 AND waiters = 0 AND marks_end <= v_now AND p_units <= p_capacity;
  IF ROW_COUNT() = 1 THEN
    COMMIT;
    SELECT CONCAT('{"kind":"granted","leftMs":',
      p_lease_ms - (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - v_now) / 1000,
      ',"token":', LAST_INSERT_ID(), ',"floor":', LAST_INSERT_ID(),
      IF(p_exact, CONCAT(',"live":[', LAST_INSERT_ID(), ']}'), '}')) AS answer;
  ELSE
    COMMIT;
    CALL holdfast.claim_long(p_name, p_id, p_units, p_capacity, p_lease_ms, p_waiter_ms, p_wait, p_owner, p_data, p_exact, p_at_least, p_client, p_hears);
  END IF;
END
//
-- The long way: whatever the name's state.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_client VARBINARY(64), p_hears TINYINT
-- out: one row with answer
CREATE PROCEDURE holdfast.claim_long(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_client VARBINARY(64), p_hears TINYINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_capacity, v_holders, v_waiters INT;
  DECLARE v_taken, v_last_token, v_last_seq, v_soonest_end, v_front_end, v_marks_end, v_now, v_ends_at BIGINT;
  DECLARE v_sole VARBINARY(64);
  DECLARE v_answer, v_owner BLOB;
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  decide: BEGIN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    INSERT INTO holdfast.name
      (name, capacity, taken, holders, waiters, last_token, last_seq, soonest_end, front_seq, front_end, marks_end, touched_at)
    VALUES (p_name, p_capacity, 0, 0, 0, -1, 0, 8000000000000000000, 0, 8000000000000000000, 0, 0)
    ON DUPLICATE KEY UPDATE capacity = holdfast.name.capacity;
    SELECT capacity, taken, holders, waiters, last_token, last_seq, soonest_end, front_end, marks_end, sole_id
    INTO v_capacity, v_taken, v_holders, v_waiters, v_last_token, v_last_seq, v_soonest_end, v_front_end, v_marks_end, v_sole
    FROM holdfast.name WHERE name = p_name FOR UPDATE;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    -- A row that is new: a sweep may have removed it a moment ago, and left its token there.
    IF v_last_token < 0 THEN
      SET v_last_token = (SELECT token_floor FROM holdfast.store);
      UPDATE holdfast.name SET last_token = v_last_token WHERE name = p_name;
    END IF;
    IF v_sole <> '' THEN CALL holdfast.spill(p_name); END IF;
    IF v_marks_end > v_now AND EXISTS (SELECT 1 FROM holdfast.mark WHERE id = p_id AND name = p_name) THEN
      SET v_answer = '{"kind":"gone"}';
      LEAVE decide;
    END IF;
    IF v_now >= v_soonest_end OR v_now >= v_front_end THEN
      CALL holdfast.settle(p_name, v_now, v_wake);
    END IF;
    IF v_holders + v_waiters > 0 THEN
      SELECT ends_at INTO v_ends_at FROM holdfast.claim WHERE name = p_name AND id = p_id;
      IF v_ends_at > v_now THEN
        CALL holdfast.answer(p_name, p_id, v_now, v_answer);
        LEAVE decide;
      ELSEIF v_ends_at IS NOT NULL THEN
        -- A dead waiter in the middle of the queue; holders and the first waiter were looked at already.
        DELETE FROM holdfast.claim WHERE name = p_name AND id = p_id;
        UPDATE holdfast.name SET waiters = waiters - 1 WHERE name = p_name;
        CALL holdfast.settle(p_name, v_now, v_wake);
      END IF;
      SELECT capacity, taken, holders, waiters, last_token
      INTO v_capacity, v_taken, v_holders, v_waiters, v_last_token FROM holdfast.name WHERE name = p_name;
    END IF;
    IF v_holders + v_waiters = 0 THEN SET v_capacity = p_capacity; END IF;
    IF v_capacity <> p_capacity THEN
      SET v_answer = CONCAT('{"kind":"mismatch","capacity":', v_capacity, '}');
      LEAVE decide;
    END IF;
    -- Nobody overtakes: with others waiting even a claim that would fit has to queue.
    IF v_waiters = 0 AND v_taken + p_units <= v_capacity THEN
      SET v_last_token = GREATEST(v_last_token + 1, v_now, p_at_least), v_ends_at = v_now + p_lease_ms * 1000;
      INSERT INTO holdfast.claim VALUES (p_name, p_id, 0, p_units, v_last_token, v_ends_at, p_lease_ms, p_at_least,
        p_exact, p_client, p_hears, p_owner, p_data);
      UPDATE holdfast.name SET capacity = p_capacity, taken = v_taken + p_units, holders = v_holders + 1,
        last_token = v_last_token, soonest_end = LEAST(soonest_end, v_ends_at), touched_at = v_now WHERE name = p_name;
      IF v_holders = 0 AND NOT p_exact THEN
        SET v_answer = CONCAT('{"kind":"granted","leftMs":', p_lease_ms, ',"token":', v_last_token, ',"floor":', v_last_token, '}');
        LEAVE decide;
      END IF;
      CALL holdfast.answer(p_name, p_id, v_now, v_answer);
    ELSEIF p_wait THEN
      SET v_last_seq = v_last_seq + 1, v_ends_at = v_now + p_waiter_ms * 1000;
      INSERT INTO holdfast.claim VALUES (p_name, p_id, v_last_seq, p_units, 0, v_ends_at, p_lease_ms, p_at_least,
        p_exact, p_client, p_hears, p_owner, p_data);
      UPDATE holdfast.name SET capacity = p_capacity, front_seq = IF(v_waiters = 0, v_last_seq, front_seq),
        front_end = IF(v_waiters = 0, v_ends_at, front_end), waiters = v_waiters + 1, last_seq = v_last_seq,
        last_token = v_last_token, touched_at = v_now
      WHERE name = p_name;
      CALL holdfast.answer(p_name, p_id, v_now, v_answer);
    ELSE
      CALL holdfast.holder(p_name, v_owner);
      SET v_answer = CONCAT('{"kind":"busy"', v_owner, '}');
    END IF;
  END;
  COMMIT;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT v_answer AS answer;
END
//
-- Give back a hold or withdraw a waiting claim, and grant what fits next. Unless settled, a mark stays.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_settled TINYINT, p_mark_ms BIGINT, p_client VARBINARY(64)
-- out: one row with answer
CREATE PROCEDURE holdfast.release(p_name VARBINARY(512), p_id VARBINARY(64), p_settled TINYINT, p_mark_ms BIGINT, p_client VARBINARY(64))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  -- The only claim, and ours: nothing to decide.
  UPDATE holdfast.name SET taken = 0, holders = 0, soonest_end = 8000000000000000000, touched_at = v_now, sole_id = ''
  WHERE name = p_name AND p_settled AND sole_id = p_id AND sole_client = p_client AND soonest_end > v_now;
  IF ROW_COUNT() = 1 THEN
    COMMIT;
    SELECT 'released' AS answer;
  ELSE
    COMMIT;
    CALL holdfast.release_long(p_name, p_id, p_settled, p_mark_ms, p_client);
  END IF;
END
//
-- The long way: whatever the name's state.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_settled TINYINT, p_mark_ms BIGINT, p_client VARBINARY(64)
-- out: one row with answer
CREATE PROCEDURE holdfast.release_long(p_name VARBINARY(512), p_id VARBINARY(64), p_settled TINYINT, p_mark_ms BIGINT, p_client VARBINARY(64))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_waiters INT DEFAULT -1;
  DECLARE v_units, v_holders INT;
  DECLARE v_token, v_now, v_ends_at, v_soonest_end, v_front_end, v_marks BIGINT DEFAULT 0;
  DECLARE v_client VARBINARY(64);
  DECLARE v_hears TINYINT;
  DECLARE v_sole VARBINARY(64);
  DECLARE v_answer BLOB DEFAULT 'gone';
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  -- To leave a mark the name must be locked, so that a copy of the claim comes either before or after.
  IF NOT p_settled THEN
    INSERT INTO holdfast.name
      (name, capacity, taken, holders, waiters, last_token, last_seq, soonest_end, front_seq, front_end, marks_end, touched_at)
    VALUES (p_name, 0, 0, 0, 0, -1, 0, 8000000000000000000, 0, 8000000000000000000, 0, 0)
    ON DUPLICATE KEY UPDATE capacity = holdfast.name.capacity;
    UPDATE holdfast.name SET last_token = (SELECT token_floor FROM holdfast.store) WHERE name = p_name AND last_token < 0;
  END IF;
  SELECT holders, waiters, soonest_end, front_end, sole_id INTO v_holders, v_waiters, v_soonest_end, v_front_end, v_sole
  FROM holdfast.name WHERE name = p_name FOR UPDATE;
  IF v_waiters >= 0 THEN
    IF v_sole <> '' THEN CALL holdfast.spill(p_name); END IF;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    IF v_now >= v_soonest_end OR v_now >= v_front_end THEN
      CALL holdfast.settle(p_name, v_now, v_wake);
      SELECT holders, waiters INTO v_holders, v_waiters FROM holdfast.name WHERE name = p_name;
    END IF;
    SELECT units, token, ends_at, client, hears INTO v_units, v_token, v_ends_at, v_client, v_hears
    FROM holdfast.claim WHERE name = p_name AND id = p_id;
    IF v_client IS NOT NULL THEN
      DELETE FROM holdfast.claim WHERE name = p_name AND id = p_id;
      UPDATE holdfast.name SET taken = taken - IF(v_token > 0, v_units, 0), holders = holders - (v_token > 0),
        waiters = waiters - (v_token = 0), soonest_end = IF(holders = 0, 8000000000000000000, soonest_end),
        touched_at = v_now
      WHERE name = p_name;
      IF v_waiters > 0 THEN CALL holdfast.settle(p_name, v_now, v_wake); END IF;
      IF v_ends_at > v_now THEN
        SET v_answer = 'released';
        -- Taken out by somebody else than its owner, who is told.
        IF v_client <> p_client AND v_hears THEN
          CALL holdfast.push(v_client, 'lost', p_name, p_id, '', v_now, v_wake);
        END IF;
      END IF;
    END IF;
    IF NOT p_settled THEN
      SET v_marks = v_now + p_mark_ms * 1000;
      INSERT INTO holdfast.mark VALUES (p_id, p_name, v_marks) ON DUPLICATE KEY UPDATE ends_at = v_marks;
      UPDATE holdfast.name SET marks_end = v_marks, touched_at = v_now WHERE name = p_name;
    END IF;
  END IF;
  COMMIT;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT v_answer AS answer;
END
//
-- A sign of life for many claims, given and answered as JSON arrays. Whoever calls sorts by name: two renewals that share
-- names cannot wait for each other.
-- in: p_signs LONGBLOB, p_waiter_max_ms BIGINT
-- out: one row with answer
CREATE PROCEDURE holdfast.renew(p_signs LONGBLOB, p_waiter_max_ms BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_over TINYINT DEFAULT 0;
  DECLARE v_name VARBINARY(512) DEFAULT '';
  DECLARE v_id, v_sole VARBINARY(64);
  DECLARE v_lease_ms, v_at_least, v_now, v_soonest_end, v_front_end, v_token BIGINT;
  DECLARE v_answer, v_answers LONGBLOB DEFAULT '';
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE signs CURSOR FOR
    SELECT CAST(name AS BINARY), CAST(id AS BINARY), lease, token FROM JSON_TABLE(CONVERT(p_signs USING utf8mb4), '$[*]' COLUMNS (
      place FOR ORDINALITY, name VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[0]',
      id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[1]', lease BIGINT PATH '$[2]', token BIGINT PATH '$[3]'
    )) t ORDER BY place;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
  OPEN signs;
  work: LOOP
    FETCH signs INTO v_name, v_id, v_lease_ms, v_at_least;
    IF v_over THEN LEAVE work; END IF;
    SET v_soonest_end = NULL;
    SELECT soonest_end, front_end, sole_id INTO v_soonest_end, v_front_end, v_sole
    FROM holdfast.name WHERE name = v_name FOR UPDATE;
    IF v_soonest_end IS NOT NULL AND v_sole <> '' THEN CALL holdfast.spill(v_name); END IF;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), v_token = NULL;
    IF v_now >= v_soonest_end OR v_now >= v_front_end THEN CALL holdfast.settle(v_name, v_now, v_wake); END IF;
    IF v_soonest_end IS NOT NULL THEN
      SELECT token INTO v_token FROM holdfast.claim WHERE name = v_name AND id = v_id AND ends_at > v_now;
    END IF;
    IF v_token IS NULL THEN
      SET v_answer = '{"kind":"gone"}';
    ELSE
      -- A lease end never moves back.
      UPDATE holdfast.claim SET
        ends_at = IF(token = 0, v_now + LEAST(lease_ms, p_waiter_max_ms) * 1000,
          GREATEST(ends_at, v_now + COALESCE(v_lease_ms, lease_ms) * 1000)),
        token = IF(token = 0, 0, GREATEST(token, COALESCE(v_at_least, 0)))
      WHERE name = v_name AND id = v_id;
      IF v_token > 0 AND v_at_least > v_token THEN
        UPDATE holdfast.name SET last_token = GREATEST(last_token, v_at_least) WHERE name = v_name;
      END IF;
      CALL holdfast.answer(v_name, v_id, v_now, v_answer);
    END IF;
    SET v_answers = CONCAT(v_answers, IF(v_answers = '', '', ','), v_answer), v_over = 0;
  END LOOP;
  CLOSE signs;
  COMMIT;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT CONCAT('[', v_answers, ']') AS answer;
END
//
-- Shrink a hold's units without letting go.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_units INT
-- out: one row with answer
CREATE PROCEDURE holdfast.resize(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_units, v_busy INT;
  DECLARE v_token, v_now BIGINT;
  DECLARE v_answer BLOB DEFAULT 'gone';
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
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
      UPDATE holdfast.name SET taken = taken - (v_units - p_units) WHERE name = p_name;
      CALL holdfast.settle(p_name, v_now, v_wake);
    END IF;
  END IF;
  COMMIT;
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
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION;
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
  COMMIT;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT v_answer AS answer;
END
//
