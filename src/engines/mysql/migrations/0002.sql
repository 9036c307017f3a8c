-- What the verbs share. The rule stands in holdfast.settle. A procedure that is given p_wake adds the clients that have mail.

-- The time now, in microseconds.
-- in: OUT p_now BIGINT
-- out: nothing
CREATE PROCEDURE holdfast.clock(OUT p_now BIGINT) SQL SECURITY INVOKER
SET p_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
//
-- Token, floor and, where the claim asked for them, all live tokens, as JSON members.
-- in: p_name VARBINARY(512), p_holders INT, p_token BIGINT, p_exact TINYINT, OUT p_fence BLOB
-- out: nothing
CREATE PROCEDURE holdfast.fence(p_name VARBINARY(512), p_holders INT, p_token BIGINT, p_exact TINYINT, OUT p_fence BLOB)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_floor BIGINT DEFAULT p_token;
  DECLARE v_live BLOB DEFAULT p_token;
  IF p_holders > 1 AND p_exact THEN
    -- MySQL cuts such a list off after 1,024 bytes unless told otherwise.
    SET SESSION group_concat_max_len = GREATEST(@@SESSION.group_concat_max_len, 65536);
    SELECT GROUP_CONCAT(token ORDER BY token), MIN(token) INTO v_live, v_floor
    FROM holdfast.claim WHERE name = p_name AND token > 0;
  ELSEIF p_holders > 1 THEN
    SELECT token INTO v_floor FROM holdfast.claim WHERE name = p_name AND token > 0 ORDER BY token LIMIT 1;
  END IF;
  SET p_fence = CONCAT('"token":', p_token, ',"floor":', v_floor);
  IF p_exact THEN SET p_fence = CONCAT(p_fence, ',"live":[', v_live, ']'); END IF;
END
//
-- Puts a letter into a client's mailbox.
-- in: p_client VARBINARY(64), p_kind VARCHAR(10), p_name VARBINARY(512), p_id VARBINARY(64), p_fence BLOB, p_now BIGINT, INOUT p_wake BLOB
-- out: nothing
CREATE PROCEDURE holdfast.push(p_client VARBINARY(64), p_kind VARCHAR(10), p_name VARBINARY(512), p_id VARBINARY(64), p_fence BLOB, p_now BIGINT, INOUT p_wake BLOB)
SQL SECURITY INVOKER
BEGIN
  INSERT INTO holdfast.mail (client, event, ends_at) VALUES (
    p_client,
    CONCAT(
      '{"kind":"', p_kind, '","name":', JSON_QUOTE(CONVERT(p_name USING utf8mb4)),
      ',"id":', JSON_QUOTE(CONVERT(p_id USING utf8mb4)), p_fence, '}'
    ),
    p_now + 60000000
  );
  IF NOT FIND_IN_SET(p_client, p_wake) THEN SET p_wake = CONCAT_WS(',', NULLIF(p_wake, ''), p_client); END IF;
