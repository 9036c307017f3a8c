-- The verbs about living claims: one call decides, in one transaction that ends with it.

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
      CALL holdfast.settle_without(p_name, v_now, 0, v_units - p_units, 0, v_wake);
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
