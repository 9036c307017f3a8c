-- A mark that has ended is none. Before, a claim was "gone" for as long as the old mark of its id was not swept away and there
-- were younger marks under the same name.

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
    IF v_marks_end > v_now AND EXISTS (SELECT 1 FROM holdfast.mark WHERE id = p_id AND name = p_name AND ends_at > v_now) THEN
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
