// Made by scripts/compile-sql.mjs from sql/*.sql and migrations/*.sql. Do not edit.
import type { Functions, Statements } from "../../sql/verbs.js";

/** The function of each verb, and its parameters with their types, in order. */
export const FUNCTIONS = {
  claim: {"name":"claim","parameters":{"name":"text","id":"text","units":"integer","capacity":"integer","leaseMs":"bigint","waiterMs":"bigint","wait":"boolean","owner":"text","data":"text","exact":"boolean","atLeast":"bigint","reserve":"integer","client":"text","listens":"boolean"}},
  release: {"name":"release","parameters":{"name":"text","id":"text","tombstone":"boolean","tombstoneMs":"bigint","to":"text","client":"text"}},
  batch: {"name":"batch","parameters":{"requests":"text[]","terms":"text[]","tombstoneMs":"bigint","client":"text","listens":"boolean"}},
  renew: {"name":"renew","parameters":{"heartbeats":"text[]","waiterMaxMs":"bigint"}},
  resize: {"name":"resize","parameters":{"name":"text","id":"text","units":"integer"}},
  setCapacity: {"name":"set_capacity","parameters":{"name":"text","from":"integer","to":"integer"}},
  inspect: {"name":"inspect","parameters":{"name":"text","prefix":"text","after":"text","limit":"integer"}},
  sweep: {"name":"sweep","parameters":{"after":"text","limit":"integer","idleMs":"bigint"}},
  readCell: {"name":"read_cell","parameters":{"name":"text"}},
  writeCell: {"name":"write_cell","parameters":{"name":"text","operation":"text","expected":"bigint","value":"text","keepMs":"bigint"}},
} satisfies Functions;

/** Verbs that a plain statement can stand for. */
export const STATEMENTS = {
  claim: `UPDATE holdfast.name t SET capacity = :capacity, taken = :units, holders = 1,
last_token = greatest(t.last_token + 1, holdfast.micros(statement_timestamp()), :atLeast) + :reserve,
low_token = greatest(t.last_token + 1, holdfast.micros(statement_timestamp()), :atLeast),
soonest_end = statement_timestamp() + :leaseMs * interval '1 millisecond', touched_at = statement_timestamp(), sole_id = :id,
sole = ROW(
:name, :id, :units, greatest(t.last_token + 1, holdfast.micros(statement_timestamp()), :atLeast), true,
statement_timestamp() + :leaseMs * interval '1 millisecond', :leaseMs, :exact, :client, :listens, :owner, :data
)
WHERE t.name = :name AND t.holders = 0 AND t.waiters = 0 AND t.tombstones_end <= statement_timestamp() AND :units <= :capacity
AND set_config('lock_timeout', '3s', true) <> ''
RETURNING format(
'{"kind":"granted","leftMs":%s,"token":%s,"floor":%2$s%s}', holdfast.left_ms(t.soonest_end, clock_timestamp()),
t.low_token, CASE WHEN :exact THEN format(',"live":[%s]', t.low_token) END
) AS answer`,
  release: `UPDATE holdfast.name t SET taken = 0, holders = 0, soonest_end = 'infinity', touched_at = clock_timestamp(), sole_id = '',
sole = NULL
WHERE t.name = :name AND t.sole_id = :id AND NOT :tombstone AND (t.sole).client = :client AND t.soonest_end > clock_timestamp()
AND set_config('lock_timeout', '3s', true) <> ''
RETURNING '"released"' AS answer`,
} satisfies Statements;

