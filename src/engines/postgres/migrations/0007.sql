-- A mark that has ended is none. Before, a claim under a name in use was "gone" for as long as nobody had swept the old mark of
-- its id away, and under an idle name it was granted.

-- Ask. The first statement is all there is to an unknown name, and an idle one need not come here; the rest is the long way.
-- in: p_name text, p_id text, p_units integer, p_capacity integer, p_lease_ms bigint, p_waiter_ms bigint, p_wait boolean, p_owner text, p_data text, p_exact boolean, p_at_least bigint, p_client text, p_hears boolean
-- out: text
CREATE OR REPLACE FUNCTION holdfast.claim(
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
  PERFORM FROM holdfast.mark m WHERE m.id = p_id AND m.name = p_name AND m.ends_at > v_now;
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
