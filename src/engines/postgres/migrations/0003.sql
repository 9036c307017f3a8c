-- The verbs: one call decides. None waits longer for another transaction than its lock_timeout, and none holds a lock
-- longer than the call lasts.

-- Ask. The first statement is all there is to an unknown name, and an idle one need not come here; the rest is the long way.
-- in: p_name text, p_id text, p_units integer, p_capacity integer, p_lease_ms bigint, p_waiter_ms bigint, p_wait boolean, p_owner text, p_data text, p_exact boolean, p_at_least bigint, p_client text, p_hears boolean
-- out: text
CREATE FUNCTION holdfast.claim(
  p_name text, p_id text, p_units integer, p_capacity integer, p_lease_ms bigint, p_waiter_ms bigint, p_wait boolean,
  p_owner text, p_data text, p_exact boolean, p_at_least bigint, p_client text, p_hears boolean
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name;
  c holdfast.claim;
  v_now timestamptz := clock_timestamp();
  v_lease interval := p_lease_ms * interval '1 millisecond';
  v_token bigint := greatest(holdfast.micros(v_now), p_at_least);
BEGIN
  IF p_units <= p_capacity THEN
    INSERT INTO holdfast.name
    VALUES (
      p_name, p_capacity, p_units, 1, 0, v_token, v_token, 0, v_now + v_lease, 0, 'infinity', '-infinity', v_now, p_id,
      ROW(p_name, p_id, 0, p_units, v_token, v_now + v_lease, p_lease_ms, p_at_least, p_exact, p_client, p_hears, p_owner, p_data)
    )
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      IF holdfast.floor_now() < v_token THEN
        SELECT * INTO n FROM holdfast.name t WHERE t.name = p_name;
        RETURN holdfast.answer(n, n.sole, clock_timestamp());
      END IF;
      -- A row that a sweep removed a moment ago left a higher token there.
      DELETE FROM holdfast.name t WHERE t.name = p_name;
    END IF;
  END IF;

  n := holdfast.locked(p_name, true);
  v_now := clock_timestamp();
  PERFORM FROM holdfast.mark m WHERE m.id = p_id AND m.name = p_name;
  IF FOUND THEN RETURN '{"kind":"gone"}'; END IF;
  n := holdfast.settle_due(n, v_now);
  c := holdfast.find(n, p_id);
  IF c.ends_at > v_now THEN
    PERFORM holdfast.save(n, v_now);
    RETURN holdfast.answer(n, c, v_now);
  ELSIF c.id IS NOT NULL THEN
    -- A dead waiter in the middle of the queue; holders and the first waiter were looked at already.
    DELETE FROM holdfast.claim t WHERE t.name = p_name AND t.id = p_id;
    n := holdfast.settle(holdfast.leave(n, c), v_now);
  END IF;
  IF n.holders + n.waiters = 0 THEN n.capacity := p_capacity; END IF;
  IF n.capacity <> p_capacity THEN
    PERFORM holdfast.save(n, v_now);
    RETURN format('{"kind":"mismatch","capacity":%s}', n.capacity);
  END IF;
  n.last_seq := n.last_seq + 1;
  c := ROW(p_name, p_id, n.last_seq, p_units, 0, v_now + v_lease, p_lease_ms, p_at_least, p_exact, p_client, p_hears, p_owner, p_data);
  -- Nobody overtakes: with others waiting even a claim that would fit has to queue.
  IF n.waiters = 0 AND n.taken + p_units <= n.capacity THEN
    n := holdfast.enter(n, c, v_now);
    c.token := n.last_token;
    IF n.holders = 1 THEN
      n.sole_id := p_id;
      n.sole := c;
      PERFORM holdfast.save(n, v_now);
      RETURN holdfast.answer(n, c, v_now);
    END IF;
  ELSIF p_wait THEN
    c.ends_at := v_now + p_waiter_ms * interval '1 millisecond';
    IF n.waiters = 0 THEN
      n.front_seq := c.seq;
      n.front_end := c.ends_at;
    END IF;
    n.waiters := n.waiters + 1;
  ELSE
    PERFORM holdfast.save(n, v_now);
    RETURN format('{"kind":"busy"%s}', holdfast.holder(n));
  END IF;
  n := holdfast.spill(n);
  INSERT INTO holdfast.claim SELECT c.*;
  PERFORM holdfast.save(n, v_now);
  RETURN holdfast.answer(n, c, v_now);
END $$;

-- The rule, when a lease that matters to it may have ended.
-- in: n holdfast.name, p_now timestamptz
-- out: holdfast.name
CREATE FUNCTION holdfast.settle_due(n holdfast.name, p_now timestamptz) RETURNS holdfast.name LANGUAGE plpgsql AS $$
BEGIN
  IF p_now < n.soonest_end AND p_now < n.front_end THEN RETURN n; END IF;
  RETURN holdfast.settle(n, p_now);
END $$;

-- Give back a hold or withdraw a waiting claim, and grant what fits next. Unless settled, a mark stays.
-- in: p_name text, p_id text, p_settled boolean, p_mark_ms bigint, p_client text
-- out: text
CREATE FUNCTION holdfast.release(p_name text, p_id text, p_settled boolean, p_mark_ms bigint, p_client text) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name;
  c holdfast.claim;
  v_now timestamptz;
BEGIN
  -- To leave a mark the name must be locked, so that a copy of the claim comes either before or after.
  n := holdfast.locked(p_name, NOT p_settled);
  IF n.name IS NULL THEN RETURN 'gone'; END IF;
  v_now := clock_timestamp();
  n := holdfast.settle_due(n, v_now);
  IF n.sole_id = p_id THEN
    c := n.sole;
    n.sole_id := '';
    n.sole := NULL;
  ELSIF n.sole_id = '' THEN
    DELETE FROM holdfast.claim t WHERE t.name = p_name AND t.id = p_id RETURNING * INTO c;
  END IF;
  IF c.id IS NOT NULL THEN n := holdfast.settle(holdfast.leave(n, c), v_now); END IF;
  IF NOT p_settled THEN
    n.marks_end := v_now + p_mark_ms * interval '1 millisecond';
    INSERT INTO holdfast.mark AS m VALUES (p_id, p_name, n.marks_end)
    ON CONFLICT (id, name) DO UPDATE SET ends_at = EXCLUDED.ends_at;
  END IF;
  PERFORM holdfast.save(n, v_now);
  IF c.id IS NULL OR c.ends_at <= v_now THEN RETURN 'gone'; END IF;
  -- Taken out by somebody else than its owner, who is told.
  IF c.client <> p_client THEN PERFORM holdfast.push(c, 'lost', ''); END IF;
  RETURN 'released';
END $$;

-- A sign of life for many claims, each answered in its place of a JSON array.
-- in: p_names text[], p_ids text[], p_lease_ms bigint[], p_at_least bigint[], p_waiter_max_ms bigint
-- out: text
CREATE FUNCTION holdfast.renew(
  p_names text[], p_ids text[], p_lease_ms bigint[], p_at_least bigint[], p_waiter_max_ms bigint
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name;
  c holdfast.claim;
  v_now timestamptz;
  v_answers text[] := '{}';
BEGIN
  -- In one order for all: two renewals that share names cannot wait for each other.
  PERFORM FROM holdfast.name t WHERE t.name = ANY (p_names) ORDER BY t.name FOR UPDATE;
  v_now := clock_timestamp();
  FOR i IN 1 .. cardinality(p_names) LOOP
    -- Again as it is now: another sign for the same name may have changed it.
    SELECT * INTO n FROM holdfast.name t WHERE t.name = p_names[i] FOR UPDATE;
    IF FOUND AND (v_now >= n.soonest_end OR v_now >= n.front_end) THEN
      n := holdfast.settle(n, v_now);
      PERFORM holdfast.save(n, v_now);
    END IF;
    IF n.sole_id = p_ids[i] THEN
      c := n.sole;
      c.ends_at := greatest(c.ends_at, v_now + coalesce(p_lease_ms[i], c.lease_ms) * interval '1 millisecond');
      c.token := greatest(c.token, p_at_least[i]);
      n.sole := c;
      n.last_token := greatest(n.last_token, c.token);
      n.soonest_end := c.ends_at;
      PERFORM holdfast.save(n, v_now);
      v_answers := v_answers || holdfast.answer(n, c, v_now);
      CONTINUE;
    END IF;
    -- A lease end never moves back.
    UPDATE holdfast.claim t SET
      ends_at = CASE
        WHEN t.token = 0 THEN v_now + least(t.lease_ms, p_waiter_max_ms) * interval '1 millisecond'
        ELSE greatest(t.ends_at, v_now + coalesce(p_lease_ms[i], t.lease_ms) * interval '1 millisecond') END,
      token = CASE WHEN t.token = 0 THEN 0 ELSE greatest(t.token, p_at_least[i]) END
    WHERE t.name = p_names[i] AND t.id = p_ids[i] AND t.ends_at > v_now
    RETURNING * INTO c;
    IF NOT FOUND THEN
      v_answers := v_answers || '{"kind":"gone"}'::text;
      CONTINUE;
    END IF;
    IF c.token > n.last_token THEN
      n.last_token := c.token;
      PERFORM holdfast.save(n, v_now);
    END IF;
    v_answers := v_answers || holdfast.answer(n, c, v_now);
  END LOOP;
  RETURN '[' || array_to_string(v_answers, ',') || ']';
END $$;

-- Shrink a hold's units without letting go.
-- in: p_name text, p_id text, p_units integer
-- out: text
CREATE FUNCTION holdfast.resize(p_name text, p_id text, p_units integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name := holdfast.locked(p_name, false);
  c holdfast.claim;
  v_now timestamptz := clock_timestamp();
  v_answer text := 'resized';
BEGIN
  IF n.name IS NULL THEN RETURN 'gone'; END IF;
  n := holdfast.settle_due(n, v_now);
  c := holdfast.find(n, p_id);
  IF c.id IS NULL OR c.ends_at <= v_now THEN
    v_answer := 'gone';
  ELSIF c.token = 0 OR p_units > c.units THEN
    v_answer := 'refused';
  ELSE
    n := holdfast.spill(n);
    UPDATE holdfast.claim t SET units = p_units WHERE t.name = p_name AND t.id = p_id;
    n.taken := n.taken - (c.units - p_units);
    n := holdfast.settle(n, v_now);
  END IF;
  PERFORM holdfast.save(n, v_now);
  RETURN v_answer;
END $$;

-- Change a busy name's capacity: waiters that can never be served leave, what now fits enters, holders stay.
-- in: p_name text, p_from integer, p_to integer
-- out: text
CREATE FUNCTION holdfast.set_capacity(p_name text, p_from integer, p_to integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name := holdfast.locked(p_name, false);
  c holdfast.claim;
  v_now timestamptz := clock_timestamp();
BEGIN
  IF n.name IS NULL THEN RETURN '{"kind":"set"}'; END IF;
  n := holdfast.settle_due(n, v_now);
  IF n.holders + n.waiters > 0 AND n.capacity NOT IN (p_from, p_to) THEN
    PERFORM holdfast.save(n, v_now);
    RETURN format('{"kind":"mismatch","capacity":%s}', n.capacity);
  END IF;
  IF n.capacity <> p_to THEN
    n := holdfast.spill(n);
    n.capacity := p_to;
    FOR c IN DELETE FROM holdfast.claim t WHERE t.name = p_name AND t.token = 0 AND t.units > p_to RETURNING * LOOP
      n := holdfast.leave(n, c);
      PERFORM holdfast.push(c, 'lost', '');
    END LOOP;
    n := holdfast.settle(n, v_now);
  END IF;
  PERFORM holdfast.save(n, v_now);
  RETURN '{"kind":"set"}';
END $$;
