-- A renewal or a release of a claim that is not there says whether its mark is: then somebody else released it. And a lease
-- that is not given is 0 and no longer NULL: where array_nulls is off, a NULL in an array is not understood.

-- Whether a claim that is not there was released by somebody: its mark is there.
-- in: p_name text, p_id text, p_now timestamptz
-- out: boolean
CREATE FUNCTION holdfast.revoked(p_name text, p_id text, p_now timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN EXISTS (SELECT FROM holdfast.mark m WHERE m.id = p_id AND m.name = p_name AND m.ends_at > p_now);
END $$;

-- Give back a hold or withdraw a waiting claim, and grant what fits next. Unless settled, a mark stays.
-- in: p_name text, p_id text, p_settled boolean, p_mark_ms bigint, p_client text
-- out: text
CREATE OR REPLACE FUNCTION holdfast.release(
  p_name text, p_id text, p_settled boolean, p_mark_ms bigint, p_client text
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name;
  c holdfast.claim;
  v_now timestamptz;
  v_answer text := 'released';
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
  -- Before this release leaves a mark of its own.
  IF c.id IS NULL OR c.ends_at <= v_now THEN
    v_answer := CASE WHEN holdfast.revoked(p_name, p_id, v_now) THEN 'revoked' ELSE 'gone' END;
  END IF;
  IF NOT p_settled THEN
    n.marks_end := v_now + p_mark_ms * interval '1 millisecond';
    INSERT INTO holdfast.mark AS m VALUES (p_id, p_name, n.marks_end)
    ON CONFLICT (id, name) DO UPDATE SET ends_at = EXCLUDED.ends_at;
  END IF;
  PERFORM holdfast.save(n, v_now);
  -- Taken out by somebody else than its owner, who is told.
  IF v_answer = 'released' AND c.client <> p_client THEN PERFORM holdfast.push(c, 'lost', ''); END IF;
  RETURN v_answer;
END $$;

-- A sign of life for many claims, each answered in its place of a JSON array. A lease of 0 is the claim's own.
-- in: p_names text[], p_ids text[], p_lease_ms bigint[], p_at_least bigint[], p_waiter_max_ms bigint
-- out: text
CREATE OR REPLACE FUNCTION holdfast.renew(
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
      c.ends_at := greatest(c.ends_at, v_now + coalesce(nullif(p_lease_ms[i], 0), c.lease_ms) * interval '1 millisecond');
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
        ELSE greatest(t.ends_at, v_now + coalesce(nullif(p_lease_ms[i], 0), t.lease_ms) * interval '1 millisecond') END,
      token = CASE WHEN t.token = 0 THEN 0 ELSE greatest(t.token, p_at_least[i]) END
    WHERE t.name = p_names[i] AND t.id = p_ids[i] AND t.ends_at > v_now
    RETURNING * INTO c;
    IF NOT FOUND THEN
      v_answers := v_answers || CASE
        WHEN holdfast.revoked(p_names[i], p_ids[i], v_now) THEN '{"kind":"gone","revoked":true}' ELSE '{"kind":"gone"}' END;
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
