-- Inspect as one moment. Before, a name's row and its claims were read by two statements, and a lone claim that moved from
-- the one to the other in between was shown twice.

-- One page of busy names in order: those after p_after that begin with p_prefix, or the one name p_name. As JSON: the states,
-- and the name to go on after, null at the end.
-- in: p_name text, p_prefix text, p_after text, p_most integer
-- out: text
CREATE OR REPLACE FUNCTION holdfast.inspect(p_name text, p_prefix text, p_after text, p_most integer) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '3s' AS $$
DECLARE
  n holdfast.name;
  v_now timestamptz;
  v_states text;
  v_seen integer := 0;
  v_last text;
BEGIN
  -- First what is due: who can hold by now holds.
  FOR n IN
    SELECT * FROM holdfast.name t
    WHERE t.name >= coalesce(p_name, p_prefix) AND t.name > p_after ORDER BY t.name
  LOOP
    -- In the order of bytes all names with a prefix stand together.
    EXIT WHEN NOT starts_with(n.name, coalesce(p_name, p_prefix)) OR p_name <> n.name;
    v_last := n.name;
    v_seen := v_seen + 1;
    v_now := clock_timestamp();
    IF v_now >= n.soonest_end OR v_now >= n.front_end THEN
      n := holdfast.locked(n.name, false);
      IF n.name IS NOT NULL THEN
        v_now := clock_timestamp();
        n := holdfast.settle_due(n, v_now);
        PERFORM holdfast.save(n, v_now);
      END IF;
    END IF;
    EXIT WHEN v_seen = p_most;
  END LOOP;
  -- Then everything by one statement, which sees one moment: a lone claim in its name's row, or among the others.
  v_now := clock_timestamp();
  SELECT string_agg(
    format(
      '{"name":%s,"capacity":%s,"lastToken":%s,"holders":[%s],"waiters":[%s]}',
      to_json(s.name), s.capacity, s.last_token, s.holders, s.waiters
    ), ',' ORDER BY s.name
  ) INTO v_states
  FROM (
    SELECT t.name, t.capacity, t.last_token,
      string_agg(c.state || format(',"token":%s}', c.token), ',' ORDER BY c.token) FILTER (WHERE c.token > 0) AS holders,
      string_agg(c.state || '}', ',' ORDER BY c.seq) FILTER (WHERE c.token = 0) AS waiters
    FROM holdfast.name t CROSS JOIN LATERAL (
      SELECT k.token, k.seq, format(
        '{"id":%s,"units":%s,"leftMs":%s,"owner":%s%s', to_json(k.id), k.units, holdfast.left_ms(k.ends_at, v_now),
        k.owner, CASE WHEN k.data IS NULL THEN '' ELSE ',"data":' || k.data END
      ) AS state
      FROM (
        SELECT m.* FROM holdfast.claim m WHERE m.name = t.name
        UNION ALL SELECT (t.sole).* WHERE t.sole_id <> ''
      ) k
      WHERE k.ends_at > v_now
    ) c
    WHERE t.name >= coalesce(p_name, p_prefix) AND t.name > p_after AND t.name <= v_last
    GROUP BY t.name
  ) s;
  RETURN format(
    '{"states":[%s],"next":%s}', v_states, CASE WHEN v_seen = p_most THEN to_json(v_last)::text ELSE 'null' END
  );
END $$;
