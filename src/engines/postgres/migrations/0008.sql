-- A waiter whose lease had ended before a capacity was lowered is dropped and told nothing: it was no waiter any more. Before,
-- it was told that it had lost its place, unless it had stood at the front.

-- Change a busy name's capacity: waiters that can never be served leave, what now fits enters, holders stay.
-- in: p_name text, p_from integer, p_to integer
-- out: text
CREATE OR REPLACE FUNCTION holdfast.set_capacity(p_name text, p_from integer, p_to integer) RETURNS text
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
      IF c.ends_at > v_now THEN PERFORM holdfast.push(c, 'lost', ''); END IF;
    END LOOP;
    n := holdfast.settle(n, v_now);
  END IF;
  PERFORM holdfast.save(n, v_now);
  RETURN '{"kind":"set"}';
END $$;