END
//
-- The only claim gets a row of its own: it has company from now on. Every step but the shortest begins with this, when the name
-- is locked.
-- in: p_name VARBINARY(512)
-- out: nothing
CREATE PROCEDURE holdfast.spill(p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
  INSERT INTO holdfast.claim SELECT name, sole_id, 0, taken, last_token, soonest_end, sole_lease_ms, 0, sole_exact,
    sole_client, sole_hears, sole_owner, sole_data FROM holdfast.name WHERE name = p_name AND sole_id <> '';
  UPDATE holdfast.name SET sole_id = '', sole_owner = NULL, sole_data = NULL WHERE name = p_name;
END
//
-- What the rule demands now: expired holders leave, dead waiters at the front leave, the first waiter enters if it fits.
-- The name must be locked; its row is read and written. Whose rows were deleted just now (p_holders with p_units between
-- them, p_waiters) is not counted any more.
-- in: p_name VARBINARY(512), p_now BIGINT, p_holders INT, p_units BIGINT, p_waiters INT, INOUT p_wake BLOB
-- out: nothing
CREATE PROCEDURE holdfast.settle_without(p_name VARBINARY(512), p_now BIGINT, p_holders INT, p_units BIGINT, p_waiters INT, INOUT p_wake BLOB)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_capacity, v_holders, v_waiters, v_units, v_count INT;
  DECLARE v_taken, v_last_token, v_soonest_end, v_front_seq, v_front_end, v_seq, v_ends_at, v_at_least, v_sum BIGINT;
  DECLARE v_exact, v_hears TINYINT;
  DECLARE v_id, v_client VARBINARY(64);
  DECLARE v_fence BLOB;
  SELECT capacity, taken - p_units, holders - p_holders, waiters - p_waiters, last_token, soonest_end, front_seq
  INTO v_capacity, v_taken, v_holders, v_waiters, v_last_token, v_soonest_end, v_front_seq
  FROM holdfast.name WHERE name = p_name;
  IF p_now >= v_soonest_end THEN
    SELECT COUNT(*), COALESCE(SUM(units), 0) INTO v_count, v_sum
    FROM holdfast.claim WHERE name = p_name AND token > 0 AND ends_at <= p_now;
    IF v_count > 0 THEN DELETE FROM holdfast.claim WHERE name = p_name AND token > 0 AND ends_at <= p_now; END IF;
    SET v_holders = v_holders - v_count, v_taken = v_taken - v_sum;
    SELECT COALESCE(MIN(ends_at), 8000000000000000000) INTO v_soonest_end
    FROM holdfast.claim WHERE name = p_name AND token > 0;
  END IF;
  SET v_front_end = 8000000000000000000;
  rule: WHILE v_waiters > 0 DO
    -- Not from the beginning: until they are purged, those who left before stand there in the index.
    SELECT id, seq, units, ends_at, at_least, exact, client, hears
    INTO v_id, v_seq, v_units, v_ends_at, v_at_least, v_exact, v_client, v_hears
    FROM holdfast.claim WHERE name = p_name AND token = 0 AND seq >= v_front_seq ORDER BY seq LIMIT 1;
    SET v_front_seq = v_seq;
    IF v_ends_at <= p_now THEN
      DELETE FROM holdfast.claim WHERE name = p_name AND id = v_id;
      SET v_waiters = v_waiters - 1;
    ELSEIF v_taken + v_units <= v_capacity THEN
      -- Its waiter lease stays as it is: the confirmation starts the lease proper.
      SET v_last_token = GREATEST(v_last_token + 1, p_now, v_at_least), v_holders = v_holders + 1,
        v_taken = v_taken + v_units, v_waiters = v_waiters - 1, v_soonest_end = LEAST(v_soonest_end, v_ends_at);
      UPDATE holdfast.claim SET token = v_last_token WHERE name = p_name AND id = v_id;
      IF v_hears THEN
        CALL holdfast.fence(p_name, v_holders, v_last_token, v_exact, v_fence);
        CALL holdfast.push(v_client, 'granted', p_name, v_id, CONCAT(',', v_fence), p_now, p_wake);
      END IF;
    ELSE
      SET v_front_end = v_ends_at;
      LEAVE rule;
    END IF;
  END WHILE;
  UPDATE holdfast.name SET taken = v_taken, holders = v_holders, waiters = v_waiters, last_token = v_last_token,
    soonest_end = IF(v_holders = 0, 8000000000000000000, v_soonest_end), front_seq = v_front_seq, front_end = v_front_end,
    touched_at = p_now
  WHERE name = p_name;
END
//
-- The same, when nobody has left.
-- in: p_name VARBINARY(512), p_now BIGINT, INOUT p_wake BLOB
-- out: nothing
CREATE PROCEDURE holdfast.settle(p_name VARBINARY(512), p_now BIGINT, INOUT p_wake BLOB) SQL SECURITY INVOKER
CALL holdfast.settle_without(p_name, p_now, 0, 0, 0, p_wake)
//
-- How a living claim stands: granted or queued, as JSON.
-- in: p_name VARBINARY(512), p_id VARBINARY(64), p_now BIGINT, OUT p_answer BLOB
-- out: nothing
CREATE PROCEDURE holdfast.answer(p_name VARBINARY(512), p_id VARBINARY(64), p_now BIGINT, OUT p_answer BLOB)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_holders INT;
  DECLARE v_token, v_last_token, v_seq, v_front_seq, v_ends_at, v_soonest_end BIGINT;
  DECLARE v_exact TINYINT;
  DECLARE v_fence, v_owner BLOB;
  SELECT c.token, c.seq, c.ends_at, c.exact, n.holders, n.last_token, n.front_seq, n.soonest_end
  INTO v_token, v_seq, v_ends_at, v_exact, v_holders, v_last_token, v_front_seq, v_soonest_end
  FROM holdfast.name n JOIN holdfast.claim c ON c.name = n.name WHERE n.name = p_name AND c.id = p_id;
  IF v_token > 0 THEN
    CALL holdfast.fence(p_name, v_holders, v_token, v_exact, v_fence);
    SET p_answer = CONCAT('{"kind":"granted","leftMs":', (v_ends_at - p_now) / 1000, ',', v_fence, '}');
  ELSE
    CALL holdfast.holder(p_name, v_owner);
    SET p_answer = CONCAT(
      '{"kind":"queued","lastToken":', v_last_token, ',"nextMs":',
      IF(v_seq <> v_front_seq, 'null', LEAST(86400000, GREATEST(0, v_soonest_end - p_now) / 1000)), v_owner, '}'
    );
  END IF;
END
//
-- Who holds it, by the lowest token, as a JSON member with a comma before it; empty when nobody does.
-- in: p_name VARBINARY(512), OUT p_owner BLOB
-- out: nothing
CREATE PROCEDURE holdfast.holder(p_name VARBINARY(512), OUT p_owner BLOB) SQL SECURITY INVOKER
SET p_owner = COALESCE((
  SELECT CONCAT(',"holder":', owner) FROM holdfast.claim WHERE name = p_name AND token > 0 ORDER BY token LIMIT 1
), '')
//
-- Wakes clients: ends what their listening connections do now, which is mostly to wait (pitfall 53). Each listening connection
-- holds a lock with its client's name in it, for as long as it lives, and is used for nothing else: whoever holds that lock
-- now is no other.
-- in: p_wake BLOB
-- out: nothing
CREATE PROCEDURE holdfast.wake(p_wake BLOB) SQL SECURITY INVOKER
BEGIN
  DECLARE v_connection BIGINT;
  DECLARE v_client VARBINARY(64);
  -- It has gone, or it is not ours to wake: it looks for itself.
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
  WHILE p_wake <> '' DO
    SET v_client = SUBSTRING_INDEX(p_wake, ',', 1), p_wake = SUBSTRING(p_wake, LENGTH(v_client) + 2);
    SET v_connection = IS_USED_LOCK(CONCAT('holdfast ear ', v_client));
    IF v_connection IS NOT NULL THEN KILL QUERY v_connection; END IF;
  END WHILE;
END
//
