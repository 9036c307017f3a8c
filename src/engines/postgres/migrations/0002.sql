-- What the verbs share. The rule stands in holdfast.settle.

-- The time in microseconds: the least a new token is. STABLE as extract is, or it would not be put in the place of its call.
-- in: p_now timestamptz
-- out: bigint
CREATE FUNCTION holdfast.micros(p_now timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT (extract(epoch FROM p_now) * 1000000)::bigint $$;

-- Milliseconds from now until then, as JSON; never below 0.
-- in: p_then timestamptz, p_now timestamptz
-- out: text
CREATE FUNCTION holdfast.left_ms(p_then timestamptz, p_now timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT greatest(0, round(extract(epoch FROM p_then - p_now) * 1000, 3))::text $$;

-- Token, floor and, where the claim asked for them, all live tokens, as JSON members.
-- in: n holdfast.name, c holdfast.claim
-- out: text
CREATE FUNCTION holdfast.fence(n holdfast.name, c holdfast.claim) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_floor bigint := c.token;
  v_live text;
BEGIN
  IF c.exact AND n.holders > 1 THEN
    SELECT string_agg(h.token::text, ',' ORDER BY h.token), min(h.token) INTO v_live, v_floor
    FROM holdfast.claim h WHERE h.name = n.name AND h.token >= n.low_token AND h.token > 0;
    RETURN format('"token":%s,"floor":%s,"live":[%s]', c.token, v_floor, v_live);
  END IF;
  IF c.exact THEN
    RETURN format('"token":%s,"floor":%1$s,"live":[%1$s]', c.token);
  END IF;
  IF n.holders > 1 THEN
    SELECT h.token INTO v_floor FROM holdfast.claim h
    WHERE h.name = n.name AND h.token >= n.low_token AND h.token > 0 ORDER BY h.token LIMIT 1;
  END IF;
  RETURN format('"token":%s,"floor":%s', c.token, v_floor);
END $$;

-- Who holds it, by the lowest token, as a JSON member with a comma before it; empty when nobody does.
-- in: n holdfast.name
-- out: text
CREATE FUNCTION holdfast.holder(n holdfast.name) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_owner text;
BEGIN
  IF n.sole_id <> '' THEN
    v_owner := (n.sole).owner;
  ELSE
    SELECT h.owner INTO v_owner FROM holdfast.claim h
    WHERE h.name = n.name AND h.token >= n.low_token AND h.token > 0 ORDER BY h.token LIMIT 1;
  END IF;
  RETURN coalesce(',"holder":' || v_owner, '');
END $$;

-- How a living claim stands: granted or queued, as JSON.
-- in: n holdfast.name, c holdfast.claim, p_now timestamptz
-- out: text
CREATE FUNCTION holdfast.answer(n holdfast.name, c holdfast.claim, p_now timestamptz) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF c.token > 0 THEN
    RETURN format('{"kind":"granted","leftMs":%s,%s}', holdfast.left_ms(c.ends_at, p_now), holdfast.fence(n, c));
  END IF;
  RETURN format(
    '{"kind":"queued","lastToken":%s,"nextMs":%s%s}',
    n.last_token,
    CASE WHEN c.seq <> n.front_seq THEN 'null' ELSE holdfast.left_ms(least(n.soonest_end, p_now + interval '1 day'), p_now) END,
    holdfast.holder(n)
  );
END $$;

-- Tells the client whose claim it is, when this commits.
-- in: c holdfast.claim, p_kind text, p_fence text
-- out: void
CREATE FUNCTION holdfast.push(c holdfast.claim, p_kind text, p_fence text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF c.hears THEN
    PERFORM pg_notify(c.client, format('{"kind":"%s","name":%s,"id":%s%s}', p_kind, to_json(c.name), to_json(c.id), p_fence));
  END IF;
END $$;

-- The lock on a name's row, and the row. With p_make an unknown name gets one, which is idle.
-- in: p_name text, p_make boolean
-- out: holdfast.name
CREATE FUNCTION holdfast.locked(p_name text, p_make boolean) RETURNS holdfast.name LANGUAGE plpgsql AS $$
DECLARE
  n holdfast.name;
  v_fresh boolean := false;
BEGIN
  LOOP
    SELECT * INTO n FROM holdfast.name t WHERE t.name = p_name FOR UPDATE;
    EXIT WHEN FOUND OR NOT p_make;
    INSERT INTO holdfast.name
    VALUES (p_name, 0, 0, 0, 0, 0, 0, 0, 'infinity', 0, 'infinity', '-infinity', clock_timestamp(), '', NULL)
    ON CONFLICT DO NOTHING;
    v_fresh := FOUND;
  END LOOP;
  -- A row that a sweep removed a moment ago left its token there.
  IF v_fresh THEN n.last_token := holdfast.floor_now(); END IF;
  RETURN n;
END $$;

-- The token floor, as it is after whoever removed a name has committed.
-- in: nothing
-- out: bigint
CREATE FUNCTION holdfast.floor_now() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_floor bigint;
BEGIN
  -- Where a transaction sees only what was there when it began, the lock makes it fail and start again.
  IF current_setting('transaction_isolation') = 'read committed' THEN
    SELECT s.token_floor INTO v_floor FROM holdfast.store s;
  ELSE
    SELECT s.token_floor INTO v_floor FROM holdfast.store s FOR SHARE;
  END IF;
  RETURN v_floor;
END $$;

-- Writes a name back.
-- in: n holdfast.name, p_now timestamptz
-- out: void
CREATE FUNCTION holdfast.save(n holdfast.name, p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE holdfast.name t SET
    capacity = n.capacity, taken = n.taken, holders = n.holders, waiters = n.waiters, last_token = n.last_token,
    low_token = n.low_token, last_seq = n.last_seq, soonest_end = n.soonest_end, front_seq = n.front_seq,
    front_end = n.front_end, marks_end = n.marks_end, touched_at = p_now, sole_id = n.sole_id, sole = n.sole
  WHERE t.name = n.name;
END $$;

-- A claim that has no token yet enters.
-- in: n holdfast.name, c holdfast.claim, p_now timestamptz
-- out: holdfast.name
CREATE FUNCTION holdfast.enter(n holdfast.name, c holdfast.claim, p_now timestamptz) RETURNS holdfast.name
LANGUAGE plpgsql AS $$
BEGIN
  n.last_token := greatest(n.last_token + 1, holdfast.micros(p_now), c.at_least);
  IF n.holders = 0 THEN n.low_token := n.last_token; END IF;
  n.holders := n.holders + 1;
  n.taken := n.taken + c.units;
  n.soonest_end := least(n.soonest_end, c.ends_at);
  RETURN n;
END $$;

-- A claim has left: its row is gone, or it is not the only one any more.
-- in: n holdfast.name, c holdfast.claim
-- out: holdfast.name
CREATE FUNCTION holdfast.leave(n holdfast.name, c holdfast.claim) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
  IF c.token = 0 THEN
    n.waiters := n.waiters - 1;
  ELSE
    n.holders := n.holders - 1;
    n.taken := n.taken - c.units;
    IF n.holders = 0 THEN n.soonest_end := 'infinity'; END IF;
  END IF;
  RETURN n;
END $$;

-- A claim by its id, wherever it stands; null when there is none.
-- in: n holdfast.name, p_id text
-- out: holdfast.claim
CREATE FUNCTION holdfast.find(n holdfast.name, p_id text) RETURNS holdfast.claim LANGUAGE plpgsql AS $$
DECLARE
  c holdfast.claim;
BEGIN
  IF n.sole_id = p_id THEN RETURN n.sole; END IF;
  IF n.sole_id = '' THEN SELECT * INTO c FROM holdfast.claim t WHERE t.name = n.name AND t.id = p_id; END IF;
  RETURN c;
END $$;

-- The only claim gets a row of its own: it has company from now on.
-- in: n holdfast.name
-- out: holdfast.name
CREATE FUNCTION holdfast.spill(n holdfast.name) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
  IF n.sole_id <> '' THEN
    INSERT INTO holdfast.claim SELECT (n.sole).*;
    n.sole_id := '';
    n.sole := NULL;
  END IF;
  RETURN n;
END $$;

-- What the rule demands now: expired holders leave, dead waiters at the front leave, the first waiter enters if it fits.
-- The name must be locked, and has to be saved afterwards.
-- in: n holdfast.name, p_now timestamptz
-- out: holdfast.name
CREATE FUNCTION holdfast.settle(n holdfast.name, p_now timestamptz) RETURNS holdfast.name LANGUAGE plpgsql AS $$
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
    FOR c IN DELETE FROM holdfast.claim t WHERE t.name = n.name AND t.token > 0 AND t.ends_at <= p_now RETURNING * LOOP
      n := holdfast.leave(n, c);
    END LOOP;
    SELECT coalesce(min(t.ends_at), 'infinity') INTO n.soonest_end
    FROM holdfast.claim t WHERE t.name = n.name AND t.token > 0;
  END IF;
  WHILE n.waiters > 0 LOOP
    -- Not from the beginning: until they are vacuumed away, those who left before stand there in the index.
    SELECT * INTO STRICT c FROM holdfast.claim t
    WHERE t.name = n.name AND t.token = 0 AND t.seq >= n.front_seq ORDER BY t.seq LIMIT 1;
    n.front_seq := c.seq;
    n.front_end := c.ends_at;
    IF c.ends_at <= p_now THEN
      DELETE FROM holdfast.claim t WHERE t.name = c.name AND t.id = c.id;
      n := holdfast.leave(n, c);
    ELSIF n.taken + c.units <= n.capacity THEN
      -- Its waiter lease stays as it is: the confirmation starts the lease proper.
      n := holdfast.enter(n, c, p_now);
      n.waiters := n.waiters - 1;
      c.token := n.last_token;
      UPDATE holdfast.claim t SET token = c.token WHERE t.name = c.name AND t.id = c.id;
      PERFORM holdfast.push(c, 'granted', ',' || holdfast.fence(n, c));
    ELSE
      RETURN n;
    END IF;
  END LOOP;
  n.front_end := 'infinity';
  RETURN n;
END $$;