export const MIGRATIONS: readonly string[] = [
  `CREATE TABLE holdfast.store (
one boolean PRIMARY KEY DEFAULT true CHECK (one),
token_floor bigint NOT NULL
);
INSERT INTO holdfast.store (token_floor) VALUES (0);
CREATE TABLE holdfast.claim (
name text COLLATE "C" NOT NULL,
id text COLLATE "C" NOT NULL,
units integer NOT NULL,
token bigint NOT NULL,
holds boolean NOT NULL,
ends_at timestamptz NOT NULL,
lease_ms bigint NOT NULL,
exact boolean NOT NULL,
client text COLLATE "C" NOT NULL,
listens boolean NOT NULL,
owner text NOT NULL,
data text,
since timestamptz,
PRIMARY KEY (name, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE INDEX claim_order ON holdfast.claim (name, token);
CREATE TYPE holdfast.sole AS (
name text, id text, units integer, token bigint, holds boolean, ends_at timestamptz, lease_ms bigint, exact boolean,
client text, listens boolean, owner text, data text
);
CREATE TABLE holdfast.name (
name text COLLATE "C" PRIMARY KEY,
capacity integer NOT NULL,
taken bigint NOT NULL,
holders integer NOT NULL,
waiters integer NOT NULL,
last_token bigint NOT NULL,
low_token bigint NOT NULL,
soonest_end timestamptz NOT NULL,
front_token bigint NOT NULL,
front_end timestamptz NOT NULL,
tombstones_end timestamptz NOT NULL,
touched_at timestamptz NOT NULL,
sole_id text COLLATE "C" NOT NULL,
sole holdfast.sole
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
CREATE TABLE holdfast.tombstone (
id text COLLATE "C" NOT NULL,
name text COLLATE "C" NOT NULL,
ends_at timestamptz NOT NULL,
PRIMARY KEY (id, name)
);
CREATE INDEX tombstone_end ON holdfast.tombstone (ends_at);
CREATE TABLE holdfast.cell (
name text COLLATE "C" PRIMARY KEY,
version bigint NOT NULL,
value text NOT NULL
);
CREATE SEQUENCE holdfast.cell_version;
CREATE TABLE holdfast.operation (
id text COLLATE "C" PRIMARY KEY,
answer text NOT NULL,
ends_at timestamptz NOT NULL
);
CREATE INDEX operation_end ON holdfast.operation (ends_at);
CREATE FUNCTION holdfast.micros(p_now timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT (extract(epoch FROM p_now) * 1000000)::bigint $$;
CREATE FUNCTION holdfast.left_ms(p_then timestamptz, p_now timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT greatest(0, round(extract(epoch FROM p_then - p_now) * 1000, 3))::text $$;
CREATE FUNCTION holdfast.fence(n holdfast.name, c holdfast.claim) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
v_floor bigint := c.token;
v_live text;
BEGIN
IF c.exact AND n.holders > 1 THEN
SELECT string_agg(h.token::text, ',' ORDER BY h.token), min(h.token) INTO v_live, v_floor
FROM holdfast.claim h WHERE h.name = n.name AND h.holds AND h.token >= n.low_token;
RETURN format('"token":%s,"floor":%s,"live":[%s]', c.token, v_floor, v_live);
END IF;
IF c.exact THEN
RETURN format('"token":%s,"floor":%1$s,"live":[%1$s]', c.token);
END IF;
IF n.holders > 1 THEN
SELECT h.token INTO v_floor FROM holdfast.claim h
WHERE h.name = n.name AND h.holds AND h.token >= n.low_token ORDER BY h.token LIMIT 1;
END IF;
RETURN format('"token":%s,"floor":%s', c.token, v_floor);
END $$;
CREATE FUNCTION holdfast.holder(n holdfast.name) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
v_owner text;
BEGIN
IF n.sole_id <> '' THEN
v_owner := (n.sole).owner;
ELSE
SELECT h.owner INTO v_owner FROM holdfast.claim h
WHERE h.name = n.name AND h.holds AND h.token >= n.low_token ORDER BY h.token LIMIT 1;
END IF;
RETURN coalesce(',"holder":' || v_owner, '');
END $$;
CREATE FUNCTION holdfast.ahead(n holdfast.name, p_client text, p_now timestamptz) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
c holdfast.claim;
BEGIN
IF n.sole_id <> '' THEN
c := n.sole;
ELSIF n.waiters > 0 THEN
SELECT t.id, t.client, t.ends_at INTO c.id, c.client, c.ends_at FROM holdfast.claim t
WHERE t.name = n.name AND NOT t.holds ORDER BY t.token DESC LIMIT 1;
ELSE
SELECT t.id, t.client, t.ends_at INTO c.id, c.client, c.ends_at FROM holdfast.claim t
WHERE t.name = n.name AND t.holds ORDER BY t.token DESC LIMIT 1;
END IF;
IF c.client = p_client AND c.ends_at > p_now THEN RETURN format(',"ahead":%s', to_json(c.id)); END IF;
RETURN '';
END $$;
CREATE FUNCTION holdfast.answer(n holdfast.name, c holdfast.claim, p_now timestamptz, p_ahead text DEFAULT '') RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
IF c.holds THEN
RETURN format('{"kind":"granted","leftMs":%s,%s}', holdfast.left_ms(c.ends_at, p_now), holdfast.fence(n, c));
END IF;
RETURN format(
'{"kind":"queued","token":%s%s,"nextMs":%s%s}',
c.token, p_ahead,
CASE WHEN c.token <> n.front_token THEN 'null' ELSE holdfast.left_ms(least(n.soonest_end, p_now + interval '1 day'), p_now) END,
holdfast.holder(n)
);
END $$;
CREATE FUNCTION holdfast.notify_client(c holdfast.claim, p_kind text, p_fence text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
IF c.listens THEN
PERFORM pg_notify(c.client, format('{"kind":"%s","name":%s,"id":%s%s}', p_kind, to_json(c.name), to_json(c.id), p_fence));
END IF;
END $$;
CREATE FUNCTION holdfast.lock_name(p_name text, p_make boolean) RETURNS holdfast.name LANGUAGE plpgsql AS $$
DECLARE
n holdfast.name;
v_fresh boolean := false;
BEGIN
LOOP
SELECT * INTO n FROM holdfast.name t WHERE t.name = p_name FOR UPDATE;
EXIT WHEN FOUND OR NOT p_make;
INSERT INTO holdfast.name
VALUES (p_name, 0, 0, 0, 0, 0, 0, 'infinity', 0, 'infinity', '-infinity', clock_timestamp(), '', NULL)
ON CONFLICT DO NOTHING;
v_fresh := FOUND;
END LOOP;
IF v_fresh THEN n.last_token := holdfast.floor_now(); END IF;
RETURN n;
END $$;
CREATE FUNCTION holdfast.floor_now() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
v_floor bigint;
BEGIN
IF current_setting('transaction_isolation') = 'read committed' THEN
SELECT s.token_floor INTO v_floor FROM holdfast.store s;
ELSE
SELECT s.token_floor INTO v_floor FROM holdfast.store s FOR SHARE;
END IF;
RETURN v_floor;
END $$;
CREATE FUNCTION holdfast.save_name(n holdfast.name, p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
UPDATE holdfast.name t SET
capacity = n.capacity, taken = n.taken, holders = n.holders, waiters = n.waiters, last_token = n.last_token,
low_token = n.low_token, soonest_end = n.soonest_end, front_token = n.front_token, front_end = n.front_end,
tombstones_end = n.tombstones_end, touched_at = CASE n.sole_id WHEN '' THEN p_now ELSE n.touched_at END,
sole_id = n.sole_id, sole = n.sole
WHERE t.name = n.name;
END $$;
CREATE FUNCTION holdfast.enter(n holdfast.name, c holdfast.claim) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
IF n.holders = 0 THEN n.low_token := c.token; END IF;
n.holders := n.holders + 1;
n.taken := n.taken + c.units;
n.soonest_end := least(n.soonest_end, c.ends_at);
RETURN n;
END $$;
CREATE FUNCTION holdfast.leave(n holdfast.name, c holdfast.claim) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
IF c.holds THEN
n.holders := n.holders - 1;
n.taken := n.taken - c.units;
IF n.holders = 0 THEN n.soonest_end := 'infinity'; END IF;
ELSE
n.waiters := n.waiters - 1;
END IF;
RETURN n;
END $$;
CREATE FUNCTION holdfast.find_claim(n holdfast.name, p_id text) RETURNS holdfast.claim LANGUAGE plpgsql AS $$
DECLARE
c holdfast.claim;
BEGIN
IF n.sole_id = p_id THEN c := n.sole; END IF;
IF n.sole_id = '' THEN SELECT * INTO c FROM holdfast.claim t WHERE t.name = n.name AND t.id = p_id; END IF;
RETURN c;
END $$;
CREATE FUNCTION holdfast.remove_dead(n holdfast.name, p_id text, p_now timestamptz) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
DELETE FROM holdfast.claim t WHERE t.name = n.name AND t.id = p_id AND t.ends_at <= p_now;
IF FOUND THEN n.waiters := n.waiters - 1; END IF;
RETURN n;
END $$;
CREATE FUNCTION holdfast.move_sole(n holdfast.name) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
IF n.sole_id <> '' THEN
INSERT INTO holdfast.claim SELECT (n.sole).*, n.touched_at;
n.sole_id := '';
n.sole := NULL;
END IF;
RETURN n;
END $$;
CREATE FUNCTION holdfast.advance(n holdfast.name, p_now timestamptz, p_to text DEFAULT NULL) RETURNS holdfast.name
LANGUAGE plpgsql AS $$
DECLARE
c holdfast.claim;
BEGIN
IF n.sole_id <> '' THEN
c := n.sole;
IF c.ends_at > p_now THEN
n.soonest_end := c.ends_at;
RETURN n;
END IF;
n.sole_id := '';
n.sole := NULL;
RETURN holdfast.leave(n, c);
END IF;
IF p_now >= n.soonest_end THEN
FOR c IN DELETE FROM holdfast.claim t WHERE t.name = n.name AND t.holds AND t.ends_at <= p_now RETURNING * LOOP
n := holdfast.leave(n, c);
END LOOP;
SELECT coalesce(min(t.ends_at), 'infinity') INTO n.soonest_end
FROM holdfast.claim t WHERE t.name = n.name AND t.holds;
END IF;
WHILE n.waiters > 0 LOOP
SELECT * INTO STRICT c FROM holdfast.claim t
WHERE t.name = n.name AND NOT t.holds AND t.token >= n.front_token ORDER BY t.token LIMIT 1;
n.front_token := c.token;
n.front_end := c.ends_at;
IF c.ends_at <= p_now THEN
DELETE FROM holdfast.claim t WHERE t.name = c.name AND t.id = c.id;
n := holdfast.leave(n, c);
ELSIF n.taken + c.units <= n.capacity THEN
n := holdfast.enter(n, c);
n.waiters := n.waiters - 1;
UPDATE holdfast.claim t SET holds = true, since = p_now WHERE t.name = c.name AND t.id = c.id;
IF c.id IS DISTINCT FROM p_to THEN PERFORM holdfast.notify_client(c, 'granted', ',' || holdfast.fence(n, c)); END IF;
ELSE
RETURN n;
END IF;
END LOOP;
n.front_end := 'infinity';
RETURN n;
END $$;
CREATE FUNCTION holdfast.advance_if_due(n holdfast.name, p_now timestamptz) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
IF p_now < n.soonest_end AND p_now < n.front_end THEN RETURN n; END IF;
RETURN holdfast.advance(n, p_now);
END $$;
CREATE FUNCTION holdfast.revoked(p_name text, p_id text, p_now timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
RETURN EXISTS (SELECT FROM holdfast.tombstone m WHERE m.id = p_id AND m.name = p_name AND m.ends_at > p_now);
END $$;
CREATE FUNCTION holdfast.queue(
p_name text, p_ids text[], p_units integer, p_capacity integer, p_lease_ms bigint, p_waiter_ms bigint,
p_owner text, p_data text, p_exact boolean, p_at_least bigint, p_reserve integer, p_client text, p_listens boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
v_count integer;
v_free bigint;
v_due timestamptz;
v_now timestamptz;
v_ends_at timestamptz;
v_token bigint;
v_sole_id text;
v_holder text;
v_ahead text;
v_next_ms text;
v_answers text;
BEGIN
SELECT
CASE t.waiters WHEN 0 THEN t.capacity - t.taken ELSE 0 END, least(t.soonest_end, t.front_end), t.last_token + 1, t.sole_id
INTO v_free, v_due, v_token, v_sole_id
FROM holdfast.name t
WHERE t.name = p_name AND t.capacity = p_capacity AND t.tombstones_end <= clock_timestamp() AND t.sole_id <> ALL (p_ids)
FOR UPDATE;
v_now := clock_timestamp();
IF v_due > v_now AND v_free < p_units THEN
v_token := greatest(v_token, holdfast.micros(v_now), p_at_least);
v_ends_at := v_now + p_waiter_ms * interval '1 millisecond';
IF v_sole_id <> '' THEN
INSERT INTO holdfast.claim SELECT (t.sole).*, t.touched_at FROM holdfast.name t WHERE t.name = p_name;
END IF;
INSERT INTO holdfast.claim
SELECT p_name, i.id, p_units, v_token + (i.at - 1) * (1 + p_reserve), false, v_ends_at, p_lease_ms, p_exact, p_client,
p_listens, p_owner, p_data, v_now
FROM unnest(p_ids) WITH ORDINALITY AS i (id, at)
ON CONFLICT DO NOTHING;
GET DIAGNOSTICS v_count = ROW_COUNT;
IF v_count = 0 THEN RETURN NULL; END IF;
IF v_count < array_length(p_ids, 1) THEN RAISE EXCEPTION 'each by itself'; END IF;
UPDATE holdfast.name t SET
waiters = t.waiters + v_count, last_token = v_token + v_count * (1 + p_reserve) - 1, touched_at = v_now,
front_token = CASE t.waiters WHEN 0 THEN v_token ELSE t.front_token END,
front_end = CASE t.waiters WHEN 0 THEN v_ends_at ELSE t.front_end END, sole_id = '', sole = NULL
WHERE t.name = p_name
RETURNING
CASE t.waiters WHEN v_count THEN holdfast.left_ms(least(t.soonest_end, v_now + interval '1 day'), v_now) ELSE 'null' END,
(SELECT h.owner FROM holdfast.claim h WHERE h.name = p_name AND h.holds AND h.token >= t.low_token ORDER BY h.token LIMIT 1),
(SELECT CASE WHEN a.client = p_client AND a.ends_at > v_now THEN a.id END
FROM holdfast.claim a WHERE a.name = p_name AND a.token < v_token ORDER BY a.token DESC LIMIT 1)
INTO v_next_ms, v_holder, v_ahead;
FOR i IN 1 .. v_count LOOP
v_answers := concat_ws(',', v_answers, format(
'{"kind":"queued","token":%s%s,"nextMs":%s%s}', v_token + (i - 1) * (1 + p_reserve),
',"ahead":' || to_json(CASE i WHEN 1 THEN v_ahead ELSE p_ids[i - 1] END),
CASE i WHEN 1 THEN v_next_ms ELSE 'null' END, ',"holder":' || v_holder
));
END LOOP;
END IF;
RETURN v_answers;
END $$;
CREATE FUNCTION holdfast.claim(
p_name text, p_id text, p_units integer, p_capacity integer, p_lease_ms bigint, p_waiter_ms bigint, p_wait boolean,
p_owner text, p_data text, p_exact boolean, p_at_least bigint, p_reserve integer, p_client text, p_listens boolean
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
n holdfast.name;
c holdfast.claim;
v_now timestamptz := clock_timestamp();
v_lease interval := p_lease_ms * interval '1 millisecond';
v_token bigint := greatest(holdfast.micros(v_now), p_at_least);
v_holds boolean;
v_sole holdfast.sole;
v_ahead text := '';
v_answer text;
BEGIN
IF p_wait THEN
v_answer := holdfast.queue(
p_name, ARRAY[p_id], p_units, p_capacity, p_lease_ms, p_waiter_ms, p_owner, p_data, p_exact, p_at_least, p_reserve, p_client,
p_listens
);
IF v_answer IS NOT NULL THEN RETURN v_answer; END IF;
END IF;
IF p_units <= p_capacity THEN
INSERT INTO holdfast.name
VALUES (
p_name, p_capacity, p_units, 1, 0, v_token + p_reserve, v_token, v_now + v_lease, 0, 'infinity', '-infinity', v_now, p_id,
ROW(p_name, p_id, p_units, v_token, true, v_now + v_lease, p_lease_ms, p_exact, p_client, p_listens, p_owner, p_data)
)
ON CONFLICT DO NOTHING;
IF FOUND THEN
IF holdfast.floor_now() < v_token THEN
SELECT * INTO n FROM holdfast.name t WHERE t.name = p_name;
c := n.sole;
RETURN holdfast.answer(n, c, clock_timestamp());
END IF;
DELETE FROM holdfast.name t WHERE t.name = p_name;
END IF;
END IF;
n := holdfast.lock_name(p_name, true);
v_now := clock_timestamp();
IF holdfast.revoked(p_name, p_id, v_now) THEN RETURN '{"kind":"gone"}'; END IF;
n := holdfast.advance_if_due(n, v_now);
c := holdfast.find_claim(n, p_id);
IF c.ends_at > v_now THEN
PERFORM holdfast.save_name(n, v_now);
RETURN holdfast.answer(n, c, v_now);
ELSIF c.id IS NOT NULL THEN
n := holdfast.remove_dead(n, p_id, v_now);
END IF;
IF n.holders + n.waiters = 0 THEN n.capacity := p_capacity; END IF;
IF n.capacity <> p_capacity THEN
PERFORM holdfast.save_name(n, v_now);
RETURN format('{"kind":"mismatch","capacity":%s}', n.capacity);
END IF;
v_holds := n.waiters = 0 AND n.taken + p_units <= n.capacity;
IF NOT v_holds AND NOT p_wait THEN
PERFORM holdfast.save_name(n, v_now);
RETURN format('{"kind":"busy"%s}', holdfast.holder(n));
END IF;
v_token := greatest(n.last_token + 1, holdfast.micros(v_now), p_at_least);
n.last_token := v_token + p_reserve;
v_sole := ROW(p_name, p_id, p_units, v_token, v_holds, v_now + v_lease, p_lease_ms, p_exact, p_client, p_listens, p_owner, p_data);
c := v_sole;
c.since := v_now;
IF v_holds THEN
n := holdfast.enter(n, c);
IF n.holders = 1 THEN
n.sole_id := p_id;
n.sole := v_sole;
n.touched_at := v_now;
PERFORM holdfast.save_name(n, v_now);
RETURN holdfast.answer(n, c, v_now);
END IF;
ELSE
c.ends_at := v_now + p_waiter_ms * interval '1 millisecond';
v_ahead := holdfast.ahead(n, p_client, v_now);
IF n.waiters = 0 THEN
n.front_token := v_token;
n.front_end := c.ends_at;
END IF;
n.waiters := n.waiters + 1;
END IF;
n := holdfast.move_sole(n);
INSERT INTO holdfast.claim SELECT c.*;
PERFORM holdfast.save_name(n, v_now);
RETURN holdfast.answer(n, c, v_now, v_ahead);
END $$;
CREATE FUNCTION holdfast.hand_over(p_name text, p_ids text[], p_to text, p_client text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
n holdfast.name;
v_count integer := array_length(p_ids, 1);
v_gone text[];
v_last bigint;
v_low_token bigint;
v_waiters integer;
v_due timestamptz;
v_now timestamptz;
v_ends_at timestamptz := 'infinity';
v_front_end timestamptz := 'infinity';
v_token bigint;
v_front_token bigint;
v_id text;
v_client text;
v_exact boolean;
BEGIN
SELECT t.waiters - v_count + 1, least(t.soonest_end, t.front_end), t.front_token, t.low_token
INTO v_waiters, v_due, v_front_token, v_low_token
FROM holdfast.name t
WHERE t.name = p_name AND t.capacity = 1 AND t.taken = 1 AND t.holders = 1 AND t.sole_id = '' FOR UPDATE;
v_now := clock_timestamp();
IF v_due > v_now THEN
IF v_count = 1 THEN
DELETE FROM holdfast.claim t
WHERE t.name = p_name AND t.id = p_ids[1] AND t.token >= v_low_token AND t.client = p_client AND t.ends_at > v_now AND t.holds;
IF NOT FOUND THEN RETURN false; END IF;
ELSE
WITH gone AS (
DELETE FROM holdfast.claim t
WHERE t.name = p_name AND t.id = ANY (p_ids) AND t.token >= v_low_token AND t.client = p_client AND t.ends_at > v_now
AND t.holds = (t.id = p_ids[1])
RETURNING t.id, t.token
)
SELECT array_agg(g.id ORDER BY g.token), max(g.token) INTO v_gone, v_last FROM gone g;
IF v_gone IS NULL THEN RETURN false; END IF;
IF v_gone <> p_ids THEN RAISE EXCEPTION 'each by itself'; END IF;
END IF;
IF v_waiters > 0 THEN
UPDATE holdfast.claim t SET holds = true, since = v_now
WHERE t.name = p_name AND t.units = 1 AND t.ends_at > v_now AND t.id = (
SELECT w.id FROM holdfast.claim w WHERE w.name = p_name AND NOT w.holds AND w.token >= v_front_token ORDER BY w.token LIMIT 1
)
RETURNING t.id, t.token, t.ends_at, CASE WHEN t.listens THEN t.client END, t.exact INTO v_id, v_token, v_ends_at, v_client, v_exact;
IF v_count > 1 AND (NOT FOUND OR v_token < v_last) THEN RAISE EXCEPTION 'each by itself'; END IF;
IF NOT FOUND THEN
SELECT * INTO n FROM holdfast.name t WHERE t.name = p_name;
n.taken := 0;
n.holders := 0;
n.waiters := v_waiters;
n.soonest_end := 'infinity';
PERFORM holdfast.save_name(holdfast.advance(n, v_now, p_to), v_now);
RETURN true;
END IF;
v_front_token := v_token;
IF v_waiters > 1 THEN
SELECT w.token, w.ends_at INTO v_front_token, v_front_end FROM holdfast.claim w
WHERE w.name = p_name AND NOT w.holds AND w.token > v_token ORDER BY w.token LIMIT 1;
END IF;
END IF;
UPDATE holdfast.name t SET
taken = least(v_waiters, 1), holders = least(v_waiters, 1), waiters = greatest(v_waiters - 1, 0),
low_token = coalesce(v_token, t.low_token), soonest_end = v_ends_at, front_token = v_front_token, front_end = v_front_end,
touched_at = v_now
WHERE t.name = p_name;
IF v_client IS NOT NULL AND v_id IS DISTINCT FROM p_to THEN
PERFORM pg_notify(v_client, format(
'{"kind":"granted","name":%s,"id":%s,"token":%s,"floor":%3$s%s}', to_json(p_name), to_json(v_id), v_token,
CASE WHEN v_exact THEN format(',"live":[%s]', v_token) END
));
END IF;
RETURN true;
END IF;
RETURN false;
END $$;
CREATE FUNCTION holdfast.release(
p_name text, p_id text, p_tombstone boolean, p_tombstone_ms bigint, p_to text, p_client text
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
n holdfast.name;
c holdfast.claim;
v_now timestamptz;
v_answer text := '"released"';
BEGIN
IF NOT p_tombstone AND holdfast.hand_over(p_name, ARRAY[p_id], p_to, p_client) THEN RETURN v_answer; END IF;
n := holdfast.lock_name(p_name, p_tombstone);
IF n.name IS NULL THEN RETURN '"gone"'; END IF;
v_now := clock_timestamp();
n := holdfast.advance_if_due(n, v_now);
IF n.sole_id = p_id THEN
c := n.sole;
n.sole_id := '';
n.sole := NULL;
ELSIF n.sole_id = '' THEN
DELETE FROM holdfast.claim t WHERE t.name = p_name AND t.id = p_id RETURNING * INTO c;
END IF;
IF c.id IS NOT NULL THEN n := holdfast.advance(holdfast.leave(n, c), v_now, p_to); END IF;
IF c.id IS NULL OR c.ends_at <= v_now THEN
v_answer := CASE WHEN holdfast.revoked(p_name, p_id, v_now) THEN '"revoked"' ELSE '"gone"' END;
END IF;
IF p_tombstone THEN
n.tombstones_end := v_now + p_tombstone_ms * interval '1 millisecond';
INSERT INTO holdfast.tombstone AS m VALUES (p_id, p_name, n.tombstones_end)
ON CONFLICT (id, name) DO UPDATE SET ends_at = EXCLUDED.ends_at;
END IF;
PERFORM holdfast.save_name(n, v_now);
IF v_answer = '"released"' AND c.client <> p_client THEN PERFORM holdfast.notify_client(c, 'lost', ''); END IF;
RETURN v_answer;
END $$;
CREATE FUNCTION holdfast.batch(
p_requests text[], p_terms text[], p_tombstone_ms bigint, p_client text, p_listens boolean
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '300ms' AS $$
DECLARE
v_count integer := array_length(p_requests, 1);
v_at integer := 1;
v_next integer;
v_name text;
v_id text;
v_ids text[];
v_to text;
v_terms integer;
v_known integer := 0;
v_units integer;
v_capacity integer;
v_lease_ms bigint;
v_waiter_ms bigint;
v_wait boolean;
v_owner text;
v_data text;
v_exact boolean;
v_at_least bigint;
v_reserve integer;
v_now timestamptz;
v_token bigint;
v_ends_at timestamptz;
v_answer text;
v_answers text;
BEGIN
IF p_requests[1][1] <> p_requests[v_count][1] THEN
PERFORM FROM holdfast.name t WHERE t.name = ANY (p_requests[:][1:1]) ORDER BY t.name FOR UPDATE;
END IF;
WHILE v_at <= v_count LOOP
v_name := p_requests[v_at][1];
v_id := p_requests[v_at][2];
v_terms := p_requests[v_at][3];
v_to := p_requests[v_at][4];
v_now := clock_timestamp();
v_answer := NULL;
v_next := v_at + 1;
IF v_terms <= 0 THEN
IF v_terms = 0 AND v_to IS NULL THEN
UPDATE holdfast.name t SET taken = 0, holders = 0, soonest_end = 'infinity', touched_at = v_now, sole_id = '', sole = NULL
WHERE t.name = v_name AND t.sole_id = v_id AND (t.sole).client = p_client AND t.soonest_end > clock_timestamp()
RETURNING '"released"' INTO v_answer;
END IF;
IF v_terms = -2 THEN
v_ids := ARRAY[v_id];
WHILE v_next <= v_count AND p_requests[v_next - 1][3]::integer = -2 AND p_requests[v_next][3]::integer <> -1 LOOP
v_ids := v_ids || p_requests[v_next][2];
v_next := v_next + 1;
END LOOP;
IF holdfast.hand_over(v_name, v_ids, p_requests[v_next - 1][4], p_client) THEN
v_answer := '"released"' || repeat(',"released"', v_next - v_at - 1);
ELSE
v_next := v_at + 1;
END IF;
END IF;
IF v_answer IS NULL THEN
v_answer := holdfast.release(v_name, v_id, v_terms = -1, p_tombstone_ms, v_to, p_client);
END IF;
ELSE
IF v_terms <> v_known THEN
v_known := v_terms;
v_units := p_terms[v_terms][1];
v_capacity := p_terms[v_terms][2];
v_lease_ms := p_terms[v_terms][3];
v_waiter_ms := p_terms[v_terms][4];
v_wait := p_terms[v_terms][5];
v_owner := p_terms[v_terms][6];
v_data := p_terms[v_terms][7];
v_exact := p_terms[v_terms][8];
v_at_least := p_terms[v_terms][9];
v_reserve := p_terms[v_terms][10];
END IF;
v_token := greatest(holdfast.micros(v_now), v_at_least);
v_ends_at := v_now + v_lease_ms * interval '1 millisecond';
UPDATE holdfast.name t SET capacity = v_capacity, taken = v_units, holders = 1,
last_token = greatest(t.last_token + 1, v_token) + v_reserve, low_token = greatest(t.last_token + 1, v_token),
soonest_end = v_ends_at, touched_at = v_now, sole_id = v_id,
sole = ROW(
v_name, v_id, v_units, greatest(t.last_token + 1, v_token), true, v_ends_at, v_lease_ms, v_exact, p_client, p_listens,
v_owner, v_data
)
WHERE t.name = v_name AND t.holders = 0 AND t.waiters = 0 AND t.tombstones_end <= v_now AND v_units <= v_capacity
RETURNING format(
'{"kind":"granted","leftMs":%s,"token":%s,"floor":%2$s%s}', v_lease_ms, t.low_token,
CASE WHEN v_exact THEN format(',"live":[%s]', t.low_token) END
) INTO v_answer;
IF v_answer IS NULL AND v_wait THEN
v_ids := ARRAY[v_id];
WHILE v_next <= v_count AND p_requests[v_next][1] = v_name AND p_requests[v_next][3]::integer = v_terms LOOP
v_ids := v_ids || p_requests[v_next][2];
v_next := v_next + 1;
END LOOP;
v_answer := holdfast.queue(
v_name, v_ids, v_units, v_capacity, v_lease_ms, v_waiter_ms, v_owner, v_data, v_exact, v_at_least, v_reserve, p_client,
p_listens
);
IF v_answer IS NULL THEN v_next := v_at + 1; END IF;
END IF;
IF v_answer IS NULL THEN
v_answer := holdfast.claim(
v_name, v_id, v_units, v_capacity, v_lease_ms, v_waiter_ms, v_wait, v_owner, v_data, v_exact, v_at_least, v_reserve,
p_client, p_listens
);
END IF;
END IF;
v_answers := concat_ws(',', v_answers, v_answer);
v_at := v_next;
END LOOP;
RETURN '[' || v_answers || ']';
END $$;
CREATE FUNCTION holdfast.renew(p_heartbeats text[], p_waiter_max_ms bigint) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
n holdfast.name;
c holdfast.claim;
v_name text;
v_id text;
v_lease_ms bigint;
v_at_least bigint;
v_now timestamptz;
v_answers text[] := '{}';
BEGIN
IF array_length(p_heartbeats, 1) > 1 THEN
PERFORM FROM holdfast.name t WHERE t.name = ANY (p_heartbeats[:][1:1]) ORDER BY t.name FOR UPDATE;
END IF;
FOR i IN 1 .. array_length(p_heartbeats, 1) LOOP
v_name := p_heartbeats[i][1];
v_id := p_heartbeats[i][2];
v_lease_ms := nullif(p_heartbeats[i][3]::bigint, 0);
v_at_least := p_heartbeats[i][4]::bigint;
SELECT * INTO n FROM holdfast.name t WHERE t.name = v_name FOR UPDATE;
v_now := clock_timestamp();
IF FOUND AND (v_now >= n.soonest_end OR v_now >= n.front_end) THEN
n := holdfast.advance(n, v_now);
PERFORM holdfast.save_name(n, v_now);
END IF;
IF n.sole_id = v_id THEN
c := n.sole;
c.ends_at := greatest(c.ends_at, v_now + coalesce(v_lease_ms, c.lease_ms) * interval '1 millisecond');
c.token := greatest(c.token, v_at_least);
n.sole := ROW(c.name, c.id, c.units, c.token, c.holds, c.ends_at, c.lease_ms, c.exact, c.client, c.listens, c.owner, c.data);
n.last_token := greatest(n.last_token, c.token);
n.soonest_end := c.ends_at;
PERFORM holdfast.save_name(n, v_now);
v_answers := v_answers || holdfast.answer(n, c, v_now);
CONTINUE;
END IF;
UPDATE holdfast.claim t SET
ends_at = CASE
WHEN t.holds THEN greatest(t.ends_at, v_now + coalesce(v_lease_ms, t.lease_ms) * interval '1 millisecond')
ELSE v_now + least(t.lease_ms, p_waiter_max_ms) * interval '1 millisecond' END,
token = CASE WHEN t.holds AND n.waiters = 0 THEN greatest(t.token, v_at_least) ELSE t.token END
WHERE t.name = v_name AND t.id = v_id AND t.ends_at > v_now
RETURNING * INTO c;
IF NOT FOUND THEN
n := holdfast.remove_dead(n, v_id, v_now);
PERFORM holdfast.save_name(n, v_now);
v_answers := v_answers || CASE
WHEN holdfast.revoked(v_name, v_id, v_now) THEN '{"kind":"gone","revoked":true}' ELSE '{"kind":"gone"}' END;
CONTINUE;
END IF;
IF c.token > n.last_token THEN
n.last_token := c.token;
PERFORM holdfast.save_name(n, v_now);
END IF;
v_answers := v_answers || holdfast.answer(n, c, v_now);
END LOOP;
RETURN '[' || array_to_string(v_answers, ',') || ']';
END $$;
CREATE FUNCTION holdfast.resize(p_name text, p_id text, p_units integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
n holdfast.name := holdfast.lock_name(p_name, false);
c holdfast.claim;
v_now timestamptz := clock_timestamp();
v_answer text := '"resized"';
BEGIN
IF n.name IS NULL THEN RETURN '"gone"'; END IF;
n := holdfast.advance_if_due(n, v_now);
c := holdfast.find_claim(n, p_id);
IF c.id IS NULL OR c.ends_at <= v_now THEN
n := holdfast.remove_dead(n, p_id, v_now);
v_answer := '"gone"';
ELSIF NOT c.holds OR p_units > c.units THEN
v_answer := '"refused"';
ELSE
n := holdfast.move_sole(n);
UPDATE holdfast.claim t SET units = p_units WHERE t.name = p_name AND t.id = p_id;
n.taken := n.taken - (c.units - p_units);
n := holdfast.advance(n, v_now);
END IF;
PERFORM holdfast.save_name(n, v_now);
RETURN v_answer;
END $$;
CREATE FUNCTION holdfast.set_capacity(p_name text, p_from integer, p_to integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
n holdfast.name := holdfast.lock_name(p_name, false);
c holdfast.claim;
v_now timestamptz := clock_timestamp();
BEGIN
IF n.name IS NULL THEN RETURN '{"kind":"set"}'; END IF;
n := holdfast.advance_if_due(n, v_now);
IF n.holders + n.waiters > 0 AND n.capacity NOT IN (p_from, p_to) THEN
PERFORM holdfast.save_name(n, v_now);
RETURN format('{"kind":"mismatch","capacity":%s}', n.capacity);
END IF;
IF n.capacity <> p_to THEN
n := holdfast.move_sole(n);
n.capacity := p_to;
FOR c IN DELETE FROM holdfast.claim t WHERE t.name = p_name AND NOT t.holds AND t.units > p_to RETURNING * LOOP
n := holdfast.leave(n, c);
IF c.ends_at > v_now THEN PERFORM holdfast.notify_client(c, 'lost', ''); END IF;
END LOOP;
n := holdfast.advance(n, v_now);
END IF;
PERFORM holdfast.save_name(n, v_now);
RETURN '{"kind":"set"}';
END $$;
CREATE FUNCTION holdfast.inspect(p_name text, p_prefix text, p_after text, p_limit integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
n holdfast.name;
v_now timestamptz;
v_states text;
v_seen integer := 0;
v_last text;
BEGIN
FOR n IN
SELECT * FROM holdfast.name t
WHERE t.name >= coalesce(p_name, p_prefix) AND t.name > p_after ORDER BY t.name
LOOP
EXIT WHEN NOT starts_with(n.name, coalesce(p_name, p_prefix)) OR p_name <> n.name;
v_last := n.name;
v_seen := v_seen + 1;
v_now := clock_timestamp();
IF v_now >= n.soonest_end OR v_now >= n.front_end THEN
n := holdfast.lock_name(n.name, false);
IF n.name IS NOT NULL THEN
v_now := clock_timestamp();
n := holdfast.advance_if_due(n, v_now);
PERFORM holdfast.save_name(n, v_now);
END IF;
END IF;
EXIT WHEN v_seen = p_limit;
END LOOP;
v_now := clock_timestamp();
SELECT string_agg(
format(
'{"name":%s,"capacity":%s,"lastToken":%s,"holders":[%s],"waiters":[%s]}',
to_json(s.name), s.capacity, s.last_token, s.holders, s.waiters
), ',' ORDER BY s.name
) INTO v_states
FROM (
SELECT t.name, t.capacity, t.last_token,
string_agg(c.state || format(',"token":%s}', c.token), ',' ORDER BY c.token) FILTER (WHERE c.holds) AS holders,
string_agg(c.state || '}', ',' ORDER BY c.token) FILTER (WHERE NOT c.holds) AS waiters
FROM holdfast.name t CROSS JOIN LATERAL (
SELECT k.token, k.holds, format(
'{"id":%s,"units":%s,"leftMs":%s,"owner":%s%s', to_json(k.id), k.units, holdfast.left_ms(k.ends_at, v_now),
k.owner, concat(
',"data":' || k.data,
CASE WHEN k.since IS NOT NULL THEN
format(',"%s":%s', CASE WHEN k.holds THEN 'heldMs' ELSE 'waitingMs' END, holdfast.left_ms(v_now, k.since)) END
)
) AS state
FROM (
SELECT m.* FROM holdfast.claim m WHERE m.name = t.name
UNION ALL SELECT (t.sole).*, t.touched_at WHERE t.sole_id <> ''
) k
WHERE k.ends_at > v_now
) c
WHERE t.name >= coalesce(p_name, p_prefix) AND t.name > p_after AND t.name <= v_last
GROUP BY t.name
) s;
RETURN format(
'{"states":[%s],"next":%s}', v_states, CASE WHEN v_seen = p_limit THEN to_json(v_last)::text ELSE 'null' END
);
END $$;
CREATE FUNCTION holdfast.sweep(p_after text, p_limit integer, p_idle_ms bigint) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
n holdfast.name;
v_now timestamptz := clock_timestamp();
v_up_to text;
v_floor bigint := 0;
v_gone integer := 0;
v_count integer;
v_full boolean;
BEGIN
SELECT t.name INTO v_up_to FROM holdfast.name t WHERE t.name > p_after ORDER BY t.name OFFSET p_limit - 1 LIMIT 1;
FOR n IN
SELECT * FROM holdfast.name t
WHERE t.name > p_after AND (v_up_to IS NULL OR t.name <= v_up_to) AND (
t.soonest_end <= v_now OR t.front_end <= v_now OR t.holders = 0 AND t.waiters = 0
AND t.tombstones_end <= v_now AND t.touched_at <= v_now - p_idle_ms * interval '1 millisecond')
ORDER BY t.name FOR UPDATE SKIP LOCKED
LOOP
n := holdfast.advance_if_due(n, v_now);
IF n.holders + n.waiters = 0 AND n.tombstones_end <= v_now THEN
v_floor := greatest(v_floor, n.last_token);
DELETE FROM holdfast.name t WHERE t.name = n.name;
v_gone := v_gone + 1;
ELSE
PERFORM holdfast.save_name(n, v_now);
END IF;
END LOOP;
UPDATE holdfast.store s SET token_floor = v_floor WHERE s.token_floor < v_floor;
DELETE FROM holdfast.tombstone m USING (
SELECT t.id, t.name FROM holdfast.tombstone t WHERE t.ends_at <= v_now ORDER BY t.ends_at LIMIT p_limit FOR UPDATE SKIP LOCKED
) old WHERE m.id = old.id AND m.name = old.name;
GET DIAGNOSTICS v_count = ROW_COUNT;
v_gone := v_gone + v_count;
v_full := v_count = p_limit;
DELETE FROM holdfast.operation o USING (
SELECT t.id FROM holdfast.operation t WHERE t.ends_at <= v_now ORDER BY t.ends_at LIMIT p_limit FOR UPDATE SKIP LOCKED
) old WHERE o.id = old.id;
GET DIAGNOSTICS v_count = ROW_COUNT;
v_gone := v_gone + v_count;
RETURN format(
'{"next":%s,"rows":%s,"full":%s}', coalesce(to_json(v_up_to)::text, 'null'), v_gone, to_json(v_full OR v_count = p_limit)
);
END $$;
CREATE FUNCTION holdfast.read_cell(p_name text) RETURNS text LANGUAGE sql STABLE AS $$
SELECT coalesce(
(SELECT format('{"version":%s,"value":%s}', t.version, t.value) FROM holdfast.cell t WHERE t.name = p_name),
'{"version":0,"value":null}'
)
$$;
CREATE FUNCTION holdfast.write_cell(
p_name text, p_operation text, p_expected bigint, p_value text, p_keep_ms bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
v_answer text;
v_version bigint;
v_cell text;
BEGIN
INSERT INTO holdfast.operation VALUES (p_operation, '', clock_timestamp() + p_keep_ms * interval '1 millisecond')
ON CONFLICT DO NOTHING;
IF NOT FOUND THEN
SELECT o.answer INTO STRICT v_answer FROM holdfast.operation o WHERE o.id = p_operation;
RETURN v_answer;
END IF;
LOOP
IF p_expected <> 0 AND p_value IS NULL THEN
DELETE FROM holdfast.cell t WHERE t.name = p_name AND t.version = p_expected;
ELSIF p_expected <> 0 THEN
UPDATE holdfast.cell t SET version = nextval('holdfast.cell_version'), value = p_value
WHERE t.name = p_name AND t.version = p_expected RETURNING t.version INTO v_version;
ELSIF p_value IS NOT NULL THEN
INSERT INTO holdfast.cell VALUES (p_name, nextval('holdfast.cell_version'), p_value)
ON CONFLICT DO NOTHING RETURNING version INTO v_version;
ELSE
PERFORM WHERE NOT EXISTS (SELECT FROM holdfast.cell t WHERE t.name = p_name);
END IF;
IF FOUND THEN
v_cell := format('{"version":%s,"value":%s}', coalesce(v_version, 0), coalesce(p_value, 'null'));
v_answer := format('{"kind":"written","cell":%s}', v_cell);
PERFORM pg_notify('holdfast.cell', to_json(p_name)::text);
EXIT;
END IF;
SELECT t.version, format('{"version":%s,"value":%s}', t.version, t.value) INTO v_version, v_cell
FROM holdfast.cell t WHERE t.name = p_name;
IF coalesce(v_version, 0) <> p_expected THEN
v_answer := format('{"kind":"conflict","cell":%s}', coalesce(v_cell, '{"version":0,"value":null}'));
EXIT;
END IF;
END LOOP;
UPDATE holdfast.operation o SET answer = v_answer WHERE o.id = p_operation;
RETURN v_answer;
END $$;
`,
];
