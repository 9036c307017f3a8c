-- Each procedure ends whatever transaction is open when it is called, and leaves none open. So it works the same where a
-- statement is no transaction by itself (autocommit = 0), where transactions only read unless told otherwise, where updates need
-- a key (sql_safe_updates), and whatever else a COMMIT is set to do (completion_type). And a renewal or a release of a claim
-- that is not there says whether its mark is: then somebody else released it.

-- Whether a claim that is not there was released by somebody: its mark is there.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_now BIGINT, OUT p_revoked TINYINT
-- out: nothing
CREATE PROCEDURE holdfast.revoked(p_name VARBINARY(512), p_id VARBINARY(64), p_now BIGINT, OUT p_revoked TINYINT)
SQL SECURITY INVOKER
SET p_revoked = EXISTS(SELECT 1 FROM holdfast.mark WHERE id = p_id AND name = p_name AND ends_at > p_now)
//
-- Token, floor and, where the claim asked for them, all live tokens, as JSON members.
-- in: p_name VARBINARY(512), p_holders INT, p_token BIGINT, p_exact TINYINT, OUT p_fence BLOB
-- out: nothing
CREATE PROCEDURE holdfast.fence(p_name VARBINARY(512), p_holders INT, p_token BIGINT, p_exact TINYINT, OUT p_fence BLOB)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_floor BIGINT DEFAULT p_token;
  DECLARE v_live BLOB DEFAULT p_token;
  DECLARE v_before BIGINT UNSIGNED DEFAULT @@SESSION.group_concat_max_len;
  IF p_holders > 1 AND p_exact THEN
    -- MySQL cuts such a list off after 1,024 bytes unless told otherwise.
    SET SESSION group_concat_max_len = GREATEST(v_before, 65536);
    SELECT GROUP_CONCAT(token ORDER BY token), MIN(token) INTO v_live, v_floor
    FROM holdfast.claim WHERE name = p_name AND token > 0;
    SET SESSION group_concat_max_len = v_before;
  ELSEIF p_holders > 1 THEN
    SELECT token INTO v_floor FROM holdfast.claim WHERE name = p_name AND token > 0 ORDER BY token LIMIT 1;
  END IF;
  SET p_fence = CONCAT('"token":', p_token, ',"floor":', v_floor);
  IF p_exact THEN SET p_fence = CONCAT(p_fence, ',"live":[', v_live, ']'); END IF;
