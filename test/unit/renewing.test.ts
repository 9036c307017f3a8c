import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { ClaimAnswer, Engine, EngineEvent } from "../../src/core/engine.js";
import { settle } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { never, rig, types, watch } from "./rig.js";

describe("renewing", () => {
  test("pitfall 4: renewal goes on after an error, until the deadline, and no rejection escapes", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    let failures = 0;
    a.hooks.renew = (call) => (++failures % 3 === 0 ? call() : Promise.reject(new Error("flaky")));
    await clock.advance(30_000);
    expect(hold.state).toBe("held");
    expect(failures).toBeGreaterThan(10);
    expect(types(a.told)).toContain("unavailable");
    await hold.release();
  });

  test("pitfall 5: a renewal that hangs does not silence the deadline", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.renew = () => never();
    await clock.advance(2950);
    expect(hold.signal.aborted).toBe(false);
    await clock.advance(20);
    expect(hold.signal.aborted).toBe(true);
    expect(hold.state).toBe("lost");
  });

  test("pitfall 5: a hung renewal does not stop later ones", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    let calls = 0;
    a.hooks.renew = (call) => (++calls === 1 ? never() : call());
    await clock.advance(30_000);
    expect(hold.state).toBe("held");
    await hold.release();
  });

  test("pitfall 11: the renewal interval has a floor, and holds share their renewals", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 100 });
    const holds = await Promise.all(Array.from({ length: 50 }, (_, n) => a.locks.mutex(`m${n}`).acquire()));
    await clock.advance(1000);
    expect(a.calls.renew).toBeGreaterThan(10);
    expect(a.calls.renew).toBeLessThanOrEqual(1000 / 25);
    for (const hold of holds) hold.throwIfLost();
    await Promise.all(holds.map((hold) => hold.release()));
  });

  test("pitfall 50: an answer asked for again counts the store's time left, not a full lease", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 10_000, callTimeoutMs: 5000 });
    let lost = true;
    a.hooks.claim = async (call) => {
      const answer = await call();
      if (!lost) return answer;
      lost = false;
      return never();
    };
    a.hooks.renew = () => never();
    const asked = watch(a.locks.mutex("m").acquire());
    await clock.advance(5100);
    expect(asked.state).toBe("done");
    expect(asked.value?.remainingMs).toBeLessThan(4950);
    // The store's lease ends 10 s after the first claim arrived; the holder stops before that.
    await clock.advance(4850);
    expect(asked.value?.state).toBe("lost");
  });

  test("a grant that came with little time left is renewed before its deadline", async () => {
    const { clock, open } = rig();
    const a = await open();
    let lostAnswers = 1;
    a.hooks.claim = async (call) => {
      const answer = await call();
      return lostAnswers-- > 0 ? never<ClaimAnswer>() : answer;
    };
    const asked = watch(a.locks.mutex("m").acquire({ leaseMs: 6000 }));
    await clock.advance(5100); // call timeout 5 s, sent again, granted with 0.9 s left
    expect(asked.value?.state).toMatch(/held|jeopardy/);
    await clock.advance(10_000); // and the store answers everything from now on
    expect(asked.value?.state).toBe("held");
  });

  test("the confirmation of a pushed grant with a long lease is sent again when it is not answered", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const first = await a.locks.mutex("m").acquire();
    const asked = watch(b.locks.mutex("m").acquire({ leaseMs: 60_000 }));
    await settle();
    let lost = 1;
    b.hooks.renew = (call) => (lost-- > 0 ? never() : call());
    await first.release();
    await settle();
    expect(asked.value?.state).toBe("held");
    await clock.advance(15_000);
    expect(b.calls.renew).toBeGreaterThan(1);
    expect(asked.value?.state).toBe("held");
  });

  test("a wake for one name renews the holds of that name alone", async () => {
    const base = rig();
    const batches: number[] = [];
    let push: (event: EngineEvent) => void = () => {};
    const engine: Engine = {
      ...intercept(base.engine(), { renew: (call, batch) => (batches.push(batch.length), call()) }),
      listen: (one) => ((push = one), () => {}),
    };
    const locks = await connect(engine, { clock: base.clock, chance: new SeededChance(6) });
    for (let n = 0; n < 50; n += 1) await locks.mutex(`m${n}`).acquire();
    push({ kind: "wake", name: "somebody else's" });
    await settle();
    expect(batches).toEqual([]);
    await locks.close();
  });

  test("an engine that answers a renewal with nothing lets no rejection escape", async () => {
    const { clock, open } = rig();
    const a = await open();
    await a.locks.mutex("m").acquire();
    a.hooks.renew = async () => undefined as never;
    const escaped: unknown[] = [];
    const others = process.listeners("unhandledRejection");
    process.removeAllListeners("unhandledRejection");
    process.on("unhandledRejection", (error) => escaped.push(error));
    await clock.advance(4000);
    await settle();
    process.removeAllListeners("unhandledRejection");
    for (const other of others) process.on("unhandledRejection", other);
    expect(escaped).toEqual([]);
  });

  test("pitfall 5: a heartbeat that is never answered is sent again long before the next one is due", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 1_000 });
    await a.locks.mutex("m").acquire({ leaseMs: 60_000 });
    let heartbeats = 0;
    a.hooks.renew = (call) => ((heartbeats += 1) === 1 ? never() : call());
    // The first is due after 20 s at the latest, the next one 20 s after it.
    await clock.advance(25_000);
    expect(heartbeats).toBe(2);
  });
});
