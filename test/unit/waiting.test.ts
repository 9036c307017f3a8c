import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { ClaimAnswer, Engine, EngineEvent } from "../../src/core/engine.js";
import {
  AcquireTimeoutError,
  ClaimEndedError,
  EngineRefusedError,
  EngineUnavailableError,
  LockLostError,
} from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import type { Lock } from "../../src/recipes/lock.js";
import { settle } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { never, rig, types, watch } from "./rig.js";

describe("waiting", () => {
  test("waiters are served in order of arrival, each by exactly one push", async () => {
    const { clock, open } = rig();
    const clients = await Promise.all(Array.from({ length: 5 }, () => open()));
    const order: number[] = [];
    const first = await clients[0]?.locks.mutex("m").acquire();
    for (const [n, { locks }] of clients.entries()) {
      void locks.mutex("m").using(() => void order.push(n));
      await settle();
    }
    await first?.release();
    await clock.advance(100);
    expect(order).toEqual([0, 1, 2, 3, 4]);
  });

  test("a bounded wait ends with an error that says who holds the lock; tryAcquire gives null", async () => {
    const { clock, open } = rig();
    const a = await open({ label: "worker-7" });
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const timed = watch(b.locks.mutex("m").acquire({ waitMs: 500 }));
    const tried = watch(b.locks.mutex("m").tryAcquire({ waitMs: 300 }));
    await clock.advance(310);
    expect(tried.value).toBeNull();
    expect(timed.state).toBe("pending");
    await clock.advance(200);
    expect(timed.error).toBeInstanceOf(AcquireTimeoutError);
    expect((timed.error as Error).message).toMatch(/"m" was not free within 500 ms, held by worker-7 \(.+:\d+\)/);
    await expect(b.locks.mutex("m").acquire({ waitMs: 0 })).rejects.toThrow(/"m" is busy, held by worker-7/);
    await hold.release();
  });

  test("a waiter whose renewal is refused for good is told, and its claim is taken out of the way of the others", async () => {
    const { clock, open, store } = rig();
    const [a, b] = [await open(), await open()];
    const hold = await a.locks.mutex("m").acquire();
    b.hooks.renew = async (_call, requests) =>
      requests.map(() => ({
        kind: "unknown",
        cause: new EngineRefusedError("memory", "Make room.", new Error("full")),
      }));
    const refused = watch(b.locks.mutex("m").acquire());
    await clock.advance(4000);
    expect(refused.error).toBeInstanceOf(EngineRefusedError);
    expect(store.size.claims, "the holder's alone").toBe(1);
    await hold.release();
  });

  test("pitfall 19: busy is a value, broken is an error, and a refusal for good is not retried", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    expect(await b.locks.mutex("m").tryAcquire()).toBeNull();
    expect(b.calls).toEqual({ claim: 1, release: 0, renew: 0, resize: 0 });

    b.hooks.claim = () => Promise.reject(new Error("connection refused"));
    await expect(b.locks.mutex("m").tryAcquire()).rejects.toBeInstanceOf(EngineUnavailableError);
    const timed = watch(b.locks.mutex("m").acquire({ waitMs: 1000 }));
    await clock.advance(1100);
    expect(timed.error).toBeInstanceOf(EngineUnavailableError);
    expect((timed.error as Error).message).toMatch(/memory did not answer while acquiring "m": connection refused/);

    await settle();
    const { claim: before, release: releases } = b.calls;
    b.hooks.claim = () => Promise.reject(new EngineRefusedError("memory", "Grant the right.", new Error("NOAUTH")));
    await expect(b.locks.mutex("m").acquire()).rejects.toBeInstanceOf(EngineRefusedError);
    expect(b.calls.claim).toBe(before + 1);
    await settle();
    expect(b.calls.release, "refused at the first try, there is nothing to withdraw").toBe(releases);
    delete b.hooks.claim;
    await hold.release();
    expect(store.size.claims).toBe(0);
  });

  test("a grant whose lease ran out before the caller got it, because the process stood still, is asked for again", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    let stalls = 2;
    a.locks.on("granted", () => {
      if (stalls > 0) clock.stall(5000);
      stalls -= 1;
    });
    const asked = watch(a.locks.mutex("m").tryAcquire());
    await clock.advance(100);
    expect(asked.value?.state).toBe("held");
    expect(stalls).toBe(-1);
    await asked.value?.release();
    // Under an id of the caller's own it cannot be: that id has ended.
    stalls = 1;
    await expect(a.locks.mutex("m").acquire({ id: "i".repeat(22) })).rejects.toBeInstanceOf(LockLostError);
  });

  test("told not to wait, a call waits for the store's answer all the same, and says that it did not wait", async () => {
    const { clock, open } = rig();
    const a = await open();
    const slow = async (call: () => Promise<ClaimAnswer>): Promise<ClaimAnswer> => {
      await new Promise<void>((resolve) => clock.after(300, resolve));
      return call();
    };
    a.hooks.claim = slow;
    const taken = watch(a.locks.mutex("m").tryAcquire());
    await clock.advance(300);
    expect(taken.value?.state).toBe("held");
    const refused = watch(a.locks.mutex("m").acquire({ waitMs: 0 }));
    await clock.advance(300);
    expect(refused.error).toMatchObject({ waitedMs: 0 });
    expect(refused.error).toBeInstanceOf(AcquireTimeoutError);
  });

  test("a caller who left while it was told of a grant that ran out is not asked for again", async () => {
    const { clock, store, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const leaving = new AbortController();
    a.locks.on("granted", () => {
      if (leaving.signal.aborted) return;
      clock.stall(5000);
      leaving.abort(new Error("left"));
    });
    const asked = watch(a.locks.mutex("m").acquire({ signal: leaving.signal }));
    await clock.advance(100);
    expect(asked.error).toMatchObject({ message: "left" });
    expect(a.calls.claim).toBe(1);
    expect(store.size.claims).toBe(0);
  });

  test("a server that is away is waited for when no limit is given", async () => {
    const { clock, open } = rig();
    const a = await open();
    a.hooks.claim = () => Promise.reject(new Error("connection refused"));
    const asked = watch(a.locks.mutex("m").acquire());
    await clock.advance(60_000);
    expect(asked.state).toBe("pending");
    delete a.hooks.claim;
    await clock.advance(1100);
    expect(asked.state).toBe("done");
    await asked.value?.release();
  });

  test("pitfall 20: every retry has a minimum delay with chance in it", async () => {
    const { clock, open } = rig();
    const a = await open();
    const at: number[] = [];
    a.hooks.claim = () => {
      at.push(clock.now());
      return Promise.reject(new Error("away"));
    };
    const timed = watch(a.locks.mutex("m").acquire({ waitMs: 10_000 }));
    await clock.advance(10_001);
    expect(timed.state).toBe("failed");
    const gaps = at.slice(1).map((time, n) => time - (at[n] ?? 0));
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(25);
    expect(new Set(gaps).size).toBeGreaterThan(5);
    expect(at.length).toBeLessThan(30);
  });

  test("pitfall 21: the try variant does not wait, and every option counts in every form", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    for (const lock of [a.locks.mutex("m"), a.locks.readWrite("rw").write, a.locks.semaphore("s", 1)]) {
      const hold = await lock.tryAcquire({ leaseMs: 1000, renew: false });
      expect(hold?.remainingMs).toBe(985);
      await clock.advance(0);
      const others: Lock<Hold>[] = [b.locks.mutex("m"), b.locks.readWrite("rw").write, b.locks.semaphore("s", 1)];
      const other = others.find((one) => one.name === lock.name);
      expect(await other?.tryAcquire()).toBeNull();
      const timed = watch(other?.using({ waitMs: 50 }, () => {}) ?? Promise.resolve());
      await clock.advance(60);
      expect(timed.error).toBeInstanceOf(AcquireTimeoutError);
      await hold?.release();
    }
  });

  test("pitfall 59: a push that overtakes the queued answer finds its listener", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    let answerNow: (() => void) | undefined;
    b.hooks.claim = async (call) => {
      const answer = await call();
      await new Promise<void>((resolve) => (answerNow = resolve));
      return answer;
    };
    const asked = watch(b.locks.mutex("m").acquire());
    await settle();
    await hold.release();
    await clock.advance(10);
    expect(asked.state).toBe("done");
    answerNow?.();
    await clock.advance(30_000);
    asked.value?.throwIfLost();
    await asked.value?.release();
  });

  test("pitfall 61: a push delayed past its lease is not believed by a waiter that was queued again", async () => {
    const { clock, engine, open } = rig();
    const a = await open();
    const b = await open({ leaseMs: 1000, callTimeoutMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    const late: (() => void)[] = [];
    b.hooks.push = (deliver) => void late.push(deliver);
    // The first claim is queued, but its answer is lost; nothing tells b that it was granted and expired.
    let first = true;
    b.hooks.claim = async (call) => {
      const answer = await call();
      if (!first) return answer;
      first = false;
      return never();
    };
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(10);
    await hold.release();
    await clock.advance(1500);
    // b's unconfirmed grant has expired; c takes the lock, b asks again with the same id and is queued.
    const c = engine();
    const owner = { client: "c", host: "h", pid: 1 };
    const claim = { name: "m", id: "c".repeat(22), units: 1, capacity: 1, leaseMs: 60_000, wait: false, owner };
    expect((await c.claim(claim)).kind).toBe("granted");
    await clock.advance(1700);
    expect(b.calls.claim).toBe(2);
    expect(late).toHaveLength(1);
    late[0]?.();
    await clock.advance(10);
    expect(asked.state).toBe("pending");
    delete b.hooks.push;
    expect(await c.release(claim)).toBe("released");
    await clock.advance(10);
    expect(asked.state).toBe("done");
    await asked.value?.release();
  });

  test("a pushed grant counts from the last heartbeat, not from its arrival", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open({ leaseMs: 9000 });
    const hold = await a.locks.mutex("m").acquire();
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(2600);
    b.hooks.renew = () => never();
    await hold.release();
    await clock.advance(0);
    expect(asked.state).toBe("done");
    // Its waiter lease was set at 0 and ends at 9000; 2600 of it are gone.
    expect(asked.value?.remainingMs).toBeLessThan(6400);
    expect(asked.value?.remainingMs).toBeGreaterThan(6200);
  });

  test("a position in the queue counts from the claim's first sending, although the answer came to a later one", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open({ leaseMs: 1000, callTimeoutMs: 400 });
    const hold = await a.locks.mutex("m").acquire();
    let first = true;
    b.hooks.claim = async (call) => {
      const answer = await call();
      if (!first) return answer;
      first = false;
      return never();
    };
    b.hooks.renew = () => never();
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(500);
    expect(b.calls.claim).toBe(2);
    // The answer came to the second claim; the first heartbeat is due by the first one, so it goes out at once.
    expect(b.calls.renew).toBe(1);
    await hold.release();
    await settle();
    // The store's waiter lease ends at 1000: with half of it gone, the grant is not believed before it is confirmed.
    expect(asked.state).toBe("pending");
    delete b.hooks.renew;
    b.hooks.push = () => {};
    await clock.advance(1000);
    await clock.advance(1000);
    expect(asked.state).toBe("done");
    expect(store.size.claims).toBe(1);
    await asked.value?.release();
  });

  test("a grant that was pushed is confirmed when its waiter's next heartbeat was due: a short hold needs none", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    for (const heldMs of [0, 3000, 4000]) {
      const hold = await a.locks.mutex("m").acquire({ leaseMs: 60_000 });
      const asked = watch(b.locks.mutex("m").acquire({ leaseMs: 60_000 }));
      await settle();
      const before = b.calls.renew;
      await hold.release();
      await clock.advance(heldMs);
      // A waiter's lease is 10 s: its heartbeat is due after 3.3 s.
      expect(b.calls.renew - before).toBe(heldMs < 3333 ? 0 : 1);
      expect(asked.value?.remainingMs).toBeGreaterThan(heldMs < 3333 ? 6500 : 50_000);
      await asked.value?.release();
    }
  });

  test("a pushed grant of a fixed lease is confirmed before it is returned, and then lasts its whole lease", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const asked = watch(b.locks.mutex("m").acquire({ leaseMs: 60_000, renew: false }));
    await clock.advance(3000);
    const before = b.calls.renew;
    await hold.release();
    await settle();
    expect(asked.state).toBe("done");
    expect(b.calls.renew).toBe(before + 1);
    expect(asked.value?.remainingMs).toBe(60_000 - 605);
    await asked.value?.release();
  });

  test("a deaf waiter is served by its own heartbeats", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open({}, { push: () => {} });
    const hold = await a.locks.mutex("m").acquire();
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(100);
    await hold.release();
    await clock.advance(3400);
    expect(asked.state).toBe("done");
    await asked.value?.release();
  });

  test("the first waiter takes over from a dead holder as soon as its lease ends", async () => {
    const { clock, engine, open } = rig();
    const owner = { client: "dead", host: "h", pid: 1 };
    const dead = { name: "m", id: "d".repeat(22), units: 1, capacity: 1, leaseMs: 5000, wait: false, owner };
    await engine().claim(dead);
    const a = await open();
    const asked = watch(a.locks.mutex("m").acquire());
    await clock.advance(4990);
    expect(asked.state).toBe("pending");
    await clock.advance(50);
    expect(asked.state).toBe("done");
    await asked.value?.release();
  });

  test("dead waiters, however many, cost one waiter lease and a third, not one each", async () => {
    const { clock, engine, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const owner = { client: "dead", host: "h", pid: 1 };
    for (let n = 0; n < 20; n += 1) {
      const id = `dead-waiter-number-${String(n).padStart(4, "0")}`;
      await engine().claim({ name: "m", id, units: 1, capacity: 1, leaseMs: 10_000, wait: true, owner });
    }
    const b = await open();
    const asked = watch(b.locks.mutex("m").acquire());
    await settle();
    await hold.release();
    await clock.advance(10_000 + 3400);
    expect(asked.state).toBe("done");
    await asked.value?.release();
  });

  test("a waiter whose position was lost while the store was away joins again with a new id", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const b = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(10);
    b.hooks.renew = () => Promise.reject(new Error("away"));
    await clock.advance(4000);
    delete b.hooks.renew;
    await clock.advance(1000);
    expect(types(b.told).filter((type) => type === "queued")).toHaveLength(2);
    await hold.release();
    await clock.advance(10);
    expect(asked.state).toBe("done");
    await asked.value?.release();
  });

  test("an id of the caller's own is used as it is, and never twice", async () => {
    const { engine, open } = rig();
    const a = await open();
    const id = "an-id-written-down-first";
    const hold = await a.locks.mutex("m").acquire({ id });
    expect(hold.id).toBe(id);
    await expect(a.locks.mutex("m").acquire({ id })).rejects.toThrow(/in use by these locks already/);
    // Released without having settled, the id has a tombstone: whoever uses it again is told.
    await engine().release({ name: "m", id });
    await settle();
    const b = await open();
    await expect(b.locks.mutex("m").acquire({ id })).rejects.toBeInstanceOf(ClaimEndedError);
    await expect(b.locks.mutex("m").tryAcquire({ id })).rejects.toBeInstanceOf(ClaimEndedError);
  });

  test("pitfall 61: a push for a claim that was told gone is not believed in the pause before the next one", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const late: (() => void)[] = [];
    b.hooks.push = (deliver) => void late.push(deliver);
    const asked = watch(b.locks.mutex("m").acquire());
    await settle();
    await hold.release();
    await settle();
    expect(late).toHaveLength(1);
    const seen = { gone: false };
    b.hooks.renew = async (_call, requests) => ((seen.gone = true), requests.map(() => ({ kind: "gone" })));
    for (let ms = 0; ms < 10_000 && !seen.gone; ms += 1) await clock.advance(1);
    expect(seen.gone).toBe(true);
    late[0]?.();
    await settle();
    expect(asked.state).toBe("pending");
    delete b.hooks.push;
    delete b.hooks.renew;
    await clock.advance(1000);
    expect(asked.value?.state).toBe("held");
    expect(b.calls.claim).toBe(2);
    await asked.value?.release();
  });

  test("where a store keeps no queue the loop asks again with a new id, after a pause or a wake", async () => {
    const { clock, engine, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const ids = new Set<string>();
    let push: ((event: EngineEvent) => void) | undefined;
    const real = engine();
    const queueless: Engine = {
      ...intercept(real, {}),
      guarantees: { ...real.guarantees, order: "none" },
      claim: (claim) => (ids.add(claim.id), real.claim({ ...claim, wait: false })),
      listen: (listener) => ((push = listener), () => {}),
    };
    const locks = await connect(queueless, { clock, chance: new SeededChance(99) });
    const asked = watch(locks.mutex("m").acquire());
    await clock.advance(10_000);
    expect(ids.size).toBeGreaterThan(8);
    expect(ids.size).toBeLessThan(40);
    await hold.release();
    push?.({ kind: "wake", name: "m" });
    await settle();
    expect(asked.state).toBe("done");
    await locks.close();
  });

  test("after a reconnect all waiting claims ask at once", async () => {
    const { clock, engine, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    let push: ((event: EngineEvent) => void) | undefined;
    const deaf: Engine = { ...intercept(engine(), {}), listen: (listener) => ((push = listener), () => {}) };
    const locks = await connect(deaf, { clock, chance: new SeededChance(98) });
    const asked = watch(locks.mutex("m").acquire());
    await settle();
    await hold.release();
    await settle();
    expect(asked.state).toBe("pending");
    push?.({ kind: "wake" });
    await settle();
    expect(asked.state).toBe("done");
    await locks.close();
  });

  test("where a store keeps no queue, a claim is withdrawn before the next one only if copies of it may be on their way", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 1000 });
    const answers = ["busy", "lost", "busy", "busy", "granted"];
    const claimed: string[] = [];
    const withdrawn: string[] = [];
    a.hooks.release = (call, { id }) => (withdrawn.push(id), call());
    a.hooks.claim = async (call, { id }) => {
      claimed.push(id);
      const answer = answers.shift();
      if (answer === "lost") throw new Error("the connection was cut");
      return answer === "busy" ? { kind: "busy" } : call();
    };
    const taken = watch(a.locks.mutex("m").acquire());
    await clock.advance(10_000);
    expect(taken.state).toBe("done");
    // Sent once and answered; lost, sent again, answered; sent once and answered; granted.
    const [once, lost, again, third, granted] = claimed;
    expect(claimed).toHaveLength(5);
    expect(again).toBe(lost);
    expect(new Set([once, lost, third, granted]).size).toBe(4);
    expect(withdrawn).toEqual([lost]);
    await taken.value?.release();
  });

  test("a repeated claim that is answered queued is no heartbeat, so there is one holder", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const c = await open();
    const held = await a.locks.mutex("m").acquire();
    let lostAnswers = 1;
    b.hooks.claim = async (call) => {
      const answer = await call();
      if (lostAnswers-- > 0) {
        // The store has queued it; the answer is lost, and the connection is found broken 4 s later.
        await new Promise<void>((resolve) => void clock.after(4000, resolve));
        throw new Error("connection reset");
      }
      return answer;
    };
    b.hooks.renew = () => never(); // b's heartbeats do not arrive
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(7000);
    expect(b.calls.claim).toBe(2);
    await held.release(); // the push does
    await settle();
    const other = watch(c.locks.mutex("m").acquire());
    await clock.advance(3400); // the store passes it on when b's waiter lease ends, 10 s after the first sending
    expect([asked.value?.state, other.value?.state]).not.toEqual(["held", "held"]);
  });

  test("a repeated claim is no heartbeat with the default call timeout and a silent first answer either", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const c = await open();
    const held = await a.locks.mutex("m").acquire();
    let lostAnswers = 1;
    b.hooks.claim = async (call) => {
      const answer = await call();
      return lostAnswers-- > 0 ? never<ClaimAnswer>() : answer;
    };
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(8000);
    b.hooks.renew = () => never();
    await held.release();
    await settle();
    const other = watch(c.locks.mutex("m").acquire());
    await clock.advance(2400);
    expect([asked.value?.state, other.value?.state]).not.toEqual(["held", "held"]);
  });

  test.each([new Error("connection reset"), new EngineRefusedError("memory", "Grant the right.", new Error("NOAUTH"))])(
    "a claim call that fails during the pause before the next round does not end a wait without limit: %s",
    async (failure) => {
      const { clock, open } = rig();
      const a = await open();
      const b = await open();
      const first = await a.locks.mutex("m").acquire();
      let fail: (error: Error) => void = () => {};
      let once = true;
      b.hooks.claim = async (call) => {
        if (!once) return call();
        once = false;
        await call();
        return new Promise<ClaimAnswer>((_, reject) => (fail = reject));
      };
      let gone = true;
      b.hooks.renew = async (call, requests) => {
        const answers = await call();
        if (!gone) return answers;
        gone = false;
        return requests.map(() => ({ kind: "gone" }));
      };
      const asked = watch(b.locks.mutex("m").acquire({ renew: false }));
      await settle();
      await first.release(); // pushed while the claim is not answered: a fixed lease confirms, and is told gone
      await settle();
      fail(failure);
      await clock.advance(5000);
      expect(asked.error).toBeUndefined();
      expect(asked.state).toBe("done");
    },
  );

  test("pitfall 59: a wake that overtakes the queued answer is not forgotten", async () => {
    const base = rig();
    const { clock } = base;
    const a = await base.open();
    const first = await a.locks.mutex("m").acquire();
    let answered: () => void = () => {};
    let listener: (event: EngineEvent) => void = () => {};
    const real = base.engine();
    const engine: Engine = {
      ...intercept(real, {
        claim: async (call) => {
          const answer = await call();
          await new Promise<void>((resolve) => (answered = resolve));
          return answer;
        },
      }),
      // A store that can only say "look again" (ZooKeeper, SQLite, MySQL).
      listen: (one) => {
        listener = one;
        return real.listen(
          (event) => event.kind === "granted" && one({ kind: "wake", name: event.name, id: event.id }),
        );
      },
    };
    const locks = await connect(engine, { clock, chance: new SeededChance(5) });
    const asked = watch(locks.mutex("m").acquire());
    await settle();
    expect(listener).toBeTypeOf("function");
    await first.release();
    await settle();
    answered();
    await clock.advance(1000);
    expect(asked.state).toBe("done");
    await clock.advance(5000);
    await locks.close();
  });

  test("where a store keeps no queue, a time-out while a poll is under way is told as busy", async () => {
    const { clock, open } = rig();
    const a = await open();
    let polls = 0;
    a.hooks.claim = async () => {
      polls += 1;
      await new Promise<void>((resolve) => void clock.after(40, resolve));
      return { kind: "busy", holder: a.locks.owner };
    };
    const outcomes = new Set<string>();
    for (let waitMs = 300; waitMs < 500; waitMs += 10) {
      const tried = watch(a.locks.mutex("m").tryAcquire({ waitMs }));
      await clock.advance(waitMs + 50);
      outcomes.add(tried.state === "done" ? "null" : String((tried.error as Error | undefined)?.name));
    }
    expect(polls).toBeGreaterThan(20);
    expect([...outcomes]).toEqual(["null"]);
  });

  test("a waiter whose store refuses for good is told", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const asked = watch(b.locks.mutex("m").acquire());
    await settle();
    b.hooks.renew = () => Promise.reject(new EngineRefusedError("memory", "Grant the right.", new Error("NOPERM")));
    await clock.advance(600_000);
    expect(asked.error).toBeInstanceOf(EngineRefusedError);
    await hold.release();
  });

  test("pitfall 19: callTimeoutMs counts for renewals: a silent store is not told to a waiter as busy", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const tried = watch(b.locks.mutex("m").tryAcquire({ waitMs: 60_000 }));
    await settle();
    b.hooks.renew = () => never();
    await clock.advance(60_100);
    expect(tried.state).toBe("failed"); // nothing was heard from the store for a minute
    await hold.release();
  });

  test.each(["held and released", "aborted"])(
    "pitfall 59: a push before the claim's own answer, which is lost: once it is %s, nothing of it is renewed",
    async (end) => {
      const { clock, open } = rig();
      const [a, b] = [await open(), await open()];
      const first = await b.locks.mutex("m").acquire({ leaseMs: 10_000 });
      a.hooks.claim = async (call) => {
        await call();
        return never();
      };
      if (end === "aborted") a.hooks.renew = () => never();
      const leaving = new AbortController();
      const options = { leaseMs: 10_000, renew: false, signal: leaving.signal };
      const acquiring = watch(a.locks.mutex("m").acquire(options));
      await clock.advance(10);
      await first.release();
      await clock.advance(10);
      leaving.abort();
      for (const verb of ["claim", "renew"] as const) delete a.hooks[verb];
      await acquiring.value?.release();
      expect(acquiring.state).toBe(end === "aborted" ? "failed" : "done");
      await clock.advance(20_000);
      const { renew } = a.calls;
      await clock.advance(60_000);
      expect(a.calls.renew).toBe(renew);
    },
  );

  test("pitfall 19: an older heartbeat that is late does not replace the answer to a newer one", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open({ callTimeoutMs: 5_000 }), await open()];
    const hold = await b.locks.mutex("m").acquire();
    const acquiring = watch(a.locks.mutex("m").acquire({ leaseMs: 10_000, waitMs: 8_500 }));
    await settle();
    let heartbeats = 0;
    a.hooks.renew = (call) => ((heartbeats += 1) === 1 ? never() : call());
    await clock.advance(9_000);
    expect(heartbeats).toBeGreaterThan(1);
    expect(acquiring.error).toBeInstanceOf(AcquireTimeoutError);
    await hold.release();
  });
});
