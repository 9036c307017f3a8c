// Made by scripts/compile-sql.mjs from sql/*.sql and migrations/*.sql. Do not edit.
import type { Functions, Statements } from "../../sql/verbs.js";

/** The function of each verb, and its parameters with their types, in order. */
export const FUNCTIONS = {
  claim: {"name":"claim","parameters":{"name":"VARBINARY(512)","id":"VARBINARY(64)","units":"INT","capacity":"INT","leaseMs":"BIGINT","waiterMs":"BIGINT","wait":"TINYINT","owner":"BLOB","data":"MEDIUMBLOB","exact":"TINYINT","atLeast":"BIGINT","reserve":"INT","client":"VARBINARY(64)","listens":"TINYINT"}},
  release: {"name":"release","parameters":{"name":"VARBINARY(512)","id":"VARBINARY(64)","tombstone":"TINYINT","tombstoneMs":"BIGINT","to":"VARBINARY(64)","client":"VARBINARY(64)"}},
  batch: {"name":"batch","parameters":{"requests":"LONGBLOB","terms":"LONGBLOB","tombstoneMs":"BIGINT","client":"VARBINARY(64)","listens":"TINYINT"}},
  renew: {"name":"renew","parameters":{"heartbeats":"LONGBLOB","waiterMaxMs":"BIGINT"}},
  resize: {"name":"resize","parameters":{"name":"VARBINARY(512)","id":"VARBINARY(64)","units":"INT"}},
  setCapacity: {"name":"set_capacity","parameters":{"name":"VARBINARY(512)","from":"INT","to":"INT"}},
  inspect: {"name":"inspect","parameters":{"name":"VARBINARY(512)","prefix":"VARBINARY(512)","after":"VARBINARY(512)","limit":"INT"}},
  sweep: {"name":"sweep","parameters":{"after":"VARBINARY(512)","limit":"INT","idleMs":"BIGINT"}},
  readCell: {"name":"read_cell","parameters":{"name":"VARBINARY(512)"}},
  writeCell: {"name":"write_cell","parameters":{"name":"VARBINARY(512)","operation":"VARBINARY(512)","expected":"BIGINT","value":"MEDIUMBLOB","keepMs":"BIGINT"}},
} satisfies Functions;

/** Verbs that a plain statement can stand for. */
export const STATEMENTS = {
  claim: `UPDATE holdfast.name SET capacity = :capacity, taken = :units, holders = 1,
soonest_end = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + :leaseMs * 1000,
touched_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
sole_token = LAST_INSERT_ID(GREATEST(last_token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), :atLeast)),
last_token = GREATEST(last_token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), :atLeast) + :reserve,
sole_id = :id, sole_lease_ms = :leaseMs, sole_exact = :exact, sole_client = :client, sole_listens = :listens,
sole_owner = :owner, sole_data = :data
WHERE name = :name AND holders = 0 AND waiters = 0
AND tombstones_end <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
  release: `UPDATE holdfast.name SET taken = 0, holders = 0, soonest_end = 8000000000000000000,
touched_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), sole_id = DEFAULT(sole_id)
WHERE name = :name AND sole_id = :id AND sole_client = :client
AND soonest_end > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
} satisfies Statements;