END
//
-- Ask. An idle name without marks need not come here: that is one plain statement.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_client VARBINARY(64), p_hears TINYINT
-- out: one row with answer
CREATE PROCEDURE holdfast.claim(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_client VARBINARY(64), p_hears TINYINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_capacity, v_holders, v_waiters INT;
  DECLARE v_taken, v_last_token, v_last_seq, v_soonest_end, v_front_end, v_marks_end, v_now, v_ends_at BIGINT;
  DECLARE v_sole VARBINARY(64);
  DECLARE v_answer, v_owner BLOB;
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  decide: BEGIN
    COMMIT AND NO CHAIN NO RELEASE;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION READ WRITE;
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
        CALL holdfast.settle_without(p_name, v_now, 0, 0, 1, v_wake);
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
      IF v_holders = 0 THEN
        UPDATE holdfast.name SET capacity = p_capacity, taken = p_units, holders = 1, last_token = v_last_token,
          soonest_end = v_ends_at, touched_at = v_now, sole_id = p_id, sole_lease_ms = p_lease_ms, sole_exact = p_exact,
          sole_client = p_client, sole_hears = p_hears, sole_owner = p_owner, sole_data = p_data
        WHERE name = p_name;
        CALL holdfast.fence(p_name, 1, v_last_token, p_exact, v_answer);
        SET v_answer = CONCAT('{"kind":"granted","leftMs":', p_lease_ms, ',', v_answer, '}');
        LEAVE decide;
      END IF;
      INSERT INTO holdfast.claim VALUES (p_name, p_id, 0, p_units, v_last_token, v_ends_at, p_lease_ms, p_at_least,
        p_exact, p_client, p_hears, p_owner, p_data);
      UPDATE holdfast.name SET capacity = p_capacity, taken = v_taken + p_units, holders = v_holders + 1,
        last_token = v_last_token, soonest_end = LEAST(soonest_end, v_ends_at), touched_at = v_now WHERE name = p_name;
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
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT v_answer AS answer;
END
//
-- Give back a hold or withdraw a waiting claim, and grant what fits next. Unless settled, a mark stays.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_settled TINYINT, p_mark_ms BIGINT, p_client VARBINARY(64)
-- out: one row with answer, and with waiters: how many stood there
CREATE PROCEDURE holdfast.release(p_name VARBINARY(512), p_id VARBINARY(64), p_settled TINYINT, p_mark_ms BIGINT, p_client VARBINARY(64))
SQL SECURITY INVOKER
BEGIN
  DECLARE v_waiters INT DEFAULT -1;
  DECLARE v_units INT;
  DECLARE v_token, v_now, v_ends_at, v_soonest_end, v_front_end, v_marks BIGINT DEFAULT 0;
  DECLARE v_client VARBINARY(64);
  DECLARE v_hears, v_revoked TINYINT;
  DECLARE v_sole VARBINARY(64);
  DECLARE v_answer BLOB DEFAULT 'gone';
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
  -- To leave a mark the name must be locked, so that a copy of the claim comes either before or after.
  IF NOT p_settled THEN
    INSERT INTO holdfast.name
      (name, capacity, taken, holders, waiters, last_token, last_seq, soonest_end, front_seq, front_end, marks_end, touched_at)
    VALUES (p_name, 0, 0, 0, 0, -1, 0, 8000000000000000000, 0, 8000000000000000000, 0, 0)
    ON DUPLICATE KEY UPDATE capacity = holdfast.name.capacity;
    UPDATE holdfast.name SET last_token = (SELECT token_floor FROM holdfast.store) WHERE name = p_name AND last_token < 0;
  END IF;
  SELECT waiters, soonest_end, front_end, sole_id INTO v_waiters, v_soonest_end, v_front_end, v_sole
  FROM holdfast.name WHERE name = p_name FOR UPDATE;
  IF v_waiters >= 0 THEN
    IF v_sole <> '' THEN CALL holdfast.spill(p_name); END IF;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
    IF v_now >= v_soonest_end OR v_now >= v_front_end THEN
      CALL holdfast.settle(p_name, v_now, v_wake);
    END IF;
    SELECT units, token, ends_at, client, hears INTO v_units, v_token, v_ends_at, v_client, v_hears
    FROM holdfast.claim WHERE name = p_name AND id = p_id;
    IF v_client IS NOT NULL THEN
      DELETE FROM holdfast.claim WHERE name = p_name AND id = p_id;
      CALL holdfast.settle_without(p_name, v_now, v_token > 0, IF(v_token > 0, v_units, 0), v_token = 0, v_wake);
      IF v_ends_at > v_now THEN
        SET v_answer = 'released';
        -- Taken out by somebody else than its owner, who is told.
        IF v_client <> p_client AND v_hears THEN
          CALL holdfast.push(v_client, 'lost', p_name, p_id, '', v_now, v_wake);
        END IF;
      END IF;
    END IF;
    -- Before this release leaves a mark of its own.
    IF v_answer = 'gone' THEN
      CALL holdfast.revoked(p_name, p_id, v_now, v_revoked);
      IF v_revoked THEN SET v_answer = 'revoked'; END IF;
    END IF;
    IF NOT p_settled THEN
      SET v_marks = v_now + p_mark_ms * 1000;
      INSERT INTO holdfast.mark VALUES (p_id, p_name, v_marks) ON DUPLICATE KEY UPDATE ends_at = v_marks;
      UPDATE holdfast.name SET marks_end = v_marks, touched_at = v_now WHERE name = p_name;
    END IF;
  END IF;
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT v_answer AS answer, v_waiters AS waiters;
END
//
-- A sign of life for many claims, given and answered as JSON arrays. Whoever calls sorts by name: two renewals that share
-- names cannot wait for each other. A lease of 0 is the claim's own.
-- in: p_signs LONGBLOB, p_waiter_max_ms BIGINT
-- out: one row with answer
CREATE PROCEDURE holdfast.renew(p_signs LONGBLOB, p_waiter_max_ms BIGINT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_over, v_revoked TINYINT DEFAULT 0;
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
  DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
  COMMIT AND NO CHAIN NO RELEASE;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ WRITE;
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
      CALL holdfast.revoked(v_name, v_id, v_now, v_revoked);
      SET v_answer = IF(v_revoked, '{"kind":"gone","revoked":true}', '{"kind":"gone"}');
    ELSE
      -- A lease end never moves back.
      UPDATE holdfast.claim SET
        ends_at = IF(token = 0, v_now + LEAST(lease_ms, p_waiter_max_ms) * 1000,
          GREATEST(ends_at, v_now + COALESCE(NULLIF(v_lease_ms, 0), lease_ms) * 1000)),
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
  COMMIT AND NO CHAIN NO RELEASE;
  IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
  SELECT CONCAT('[', v_answers, ']') AS answer;
END
//
