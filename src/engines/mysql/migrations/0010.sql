-- A waiter whose lease had ended before a capacity was lowered is dropped and told nothing: it was no waiter any more. Before,
-- it was told that it had lost its place, unless it had stood at the front.

-- Change a busy name's capacity: waiters that can never be served leave, what now fits enters, holders stay.
-- in: p_name VARBINARY(512), p_from INT, p_to INT
-- out: one row with answer
CREATE PROCEDURE holdfast.set_capacity(p_name VARBINARY(512), p_from INT, p_to INT) SQL SECURITY INVOKER
BEGIN
  DECLARE v_busy, v_capacity INT;
  DECLARE v_now, v_ends_at BIGINT;
  DECLARE v_over, v_hears TINYINT DEFAULT 0;
  DECLARE v_id, v_client VARBINARY(64);
  DECLARE v_answer BLOB DEFAULT '{"kind":"set"}';
  DECLARE v_wake BLOB DEFAULT '';
  DECLARE large CURSOR FOR
    SELECT id, client, hears, ends_at FROM holdfast.claim WHERE name = p_name AND token = 0 AND units > p_to;
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
        FETCH large INTO v_id, v_client, v_hears, v_ends_at;
        IF v_over THEN LEAVE work; END IF;
        DELETE FROM holdfast.claim WHERE name = p_name AND id = v_id;
        UPDATE holdfast.name SET waiters = waiters - 1 WHERE name = p_name;
        IF v_hears AND v_ends_at > v_now THEN
          CALL holdfast.push(v_client, 'lost', p_name, v_id, '', v_now, v_wake);
        END IF;
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