export const MIGRATIONS: readonly string[] = [
  `CREATE TABLE IF NOT EXISTS holdfast.store (
one TINYINT NOT NULL PRIMARY KEY,
token_floor BIGINT NOT NULL,
cell_version BIGINT NOT NULL
) ENGINE = InnoDB
//
INSERT IGNORE INTO holdfast.store VALUES (1, 0, 0)
//
CREATE TABLE IF NOT EXISTS holdfast.name (
name VARBINARY(512) NOT NULL PRIMARY KEY,
capacity INT NOT NULL,
taken BIGINT NOT NULL,
holders INT NOT NULL,
waiters INT NOT NULL,
last_token BIGINT NOT NULL,
soonest_end BIGINT NOT NULL,
front_token BIGINT NOT NULL,
front_end BIGINT NOT NULL,
tombstones_end BIGINT NOT NULL,
touched_at BIGINT NOT NULL,
sole_id VARBINARY(64) NOT NULL DEFAULT '',
sole_token BIGINT NOT NULL DEFAULT 0,
sole_lease_ms BIGINT NOT NULL DEFAULT 0,
sole_exact TINYINT NOT NULL DEFAULT 0,
sole_client VARBINARY(64) NOT NULL DEFAULT '',
sole_listens TINYINT NOT NULL DEFAULT 0,
sole_owner BLOB,
sole_data MEDIUMBLOB
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS holdfast.claim (
name VARBINARY(512) NOT NULL,
id VARBINARY(64) NOT NULL,
units INT NOT NULL,
token BIGINT NOT NULL,
holds TINYINT NOT NULL,
ends_at BIGINT NOT NULL,
lease_ms BIGINT NOT NULL,
exact TINYINT NOT NULL,
client VARBINARY(64) NOT NULL,
listens TINYINT NOT NULL,
owner BLOB NOT NULL,
data MEDIUMBLOB,
since BIGINT,
PRIMARY KEY (name, id),
KEY claim_order (name, holds, token)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS holdfast.tombstone (
id VARBINARY(64) NOT NULL,
name VARBINARY(512) NOT NULL,
ends_at BIGINT NOT NULL,
PRIMARY KEY (id, name),
KEY tombstone_end (ends_at)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS holdfast.message (
seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
client VARBINARY(64) NOT NULL,
event BLOB NOT NULL,
ends_at BIGINT NOT NULL,
KEY message_client (client, seq)
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS holdfast.cell (
name VARBINARY(512) NOT NULL PRIMARY KEY,
version BIGINT NOT NULL,
value MEDIUMBLOB NOT NULL
) ENGINE = InnoDB
//
CREATE TABLE IF NOT EXISTS holdfast.operation (
id VARBINARY(512) NOT NULL PRIMARY KEY,
answer MEDIUMBLOB NOT NULL,
ends_at BIGINT NOT NULL,
KEY operation_end (ends_at)
) ENGINE = InnoDB
//
CREATE PROCEDURE holdfast.clock(OUT p_now BIGINT) SQL SECURITY INVOKER
SET p_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
//
CREATE PROCEDURE holdfast.fence(p_name VARBINARY(512), p_holders INT, p_token BIGINT, p_exact TINYINT, OUT p_fence BLOB)
SQL SECURITY INVOKER
BEGIN
DECLARE v_floor BIGINT DEFAULT p_token;
DECLARE v_live BLOB DEFAULT p_token;
DECLARE v_before BIGINT UNSIGNED DEFAULT @@SESSION.group_concat_max_len;
IF p_holders > 1 AND p_exact THEN
SET SESSION group_concat_max_len = GREATEST(v_before, 65536);
SELECT GROUP_CONCAT(token ORDER BY token), MIN(token) INTO v_live, v_floor
FROM holdfast.claim WHERE name = p_name AND holds = 1;
SET SESSION group_concat_max_len = v_before;
ELSEIF p_holders > 1 THEN
SELECT token INTO v_floor FROM holdfast.claim WHERE name = p_name AND holds = 1 ORDER BY token LIMIT 1;
END IF;
SET p_fence = CONCAT('"token":', p_token, ',"floor":', v_floor);
IF p_exact THEN SET p_fence = CONCAT(p_fence, ',"live":[', v_live, ']'); END IF;
END
//
CREATE PROCEDURE holdfast.notify_client(p_client VARBINARY(64), p_kind VARCHAR(10), p_name VARBINARY(512), p_id VARBINARY(64), p_fence BLOB, p_now BIGINT, INOUT p_wake BLOB)
SQL SECURITY INVOKER
BEGIN
INSERT INTO holdfast.message (client, event, ends_at) VALUES (
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
CREATE PROCEDURE holdfast.move_sole(p_name VARBINARY(512)) SQL SECURITY INVOKER
BEGIN
INSERT INTO holdfast.claim SELECT name, sole_id, taken, sole_token, 1, soonest_end, sole_lease_ms, sole_exact, sole_client,
sole_listens, sole_owner, sole_data, touched_at FROM holdfast.name WHERE name = p_name AND sole_id <> '';
UPDATE holdfast.name SET sole_id = '', sole_owner = NULL, sole_data = NULL WHERE name = p_name;
END
//
CREATE PROCEDURE holdfast.advance_without(p_name VARBINARY(512), p_now BIGINT, p_holders INT, p_units BIGINT, p_waiters INT, p_to VARBINARY(64), INOUT p_wake BLOB)
SQL SECURITY INVOKER
BEGIN
DECLARE v_capacity, v_holders, v_waiters, v_units, v_count INT;
DECLARE v_taken, v_soonest_end, v_front_token, v_front_end, v_token, v_ends_at, v_sum BIGINT;
DECLARE v_exact, v_listens TINYINT;
DECLARE v_id, v_client VARBINARY(64);
DECLARE v_fence BLOB;
SELECT capacity, taken - p_units, holders - p_holders, waiters - p_waiters, soonest_end, front_token
INTO v_capacity, v_taken, v_holders, v_waiters, v_soonest_end, v_front_token
FROM holdfast.name WHERE name = p_name;
IF p_now >= v_soonest_end THEN
SELECT COUNT(*), COALESCE(SUM(units), 0) INTO v_count, v_sum
FROM holdfast.claim WHERE name = p_name AND holds = 1 AND ends_at <= p_now;
IF v_count > 0 THEN DELETE FROM holdfast.claim WHERE name = p_name AND holds = 1 AND ends_at <= p_now; END IF;
SET v_holders = v_holders - v_count, v_taken = v_taken - v_sum;
SELECT COALESCE(MIN(ends_at), 8000000000000000000) INTO v_soonest_end
FROM holdfast.claim WHERE name = p_name AND holds = 1;
END IF;
SET v_front_end = 8000000000000000000;
queue: WHILE v_waiters > 0 DO
SELECT id, units, token, ends_at, exact, client, listens
INTO v_id, v_units, v_token, v_ends_at, v_exact, v_client, v_listens
FROM holdfast.claim WHERE name = p_name AND holds = 0 AND token >= v_front_token ORDER BY token LIMIT 1;
SET v_front_token = v_token;
IF v_ends_at <= p_now THEN
DELETE FROM holdfast.claim WHERE name = p_name AND id = v_id;
SET v_waiters = v_waiters - 1;
ELSEIF v_taken + v_units <= v_capacity THEN
SET v_holders = v_holders + 1, v_taken = v_taken + v_units, v_waiters = v_waiters - 1,
v_soonest_end = LEAST(v_soonest_end, v_ends_at);
UPDATE holdfast.claim SET holds = 1, since = p_now WHERE name = p_name AND id = v_id;
IF v_listens AND NOT (v_id <=> p_to) THEN
IF v_holders > 1 THEN
CALL holdfast.fence(p_name, v_holders, v_token, v_exact, v_fence);
ELSE
SET v_fence = CONCAT('"token":', v_token, ',"floor":', v_token, IF(v_exact, CONCAT(',"live":[', v_token, ']'), ''));
END IF;
CALL holdfast.notify_client(v_client, 'granted', p_name, v_id, CONCAT(',', v_fence), p_now, p_wake);
END IF;
ELSE
SET v_front_end = v_ends_at;
LEAVE queue;
END IF;
END WHILE;
UPDATE holdfast.name SET taken = v_taken, holders = v_holders, waiters = v_waiters,
soonest_end = IF(v_holders = 0, 8000000000000000000, v_soonest_end), front_token = v_front_token,
front_end = v_front_end, touched_at = p_now
WHERE name = p_name;
END
//
CREATE PROCEDURE holdfast.advance(p_name VARBINARY(512), p_now BIGINT, INOUT p_wake BLOB) SQL SECURITY INVOKER
CALL holdfast.advance_without(p_name, p_now, 0, 0, 0, NULL, p_wake)
//
CREATE PROCEDURE holdfast.hand_over(p_name VARBINARY(512), p_now BIGINT, p_waiters INT, p_gone INT, p_left_token BIGINT, p_front_token BIGINT, p_to VARBINARY(64), INOUT p_wake BLOB)
SQL SECURITY INVOKER
decide: BEGIN
DECLARE v_left INT DEFAULT p_waiters - p_gone;
DECLARE v_units INT;
DECLARE v_token, v_ends_at, v_front_token, v_front_end BIGINT DEFAULT 8000000000000000000;
DECLARE v_exact, v_listens TINYINT;
DECLARE v_id, v_client VARBINARY(64);
SET v_front_token = p_front_token;
IF v_left > 0 THEN
SELECT id, units, token, ends_at, exact, client, listens
INTO v_id, v_units, v_token, v_ends_at, v_exact, v_client, v_listens
FROM holdfast.claim WHERE name = p_name AND holds = 0 AND token >= p_front_token ORDER BY token LIMIT 1;
IF v_id IS NULL THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a waiter is missing'; END IF;
IF v_token < p_left_token THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'each by itself'; END IF;
IF v_units <> 1 OR v_ends_at <= p_now THEN
CALL holdfast.advance_without(p_name, p_now, 1, 1, p_gone, p_to, p_wake);
LEAVE decide;
END IF;
UPDATE holdfast.claim SET holds = 1, since = p_now WHERE name = p_name AND id = v_id;
IF v_listens AND NOT (v_id <=> p_to) THEN
CALL holdfast.notify_client(
v_client, 'granted', p_name, v_id,
CONCAT(',"token":', v_token, ',"floor":', v_token, IF(v_exact, CONCAT(',"live":[', v_token, ']'), '')), p_now, p_wake
);
END IF;
SET v_front_token = v_token;
IF v_left > 1 THEN
SELECT token, ends_at INTO v_front_token, v_front_end
FROM holdfast.claim WHERE name = p_name AND holds = 0 AND token > v_token ORDER BY token LIMIT 1;
END IF;
END IF;
UPDATE holdfast.name SET taken = LEAST(v_left, 1), holders = LEAST(v_left, 1), waiters = GREATEST(v_left - 1, 0),
soonest_end = v_ends_at, front_token = v_front_token, front_end = v_front_end, touched_at = p_now
WHERE name = p_name;
END
//
CREATE PROCEDURE holdfast.remove_dead(p_name VARBINARY(512), p_id VARBINARY(64), p_now BIGINT) SQL SECURITY INVOKER
BEGIN
DELETE FROM holdfast.claim WHERE name = p_name AND id = p_id AND ends_at <= p_now;
IF ROW_COUNT() > 0 THEN UPDATE holdfast.name SET waiters = waiters - 1 WHERE name = p_name; END IF;
END
//
CREATE PROCEDURE holdfast.answer(p_name VARBINARY(512), p_id VARBINARY(64), p_now BIGINT, OUT p_answer BLOB)
SQL SECURITY INVOKER
BEGIN
DECLARE v_holders INT;
DECLARE v_token, v_front_token, v_ends_at, v_soonest_end BIGINT;
DECLARE v_holds, v_exact TINYINT;
DECLARE v_fence, v_owner BLOB;
SELECT c.token, c.holds, c.ends_at, c.exact, n.holders, n.front_token, n.soonest_end
INTO v_token, v_holds, v_ends_at, v_exact, v_holders, v_front_token, v_soonest_end
FROM holdfast.name n JOIN holdfast.claim c ON c.name = n.name WHERE n.name = p_name AND c.id = p_id;
IF v_holds THEN
CALL holdfast.fence(p_name, v_holders, v_token, v_exact, v_fence);
SET p_answer = CONCAT('{"kind":"granted","leftMs":', (v_ends_at - p_now) / 1000, ',', v_fence, '}');
ELSE
CALL holdfast.holder(p_name, v_owner);
SET p_answer = CONCAT(
'{"kind":"queued","token":', v_token, ',"nextMs":',
IF(v_token <> v_front_token, 'null', LEAST(86400000, GREATEST(0, v_soonest_end - p_now) / 1000)), v_owner, '}'
);
END IF;
END
//
CREATE PROCEDURE holdfast.holder(p_name VARBINARY(512), OUT p_owner BLOB) SQL SECURITY INVOKER
SET p_owner = COALESCE((
SELECT CONCAT(',"holder":', owner) FROM holdfast.claim WHERE name = p_name AND holds = 1 ORDER BY token LIMIT 1
), '')
//
CREATE PROCEDURE holdfast.revoked(p_name VARBINARY(512), p_id VARBINARY(64), p_now BIGINT, OUT p_revoked TINYINT)
SQL SECURITY INVOKER
SET p_revoked = EXISTS(SELECT 1 FROM holdfast.tombstone WHERE id = p_id AND name = p_name AND ends_at > p_now)
//
CREATE PROCEDURE holdfast.wake(p_wake BLOB) SQL SECURITY INVOKER
BEGIN
DECLARE v_connection BIGINT;
DECLARE v_client VARBINARY(64);
DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
WHILE p_wake <> '' DO
SET v_client = SUBSTRING_INDEX(p_wake, ',', 1), p_wake = SUBSTRING(p_wake, LENGTH(v_client) + 2);
SET v_connection = IS_USED_LOCK(CONCAT('holdfast listener ', v_client));
IF v_connection IS NOT NULL THEN KILL QUERY v_connection; END IF;
END WHILE;
END
//
CREATE PROCEDURE holdfast.listen(p_client VARBINARY(64), p_wait_s INT) SQL SECURITY INVOKER
BEGIN
DECLARE v_some, v_free INT DEFAULT 0;
SELECT COUNT(*) INTO v_some FROM (SELECT 1 FROM holdfast.message WHERE client = p_client LIMIT 1) one;
IF v_some = 0 THEN
SELECT GET_LOCK(CONCAT('holdfast wait ', p_client), p_wait_s) INTO v_free;
END IF;
SELECT v_free AS free;
SELECT seq, event FROM holdfast.message WHERE client = p_client ORDER BY seq LIMIT 200;
END
//
CREATE PROCEDURE holdfast.claim_step(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_reserve INT, p_client VARBINARY(64), p_listens TINYINT, OUT p_answer BLOB, INOUT p_wake BLOB, OUT p_token BIGINT, OUT p_ends_at BIGINT, OUT p_holder BLOB)
SQL SECURITY INVOKER
decide: BEGIN
DECLARE v_capacity, v_holders, v_waiters INT;
DECLARE v_taken, v_last_token, v_token, v_soonest_end, v_front_end, v_tombstones_end, v_now, v_ends_at BIGINT;
DECLARE v_holds TINYINT;
DECLARE v_sole VARBINARY(64);
DECLARE v_owner, v_ahead BLOB DEFAULT '';
SET p_token = 0;
SELECT capacity, taken, holders, waiters, last_token, soonest_end, front_end, tombstones_end, sole_id
INTO v_capacity, v_taken, v_holders, v_waiters, v_last_token, v_soonest_end, v_front_end, v_tombstones_end, v_sole
FROM holdfast.name WHERE name = p_name FOR UPDATE;
IF v_capacity IS NULL THEN
INSERT INTO holdfast.name
(name, capacity, taken, holders, waiters, last_token, soonest_end, front_token, front_end, tombstones_end, touched_at)
VALUES (p_name, p_capacity, 0, 0, 0, -1, 8000000000000000000, 0, 8000000000000000000, 0, 0)
ON DUPLICATE KEY UPDATE capacity = holdfast.name.capacity;
SELECT capacity, taken, holders, waiters, last_token, soonest_end, front_end, tombstones_end, sole_id
INTO v_capacity, v_taken, v_holders, v_waiters, v_last_token, v_soonest_end, v_front_end, v_tombstones_end, v_sole
FROM holdfast.name WHERE name = p_name FOR UPDATE;
IF v_last_token < 0 THEN
SET v_last_token = (SELECT token_floor FROM holdfast.store);
UPDATE holdfast.name SET last_token = v_last_token WHERE name = p_name;
END IF;
END IF;
SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
IF v_sole <> '' THEN CALL holdfast.move_sole(p_name); END IF;
IF v_tombstones_end > v_now AND EXISTS (SELECT 1 FROM holdfast.tombstone WHERE id = p_id AND name = p_name AND ends_at > v_now) THEN
SET p_answer = '{"kind":"gone"}';
LEAVE decide;
END IF;
IF v_now >= v_soonest_end OR v_now >= v_front_end THEN
CALL holdfast.advance(p_name, v_now, p_wake);
SELECT capacity, taken, holders, waiters, soonest_end INTO v_capacity, v_taken, v_holders, v_waiters, v_soonest_end
FROM holdfast.name WHERE name = p_name;
END IF;
IF v_holders + v_waiters > 0 THEN
SELECT ends_at INTO v_ends_at FROM holdfast.claim WHERE name = p_name AND id = p_id;
IF v_ends_at > v_now THEN
CALL holdfast.answer(p_name, p_id, v_now, p_answer);
LEAVE decide;
ELSEIF v_ends_at IS NOT NULL THEN
CALL holdfast.remove_dead(p_name, p_id, v_now);
SET v_waiters = v_waiters - 1;
END IF;
END IF;
IF v_holders + v_waiters = 0 THEN SET v_capacity = p_capacity; END IF;
IF v_capacity <> p_capacity THEN
SET p_answer = CONCAT('{"kind":"mismatch","capacity":', v_capacity, '}');
LEAVE decide;
END IF;
SET v_holds = v_waiters = 0 AND v_taken + p_units <= v_capacity;
IF NOT v_holds AND NOT p_wait THEN
CALL holdfast.holder(p_name, v_owner);
SET p_answer = CONCAT('{"kind":"busy"', v_owner, '}');
LEAVE decide;
END IF;
SET v_token = GREATEST(v_last_token + 1, v_now, p_at_least), v_last_token = v_token + p_reserve,
v_ends_at = v_now + IF(v_holds, p_lease_ms, p_waiter_ms) * 1000;
IF v_holds AND v_holders = 0 THEN
UPDATE holdfast.name SET capacity = p_capacity, taken = p_units, holders = 1, last_token = v_last_token,
soonest_end = v_ends_at, touched_at = v_now, sole_id = p_id, sole_token = v_token, sole_lease_ms = p_lease_ms,
sole_exact = p_exact, sole_client = p_client, sole_listens = p_listens, sole_owner = p_owner, sole_data = p_data
WHERE name = p_name;
SET p_answer = CONCAT(
'{"kind":"granted","leftMs":', p_lease_ms, ',"token":', v_token, ',"floor":', v_token,
IF(p_exact, CONCAT(',"live":[', v_token, ']'), ''), '}'
);
LEAVE decide;
END IF;
IF v_holds THEN
UPDATE holdfast.name SET capacity = p_capacity, taken = v_taken + p_units, holders = v_holders + 1,
last_token = v_last_token, soonest_end = LEAST(soonest_end, v_ends_at), touched_at = v_now
WHERE name = p_name;
ELSE
SELECT CONCAT(',"holder":', owner) INTO v_owner FROM holdfast.claim WHERE name = p_name AND holds = 1 ORDER BY token LIMIT 1;
SELECT IF(client = p_client AND ends_at > v_now, CONCAT(',"ahead":', JSON_QUOTE(CONVERT(id USING utf8mb4))), '') INTO v_ahead
FROM holdfast.claim WHERE name = p_name AND holds = IF(v_waiters = 0, 1, 0) ORDER BY token DESC LIMIT 1;
UPDATE holdfast.name SET capacity = p_capacity, waiters = v_waiters + 1, last_token = v_last_token,
front_token = IF(v_waiters = 0, v_token, front_token), front_end = IF(v_waiters = 0, v_ends_at, front_end),
touched_at = v_now
WHERE name = p_name;
SET p_answer = CONCAT(
'{"kind":"queued","token":', v_token, v_ahead, ',"nextMs":',
IF(v_waiters > 0, 'null', LEAST(86400000, GREATEST(0, v_soonest_end - v_now) / 1000)), v_owner, '}'
);
SET p_token = IF(v_tombstones_end > v_now, 0, v_token), p_ends_at = v_ends_at, p_holder = v_owner;
END IF;
INSERT INTO holdfast.claim VALUES
(p_name, p_id, p_units, v_token, v_holds, v_ends_at, p_lease_ms, p_exact, p_client, p_listens, p_owner, p_data, v_now);
IF v_holds THEN CALL holdfast.answer(p_name, p_id, v_now, p_answer); END IF;
END
//
CREATE PROCEDURE holdfast.claim(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT, p_capacity INT, p_lease_ms BIGINT, p_waiter_ms BIGINT, p_wait TINYINT, p_owner BLOB, p_data MEDIUMBLOB, p_exact TINYINT, p_at_least BIGINT, p_reserve INT, p_client VARBINARY(64), p_listens TINYINT)
SQL SECURITY INVOKER
BEGIN
DECLARE v_answer, v_wake, v_holder BLOB DEFAULT '';
DECLARE v_token, v_ends_at BIGINT;
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
CALL holdfast.claim_step(p_name, p_id, p_units, p_capacity, p_lease_ms, p_waiter_ms, p_wait, p_owner, p_data, p_exact, p_at_least, p_reserve, p_client, p_listens, v_answer, v_wake, v_token, v_ends_at, v_holder);
COMMIT AND NO CHAIN NO RELEASE;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SELECT v_answer AS answer;
END
//
CREATE PROCEDURE holdfast.release_step(p_name VARBINARY(512), p_id VARBINARY(64), p_tombstone TINYINT, p_tombstone_ms BIGINT, p_to VARBINARY(64), p_client VARBINARY(64), OUT p_answer BLOB, INOUT p_wake BLOB)
SQL SECURITY INVOKER
decide: BEGIN
DECLARE v_waiters INT DEFAULT -1;
DECLARE v_units, v_capacity, v_holders INT;
DECLARE v_taken, v_now, v_ends_at, v_soonest_end, v_front_token, v_front_end, v_tombstones_end BIGINT DEFAULT 0;
DECLARE v_client VARBINARY(64);
DECLARE v_holds, v_listens, v_revoked TINYINT;
DECLARE v_sole VARBINARY(64);
SET p_answer = '"gone"';
IF p_tombstone THEN
INSERT INTO holdfast.name
(name, capacity, taken, holders, waiters, last_token, soonest_end, front_token, front_end, tombstones_end, touched_at)
VALUES (p_name, 0, 0, 0, 0, -1, 8000000000000000000, 0, 8000000000000000000, 0, 0)
ON DUPLICATE KEY UPDATE capacity = holdfast.name.capacity;
UPDATE holdfast.name SET last_token = (SELECT token_floor FROM holdfast.store) WHERE name = p_name AND last_token < 0;
END IF;
SELECT capacity, taken, holders, waiters, soonest_end, front_token, front_end, sole_id
INTO v_capacity, v_taken, v_holders, v_waiters, v_soonest_end, v_front_token, v_front_end, v_sole
FROM holdfast.name WHERE name = p_name FOR UPDATE;
IF v_waiters >= 0 THEN
IF v_sole <> '' THEN CALL holdfast.move_sole(p_name); END IF;
SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
IF NOT p_tombstone AND v_capacity = 1 AND v_taken = 1 AND v_holders = 1 AND v_now < v_soonest_end AND v_now < v_front_end THEN
DELETE FROM holdfast.claim WHERE name = p_name AND id = p_id AND client = p_client AND holds = 1;
IF ROW_COUNT() = 1 THEN
CALL holdfast.hand_over(p_name, v_now, v_waiters, 0, 0, v_front_token, p_to, p_wake);
SET p_answer = '"released"';
LEAVE decide;
END IF;
END IF;
IF v_now >= v_soonest_end OR v_now >= v_front_end THEN CALL holdfast.advance(p_name, v_now, p_wake); END IF;
SELECT units, holds, ends_at, client, listens INTO v_units, v_holds, v_ends_at, v_client, v_listens
FROM holdfast.claim WHERE name = p_name AND id = p_id;
IF v_client IS NOT NULL THEN
DELETE FROM holdfast.claim WHERE name = p_name AND id = p_id;
CALL holdfast.advance_without(p_name, v_now, v_holds, IF(v_holds, v_units, 0), NOT v_holds, p_to, p_wake);
END IF;
IF v_client IS NOT NULL AND v_ends_at > v_now THEN
SET p_answer = '"released"';
IF v_client <> p_client AND v_listens THEN
CALL holdfast.notify_client(v_client, 'lost', p_name, p_id, '', v_now, p_wake);
END IF;
END IF;
IF p_answer = '"gone"' THEN
CALL holdfast.revoked(p_name, p_id, v_now, v_revoked);
IF v_revoked THEN SET p_answer = '"revoked"'; END IF;
END IF;
IF p_tombstone THEN
SET v_tombstones_end = v_now + p_tombstone_ms * 1000;
INSERT INTO holdfast.tombstone VALUES (p_id, p_name, v_tombstones_end) ON DUPLICATE KEY UPDATE ends_at = v_tombstones_end;
UPDATE holdfast.name SET tombstones_end = v_tombstones_end, touched_at = v_now WHERE name = p_name;
END IF;
END IF;
END
//
CREATE PROCEDURE holdfast.release(p_name VARBINARY(512), p_id VARBINARY(64), p_tombstone TINYINT, p_tombstone_ms BIGINT, p_to VARBINARY(64), p_client VARBINARY(64))
SQL SECURITY INVOKER
BEGIN
DECLARE v_answer, v_wake BLOB DEFAULT '';
DECLARE v_waiters INT DEFAULT 0;
DECLARE v_now, v_soonest_end, v_token, v_ends_at BIGINT;
DECLARE v_front_token, v_front_end BIGINT DEFAULT 8000000000000000000;
DECLARE v_exact, v_listens TINYINT;
DECLARE v_id, v_client VARBINARY(64);
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
IF NOT p_tombstone THEN
SELECT n.waiters, n.soonest_end, c.id, c.token, c.ends_at, c.exact, c.client, c.listens
INTO v_waiters, v_soonest_end, v_id, v_token, v_ends_at, v_exact, v_client, v_listens
FROM holdfast.name n JOIN holdfast.claim c ON c.name = n.name AND c.holds = 0 AND c.token = n.front_token
WHERE n.name = p_name AND n.capacity = 1 AND n.taken = 1 AND n.holders = 1 AND n.waiters > 0 AND n.sole_id = '' AND c.units = 1
FOR UPDATE;
SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
IF v_waiters > 0 AND v_now < v_soonest_end AND v_now < v_ends_at THEN
DELETE FROM holdfast.claim WHERE name = p_name AND id = p_id AND client = p_client AND holds = 1;
IF ROW_COUNT() = 1 THEN
UPDATE holdfast.claim SET holds = 1, since = v_now WHERE name = p_name AND id = v_id;
IF v_listens AND NOT (v_id <=> p_to) THEN
INSERT INTO holdfast.message (client, event, ends_at) VALUES (
v_client,
CONCAT(
'{"kind":"granted","name":', JSON_QUOTE(CONVERT(p_name USING utf8mb4)), ',"id":', JSON_QUOTE(CONVERT(v_id USING utf8mb4)),
',"token":', v_token, ',"floor":', v_token, IF(v_exact, CONCAT(',"live":[', v_token, ']'), ''), '}'
),
v_now + 60000000
);
SET v_wake = v_client;
END IF;
SET v_front_token = v_token;
IF v_waiters > 1 THEN
SELECT token, ends_at INTO v_front_token, v_front_end
FROM holdfast.claim WHERE name = p_name AND holds = 0 AND token > v_token ORDER BY token LIMIT 1;
END IF;
UPDATE holdfast.name SET waiters = v_waiters - 1, soonest_end = v_ends_at, front_token = v_front_token, front_end = v_front_end,
touched_at = v_now
WHERE name = p_name;
SET v_answer = '"released"';
END IF;
END IF;
END IF;
IF v_answer = '' THEN
CALL holdfast.release_step(p_name, p_id, p_tombstone, p_tombstone_ms, p_to, p_client, v_answer, v_wake);
END IF;
COMMIT AND NO CHAIN NO RELEASE;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SELECT v_answer AS answer, v_wake <> '' AS woke;
END
//
CREATE PROCEDURE holdfast.batch(p_requests LONGBLOB, p_terms LONGBLOB, p_tombstone_ms BIGINT, p_client VARBINARY(64), p_listens TINYINT)
SQL SECURITY INVOKER
BEGIN
DECLARE v_over, v_wait, v_exact TINYINT DEFAULT 0;
DECLARE v_name, v_last VARBINARY(512) DEFAULT '';
DECLARE v_id, v_to, v_ahead, v_sole VARBINARY(64);
DECLARE v_known, v_terms, v_units, v_capacity, v_reserve, v_most, v_taken, v_holders, v_waiters INT DEFAULT 0;
DECLARE v_behind, v_run, v_at INT DEFAULT 0;
DECLARE v_lease_ms, v_waiter_ms, v_at_least, v_now, v_soonest_end, v_front_token, v_front_end, v_ends_at BIGINT;
DECLARE v_token, v_left_token BIGINT DEFAULT 0;
DECLARE v_owner, v_holder BLOB;
DECLARE v_data MEDIUMBLOB;
DECLARE v_answer, v_answers LONGBLOB DEFAULT '';
DECLARE v_requests, v_row LONGTEXT CHARACTER SET utf8mb4 DEFAULT CONVERT(p_requests USING utf8mb4);
DECLARE v_wake BLOB DEFAULT '';
DECLARE v_before BIGINT UNSIGNED DEFAULT @@SESSION.innodb_lock_wait_timeout;
DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
ROLLBACK AND NO CHAIN NO RELEASE;
SET SESSION innodb_lock_wait_timeout = v_before;
RESIGNAL;
END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
SET SESSION innodb_lock_wait_timeout = 1;
work: LOOP
SET v_row = JSON_EXTRACT(v_requests, CONCAT('$[', v_at, ']')), v_at = v_at + 1, v_over = v_row IS NULL;
IF NOT v_over THEN
SET v_name = JSON_UNQUOTE(JSON_EXTRACT(v_row, '$[0]')), v_id = JSON_UNQUOTE(JSON_EXTRACT(v_row, '$[1]')),
v_terms = JSON_EXTRACT(v_row, '$[2]'), v_to = NULL;
IF JSON_TYPE(JSON_EXTRACT(v_row, '$[3]')) = 'STRING' THEN SET v_to = JSON_UNQUOTE(JSON_EXTRACT(v_row, '$[3]')); END IF;
END IF;
IF v_behind > 0 AND (v_over OR v_name <> v_last OR v_terms <> v_known) THEN
UPDATE holdfast.name SET waiters = waiters + v_behind, last_token = v_token + v_reserve WHERE name = v_last;
SET v_behind = 0;
END IF;
IF v_over THEN LEAVE work; END IF;
IF v_name <> v_last OR v_terms <> v_known THEN SET v_token = 0; END IF;
SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), v_answer = '', v_last = v_name;
IF v_terms = -2 AND v_run = 0 THEN
SET v_holders = 0;
SELECT capacity, taken, holders, waiters, soonest_end, front_token, front_end, sole_id
INTO v_most, v_taken, v_holders, v_waiters, v_soonest_end, v_front_token, v_front_end, v_sole
FROM holdfast.name WHERE name = v_name FOR UPDATE;
SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
IF v_most = 1 AND v_taken = 1 AND v_holders = 1 AND v_sole = '' AND v_now < v_soonest_end AND v_now < v_front_end THEN SET v_run = 1, v_left_token = 0; END IF;
END IF;
IF v_run > 0 AND v_terms <> -1 THEN
DELETE FROM holdfast.claim WHERE name = v_name AND id = v_id AND client = p_client AND holds = (v_run = 1) AND ends_at > v_now
AND LAST_INSERT_ID(token) > v_left_token;
IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'each by itself'; END IF;
SET v_left_token = LAST_INSERT_ID();
SET v_answer = '"released"', v_run = v_run + 1;
END IF;
IF v_run > 0 AND v_terms <> -2 THEN
CALL holdfast.hand_over(v_name, v_now, v_waiters, v_run - 2, v_left_token, v_front_token, IF(v_answer = '', v_id, v_to), v_wake);
SET v_run = 0;
END IF;
IF v_answer = '' AND v_terms <= 0 THEN
IF v_terms = 0 AND v_to IS NULL THEN
UPDATE holdfast.name SET taken = 0, holders = 0, soonest_end = 8000000000000000000, touched_at = v_now, sole_id = DEFAULT(sole_id)
WHERE name = v_name AND sole_id = v_id AND sole_client = p_client AND soonest_end > v_now;
IF ROW_COUNT() = 1 THEN SET v_answer = '"released"'; END IF;
END IF;
IF v_answer = '' THEN
CALL holdfast.release_step(v_name, v_id, v_terms = -1, p_tombstone_ms, v_to, p_client, v_answer, v_wake);
END IF;
ELSEIF v_answer = '' AND v_token > 0 THEN
SET v_token = v_token + 1 + v_reserve, v_behind = v_behind + 1;
INSERT INTO holdfast.claim VALUES
(v_name, v_id, v_units, v_token, 0, v_ends_at, v_lease_ms, v_exact, p_client, p_listens, v_owner, v_data, v_now);
SET v_answer = CONCAT(
'{"kind":"queued","token":', v_token, ',"ahead":', JSON_QUOTE(CONVERT(v_ahead USING utf8mb4)), ',"nextMs":null', v_holder, '}'
);
ELSEIF v_answer = '' THEN
IF v_terms <> v_known THEN
SET v_row = JSON_EXTRACT(CONVERT(p_terms USING utf8mb4), CONCAT('$[', v_terms - 1, ']')),
v_units = JSON_EXTRACT(v_row, '$[0]'), v_capacity = JSON_EXTRACT(v_row, '$[1]'), v_lease_ms = JSON_EXTRACT(v_row, '$[2]'),
v_waiter_ms = JSON_EXTRACT(v_row, '$[3]'), v_wait = JSON_EXTRACT(v_row, '$[4]'),
v_owner = JSON_UNQUOTE(JSON_EXTRACT(v_row, '$[5]')), v_data = NULL, v_exact = JSON_EXTRACT(v_row, '$[7]'),
v_at_least = JSON_EXTRACT(v_row, '$[8]'), v_reserve = JSON_EXTRACT(v_row, '$[9]');
IF JSON_TYPE(JSON_EXTRACT(v_row, '$[6]')) = 'STRING' THEN SET v_data = JSON_UNQUOTE(JSON_EXTRACT(v_row, '$[6]')); END IF;
SET v_known = v_terms;
END IF;
IF v_units <= v_capacity
AND NOT (v_at = 1 AND v_name <=> CAST(JSON_UNQUOTE(JSON_EXTRACT(v_requests, CONCAT('$[', v_at, '][0]'))) AS BINARY)) THEN
UPDATE holdfast.name SET capacity = v_capacity, taken = v_units, holders = 1, soonest_end = v_now + v_lease_ms * 1000,
touched_at = v_now, sole_token = LAST_INSERT_ID(GREATEST(last_token + 1, v_now, v_at_least)),
last_token = GREATEST(last_token + 1, v_now, v_at_least) + v_reserve, sole_id = v_id, sole_lease_ms = v_lease_ms,
sole_exact = v_exact, sole_client = p_client, sole_listens = p_listens, sole_owner = v_owner, sole_data = v_data
WHERE name = v_name AND holders = 0 AND waiters = 0 AND tombstones_end <= v_now;
IF ROW_COUNT() = 1 THEN
SET v_answer = CONCAT(
'{"kind":"granted","leftMs":', v_lease_ms, ',"token":', LAST_INSERT_ID(), ',"floor":', LAST_INSERT_ID(),
IF(v_exact, CONCAT(',"live":[', LAST_INSERT_ID(), ']'), ''), '}'
);
END IF;
END IF;
IF v_answer = '' THEN
CALL holdfast.claim_step(v_name, v_id, v_units, v_capacity, v_lease_ms, v_waiter_ms, v_wait, v_owner, v_data, v_exact, v_at_least, v_reserve, p_client, p_listens, v_answer, v_wake, v_token, v_ends_at, v_holder);
END IF;
END IF;
SET v_answers = CONCAT(v_answers, IF(v_answers = '', '', ','), v_answer), v_ahead = v_id;
END LOOP;
COMMIT AND NO CHAIN NO RELEASE;
SET SESSION innodb_lock_wait_timeout = v_before;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SELECT CONCAT('[', v_answers, ']') AS answer;
END
//
CREATE PROCEDURE holdfast.renew(p_heartbeats LONGBLOB, p_waiter_max_ms BIGINT) SQL SECURITY INVOKER
BEGIN
DECLARE v_over, v_revoked, v_holds TINYINT DEFAULT 0;
DECLARE v_name VARBINARY(512) DEFAULT '';
DECLARE v_id, v_sole VARBINARY(64);
DECLARE v_lease_ms, v_at_least, v_now, v_soonest_end, v_front_end, v_token BIGINT;
DECLARE v_answer, v_answers LONGBLOB DEFAULT '';
DECLARE v_wake BLOB DEFAULT '';
DECLARE heartbeats CURSOR FOR
SELECT CAST(name AS BINARY), CAST(id AS BINARY), lease, token FROM JSON_TABLE(CONVERT(p_heartbeats USING utf8mb4), '$[*]' COLUMNS (
place FOR ORDINALITY, name VARCHAR(512) CHARACTER SET utf8mb4 PATH '$[0]',
id VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[1]', lease BIGINT PATH '$[2]', token BIGINT PATH '$[3]'
)) t ORDER BY place;
DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = 1;
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
OPEN heartbeats;
work: LOOP
FETCH heartbeats INTO v_name, v_id, v_lease_ms, v_at_least;
IF v_over THEN LEAVE work; END IF;
SET v_soonest_end = NULL;
SELECT soonest_end, front_end, sole_id INTO v_soonest_end, v_front_end, v_sole
FROM holdfast.name WHERE name = v_name FOR UPDATE;
IF v_soonest_end IS NOT NULL AND v_sole <> '' THEN CALL holdfast.move_sole(v_name); END IF;
SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), v_token = NULL;
IF v_now >= v_soonest_end OR v_now >= v_front_end THEN CALL holdfast.advance(v_name, v_now, v_wake); END IF;
IF v_soonest_end IS NOT NULL THEN
SELECT token, holds INTO v_token, v_holds FROM holdfast.claim WHERE name = v_name AND id = v_id AND ends_at > v_now;
END IF;
IF v_token IS NULL THEN
CALL holdfast.remove_dead(v_name, v_id, v_now);
CALL holdfast.revoked(v_name, v_id, v_now, v_revoked);
SET v_answer = IF(v_revoked, '{"kind":"gone","revoked":true}', '{"kind":"gone"}');
ELSE
UPDATE holdfast.claim SET
ends_at = IF(holds, GREATEST(ends_at, v_now + COALESCE(NULLIF(v_lease_ms, 0), lease_ms) * 1000),
v_now + LEAST(lease_ms, p_waiter_max_ms) * 1000)
WHERE name = v_name AND id = v_id;
IF v_holds AND v_at_least > v_token AND (SELECT waiters FROM holdfast.name WHERE name = v_name) = 0 THEN
UPDATE holdfast.claim SET token = v_at_least WHERE name = v_name AND id = v_id;
UPDATE holdfast.name SET last_token = GREATEST(last_token, v_at_least) WHERE name = v_name;
END IF;
CALL holdfast.answer(v_name, v_id, v_now, v_answer);
END IF;
SET v_answers = CONCAT(v_answers, IF(v_answers = '', '', ','), v_answer), v_over = 0;
END LOOP;
CLOSE heartbeats;
COMMIT AND NO CHAIN NO RELEASE;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SELECT CONCAT('[', v_answers, ']') AS answer;
END
//
CREATE PROCEDURE holdfast.resize(p_name VARBINARY(512), p_id VARBINARY(64), p_units INT) SQL SECURITY INVOKER
BEGIN
DECLARE v_units, v_busy INT;
DECLARE v_now BIGINT;
DECLARE v_holds TINYINT;
DECLARE v_answer BLOB DEFAULT '"gone"';
DECLARE v_wake BLOB DEFAULT '';
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
SELECT holders INTO v_busy FROM holdfast.name WHERE name = p_name FOR UPDATE;
IF v_busy IS NOT NULL THEN
CALL holdfast.clock(v_now);
CALL holdfast.move_sole(p_name);
CALL holdfast.advance(p_name, v_now, v_wake);
SELECT units, holds INTO v_units, v_holds FROM holdfast.claim WHERE name = p_name AND id = p_id AND ends_at > v_now;
IF NOT v_holds OR p_units > v_units THEN
SET v_answer = '"refused"';
ELSEIF v_holds THEN
SET v_answer = '"resized"';
UPDATE holdfast.claim SET units = p_units WHERE name = p_name AND id = p_id;
CALL holdfast.advance_without(p_name, v_now, 0, v_units - p_units, 0, NULL, v_wake);
ELSE
CALL holdfast.remove_dead(p_name, p_id, v_now);
END IF;
END IF;
COMMIT AND NO CHAIN NO RELEASE;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SELECT v_answer AS answer;
END
//
CREATE PROCEDURE holdfast.set_capacity(p_name VARBINARY(512), p_from INT, p_to INT) SQL SECURITY INVOKER
BEGIN
DECLARE v_busy, v_capacity INT;
DECLARE v_now, v_ends_at BIGINT;
DECLARE v_over, v_listens TINYINT DEFAULT 0;
DECLARE v_id, v_client VARBINARY(64);
DECLARE v_answer BLOB DEFAULT '{"kind":"set"}';
DECLARE v_wake BLOB DEFAULT '';
DECLARE large CURSOR FOR
SELECT id, client, listens, ends_at FROM holdfast.claim WHERE name = p_name AND holds = 0 AND units > p_to;
DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = 1;
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
SELECT holders INTO v_busy FROM holdfast.name WHERE name = p_name FOR UPDATE;
IF v_busy IS NOT NULL THEN
CALL holdfast.clock(v_now);
CALL holdfast.move_sole(p_name);
CALL holdfast.advance(p_name, v_now, v_wake);
SELECT holders + waiters, capacity INTO v_busy, v_capacity FROM holdfast.name WHERE name = p_name;
IF v_busy > 0 AND v_capacity NOT IN (p_from, p_to) THEN
SET v_answer = CONCAT('{"kind":"mismatch","capacity":', v_capacity, '}');
ELSEIF v_busy > 0 AND v_capacity <> p_to THEN
UPDATE holdfast.name SET capacity = p_to WHERE name = p_name;
SET v_over = 0;
OPEN large;
work: LOOP
FETCH large INTO v_id, v_client, v_listens, v_ends_at;
IF v_over THEN LEAVE work; END IF;
DELETE FROM holdfast.claim WHERE name = p_name AND id = v_id;
UPDATE holdfast.name SET waiters = waiters - 1 WHERE name = p_name;
IF v_listens AND v_ends_at > v_now THEN
CALL holdfast.notify_client(v_client, 'lost', p_name, v_id, '', v_now, v_wake);
END IF;
END LOOP;
CLOSE large;
CALL holdfast.advance(p_name, v_now, v_wake);
END IF;
END IF;
COMMIT AND NO CHAIN NO RELEASE;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SELECT v_answer AS answer;
END
//
CREATE PROCEDURE holdfast.inspect(p_name VARBINARY(512), p_prefix VARBINARY(512), p_after VARBINARY(512), p_limit INT)
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
ORDER BY name LIMIT p_limit;
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
CALL holdfast.move_sole(v_name);
CALL holdfast.advance(v_name, v_now, v_wake);
END IF;
END IF;
SET v_over = 0;
END LOOP;
CLOSE page;
COMMIT AND NO CHAIN NO RELEASE;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ ONLY;
SELECT IF(v_seen = p_limit, v_last, NULL) AS next;
SELECT n.name, n.capacity, n.last_token, c.id, c.units, c.token, c.holds, (c.ends_at - v_now) / 1000 AS left_ms, c.owner, c.data,
GREATEST(0, v_now - c.since) / 1000 AS for_ms
FROM holdfast.name n JOIN holdfast.claim c ON c.name = n.name
WHERE n.name > p_after AND n.name <= v_last AND c.ends_at > v_now
AND IF(p_name IS NULL, LEFT(n.name, LENGTH(p_prefix)) = p_prefix, n.name = p_name)
UNION ALL
SELECT n.name, n.capacity, n.last_token, n.sole_id, n.taken, n.sole_token, 1, (n.soonest_end - v_now) / 1000, n.sole_owner,
n.sole_data, GREATEST(0, v_now - n.touched_at) / 1000
FROM holdfast.name n
WHERE n.name > p_after AND n.name <= v_last AND n.sole_id <> '' AND n.soonest_end > v_now
AND IF(p_name IS NULL, LEFT(n.name, LENGTH(p_prefix)) = p_prefix, n.name = p_name)
ORDER BY name, token;
COMMIT AND NO CHAIN NO RELEASE;
END
//
CREATE PROCEDURE holdfast.sweep(p_after VARBINARY(512), p_limit INT, p_idle_ms BIGINT) SQL SECURITY INVOKER
BEGIN
DECLARE v_over TINYINT DEFAULT 0;
DECLARE v_gone, v_busy, v_rows, v_seen INT DEFAULT 0;
DECLARE v_name, v_up_to VARBINARY(512);
DECLARE v_now, v_floor, v_token, v_tombstones_end, v_due BIGINT DEFAULT 0;
DECLARE v_full TINYINT DEFAULT 0;
DECLARE v_wake BLOB DEFAULT '';
DECLARE old CURSOR FOR
SELECT name FROM holdfast.name WHERE name > p_after AND (v_up_to IS NULL OR name <= v_up_to) AND (
soonest_end <= v_now OR front_end <= v_now
OR holders = 0 AND waiters = 0 AND tombstones_end <= v_now AND touched_at <= v_now - p_idle_ms * 1000
) ORDER BY name;
DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_over = 1;
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
CALL holdfast.clock(v_now);
SELECT COUNT(*), MAX(name) INTO v_seen, v_up_to
FROM (SELECT name FROM holdfast.name WHERE name > p_after ORDER BY name LIMIT p_limit) batch;
IF v_seen < p_limit THEN SET v_up_to = NULL; END IF;
SET v_over = 0;
OPEN old;
work: LOOP
FETCH old INTO v_name;
IF v_over THEN LEAVE work; END IF;
SELECT LEAST(soonest_end, front_end) INTO v_due FROM holdfast.name WHERE name = v_name FOR UPDATE SKIP LOCKED;
IF NOT v_over THEN
IF v_due <= v_now THEN
CALL holdfast.move_sole(v_name);
CALL holdfast.advance(v_name, v_now, v_wake);
END IF;
SELECT holders + waiters, last_token, tombstones_end INTO v_busy, v_token, v_tombstones_end FROM holdfast.name WHERE name = v_name;
IF v_busy = 0 AND v_tombstones_end <= v_now THEN
DELETE FROM holdfast.name WHERE name = v_name;
SET v_floor = GREATEST(v_floor, v_token), v_gone = v_gone + 1;
END IF;
END IF;
SET v_over = 0;
END LOOP;
CLOSE old;
IF v_floor > 0 THEN UPDATE holdfast.store SET token_floor = v_floor WHERE one = 1 AND token_floor < v_floor; END IF;
DELETE FROM holdfast.tombstone WHERE ends_at <= v_now ORDER BY ends_at LIMIT p_limit;
SET v_rows = ROW_COUNT(), v_gone = v_gone + v_rows, v_full = v_rows = p_limit;
DELETE FROM holdfast.operation WHERE ends_at <= v_now ORDER BY ends_at LIMIT p_limit;
SET v_rows = ROW_COUNT(), v_gone = v_gone + v_rows, v_full = v_full OR v_rows = p_limit;
DELETE FROM holdfast.message WHERE ends_at <= v_now ORDER BY seq LIMIT p_limit;
SET v_rows = ROW_COUNT(), v_gone = v_gone + v_rows, v_full = v_full OR v_rows = p_limit;
COMMIT AND NO CHAIN NO RELEASE;
IF v_wake <> '' THEN CALL holdfast.wake(v_wake); END IF;
SELECT CONCAT(
'{"next":', COALESCE(JSON_QUOTE(CONVERT(v_up_to USING utf8mb4)), 'null'), ',"rows":', v_gone, ',"full":',
IF(v_full, 'true', 'false'), '}'
) AS answer;
END
//
CREATE PROCEDURE holdfast.read_cell(p_name VARBINARY(512)) SQL SECURITY INVOKER
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
CREATE PROCEDURE holdfast.write_cell(p_name VARBINARY(512), p_operation VARBINARY(512), p_expected BIGINT, p_value MEDIUMBLOB, p_keep_ms BIGINT)
SQL SECURITY INVOKER
BEGIN
DECLARE v_now, v_version, v_next BIGINT DEFAULT 0;
DECLARE v_answer, v_value MEDIUMBLOB;
DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK AND NO CHAIN NO RELEASE; RESIGNAL; END;
COMMIT AND NO CHAIN NO RELEASE;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
CALL holdfast.clock(v_now);
INSERT IGNORE INTO holdfast.operation VALUES (p_operation, '', v_now + p_keep_ms * 1000);
IF ROW_COUNT() = 0 THEN
SELECT answer INTO v_answer FROM holdfast.operation WHERE id = p_operation;
ELSE
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
`,
];
