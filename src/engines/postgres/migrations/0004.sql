-- What stands beside the verbs: inspect, clean-up, cells.

-- One page of busy names in order: those after p_after that begin with p_prefix, or the one name p_name. As JSON: the states,
-- and the name to go on after, null at the end.
-- in: p_name text, p_prefix text, p_after text, p_most integer
-- out: text
CREATE FUNCTION holdfast.inspect(p_name text, p_prefix text, p_after text, p_most integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name;
  v_now timestamptz;
  v_states text[] := '{}';
  v_seen integer := 0;
  v_last text;
  v_holders text;
  v_waiters text;
BEGIN
  FOR n IN
    SELECT * FROM holdfast.name t
    WHERE t.name >= coalesce(p_name, p_prefix) AND t.name > p_after ORDER BY t.name
  LOOP
    -- In the order of bytes all names with a prefix stand together.
    EXIT WHEN NOT starts_with(n.name, coalesce(p_name, p_prefix)) OR p_name <> n.name;
    v_now := clock_timestamp();
    IF v_now >= n.soonest_end OR v_now >= n.front_end THEN
      n := holdfast.locked(n.name, false);
      CONTINUE WHEN n.name IS NULL;
      v_now := clock_timestamp();
      n := holdfast.settle_due(n, v_now);
      PERFORM holdfast.save(n, v_now);
    END IF;
    SELECT
      string_agg(s.state || format(',"token":%s}', s.token), ',' ORDER BY s.token) FILTER (WHERE s.token > 0),
      string_agg(s.state || '}', ',' ORDER BY s.seq) FILTER (WHERE s.token = 0)
    INTO v_holders, v_waiters
    FROM (
      SELECT t.token, t.seq, format(
        '{"id":%s,"units":%s,"leftMs":%s,"owner":%s%s', to_json(t.id), t.units, holdfast.left_ms(t.ends_at, v_now),
        t.owner, CASE WHEN t.data IS NULL THEN '' ELSE ',"data":' || t.data END
      ) AS state
      FROM (
        SELECT k.* FROM holdfast.claim k WHERE k.name = n.name AND k.ends_at > v_now
        UNION ALL SELECT (n.sole).* WHERE n.sole_id <> ''
      ) t
    ) s;
    IF v_holders IS NOT NULL OR v_waiters IS NOT NULL THEN
      v_states := v_states || format(
        '{"name":%s,"capacity":%s,"lastToken":%s,"holders":[%s],"waiters":[%s]}',
        to_json(n.name), n.capacity, n.last_token, v_holders, v_waiters
      );
    END IF;
    v_last := n.name;
    v_seen := v_seen + 1;
    EXIT WHEN v_seen = p_most;
  END LOOP;
  RETURN format(
    '{"states":[%s],"next":%s}', array_to_string(v_states, ','),
    CASE WHEN v_seen = p_most THEN to_json(v_last)::text ELSE 'null' END
  );
END $$;

-- One batch of what nobody looks at any more: names that have been idle for p_idle_ms, leases that ended, old marks. What
-- somebody works on is passed over. As JSON: the name to go on after (null at the end), how many rows went, and whether old
-- marks or operations may be left.
-- in: p_after text, p_most integer, p_idle_ms bigint
-- out: text
CREATE FUNCTION holdfast.sweep(p_after text, p_most integer, p_idle_ms bigint) RETURNS text
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
  SELECT t.name INTO v_up_to FROM holdfast.name t WHERE t.name > p_after ORDER BY t.name OFFSET p_most - 1 LIMIT 1;
  FOR n IN
    SELECT * FROM holdfast.name t
    WHERE t.name > p_after AND (v_up_to IS NULL OR t.name <= v_up_to) AND (
      t.soonest_end <= v_now OR t.front_end <= v_now OR t.holders = 0 AND t.waiters = 0
      AND t.marks_end <= v_now AND t.touched_at <= v_now - p_idle_ms * interval '1 millisecond')
    ORDER BY t.name FOR UPDATE SKIP LOCKED
  LOOP
    n := holdfast.settle_due(n, v_now);
    -- While there may be marks the row stays: whoever takes an unknown name does not look for any.
    IF n.holders + n.waiters = 0 AND n.marks_end <= v_now THEN
      v_floor := greatest(v_floor, n.last_token);
      DELETE FROM holdfast.name t WHERE t.name = n.name;
      v_gone := v_gone + 1;
    ELSE
      PERFORM holdfast.save(n, v_now);
    END IF;
  END LOOP;
  -- In the same transaction that forgets the names: their tokens cannot come again.
  UPDATE holdfast.store s SET token_floor = v_floor WHERE s.token_floor < v_floor;
  DELETE FROM holdfast.mark m USING (
    SELECT t.id, t.name FROM holdfast.mark t WHERE t.ends_at <= v_now ORDER BY t.ends_at LIMIT p_most FOR UPDATE SKIP LOCKED
  ) old WHERE m.id = old.id AND m.name = old.name;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_gone := v_gone + v_count;
  v_full := v_count = p_most;
  DELETE FROM holdfast.operation o USING (
    SELECT t.id FROM holdfast.operation t WHERE t.ends_at <= v_now ORDER BY t.ends_at LIMIT p_most FOR UPDATE SKIP LOCKED
  ) old WHERE o.id = old.id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_gone := v_gone + v_count;
  RETURN format(
    '{"next":%s,"rows":%s,"full":%s}', coalesce(to_json(v_up_to)::text, 'null'), v_gone, to_json(v_full OR v_count = p_most)
  );
END $$;

-- A cell, as JSON; version 0 and null when there is none.
-- in: p_name text
-- out: text
CREATE FUNCTION holdfast.cell_read(p_name text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    (SELECT format('{"version":%s,"value":%s}', t.version, t.value) FROM holdfast.cell t WHERE t.name = p_name),
    '{"version":0,"value":null}'
  )
$$;

-- Write a cell over the version that was read; null removes it. A known operation answers as it did the first time.
-- in: p_name text, p_operation text, p_expected bigint, p_value text, p_mark_ms bigint, p_channel text
-- out: text
CREATE FUNCTION holdfast.cell_write(
  p_name text, p_operation text, p_expected bigint, p_value text, p_mark_ms bigint, p_channel text
) RETURNS text LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  v_answer text;
  v_version bigint;
  v_cell text;
BEGIN
  -- First of all: a copy of this operation waits here until the first has ended.
  INSERT INTO holdfast.operation VALUES (p_operation, '', clock_timestamp() + p_mark_ms * interval '1 millisecond')
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
      PERFORM pg_notify(p_channel, to_json(p_name)::text);
      EXIT;
    END IF;
    SELECT t.version, format('{"version":%s,"value":%s}', t.version, t.value) INTO v_version, v_cell
    FROM holdfast.cell t WHERE t.name = p_name;
    -- What stood in the way may be gone by now: then it is tried again.
    IF coalesce(v_version, 0) <> p_expected THEN
      v_answer := format('{"kind":"conflict","cell":%s}', coalesce(v_cell, '{"version":0,"value":null}'));
      EXIT;
    END IF;
  END LOOP;
  UPDATE holdfast.operation o SET answer = v_answer WHERE o.id = p_operation;
  RETURN v_answer;
END $$;
