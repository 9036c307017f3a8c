import { describe, expect, test } from "vitest";
import type { RenewAnswer } from "../../src/core/engine.js";
import { ClaimEndedError, EngineRefusedError, TooManyClaimsError, TooManyWaitersError } from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import type { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { never, type Rigged, rig, types, watch } from "./rig.js";

describe("maxWaiters", () => {
  test("a caller beyond it is refused at once, and the store hears nothing of it", async () => {
    const { clock, open } = rig();
    const a = await open({ maxWaiters: 2 });
    const mutex = a.locks.mutex("m");
    const hold = await mutex.acquire();
    const waiting = [watch(mutex.acquire()), watch(mutex.acquire({ waitMs: 60_000 }))];
    await clock.advance(10);
    const claims = a.calls.claim;
    const refused = await mutex.acquire().catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(TooManyWaitersError);
    expect(refused).toMatchObject({ code: "HOLDFAST_TOO_MANY_WAITERS", lock: "m", limit: 2 });
    expect(a.calls.claim).toBe(claims);
    expect(waiting.map(({ state }) => state)).toEqual(["pending", "pending"]);
    expect(hold.state).toBe("held");
    // Who does not wait takes nobody's place, and another name has places of its own.
    expect(await mutex.tryAcquire()).toBeNull();
    await (await a.locks.mutex("other").acquire()).release();
  });

  test("callers of one turn are counted before the store has answered any of them", async () => {
    const { open } = rig();
    const a = await open({ maxWaiters: 3 });
    const calls = Array.from({ length: 10 }, () => a.locks.mutex("m").acquire());
    const settled = calls.map((call) => watch(call));
    await Promise.resolve();
    expect(settled.filter(({ state }) => state === "failed")).toHaveLength(7);
    expect(a.calls.claim).toBe(3);
  });

  test("a place is free again after a grant, a timeout, an abort and a refusal by the store", async () => {
    const { clock, open } = rig();
    const a = await open({ maxWaiters: 1 });
    const mutex = a.locks.mutex("m");
    const hold = await mutex.acquire();
    await Promise.all([mutex.acquire({ waitMs: 100 }).catch(() => {}), clock.advance(100)]);
    const abort = new AbortController();
    const aborted = mutex.acquire({ signal: abort.signal }).catch(() => "aborted");
    await clock.advance(10);
    abort.abort();
    expect(await aborted).toBe("aborted");
    await expect(a.locks.semaphore("m", 2).acquire()).rejects.toThrow("capacity");
    const next = watch(mutex.acquire());
    await clock.advance(10);
    await expect(mutex.acquire()).rejects.toThrow(TooManyWaitersError);
    await hold.release();
    await clock.advance(10);
    expect(next.state).toBe("done");
    expect(watch(mutex.acquire()).state).toBe("pending");
  });

  test("tasks that wait for their turn in a burst count too", async () => {
    const { clock, open } = rig();
    const a = await open({ maxWaiters: 2 });
    const mutex = a.locks.mutex("m", { burst: { holds: 10, ms: 1000 } });
    const hold = await mutex.acquire();
    const waiting = [watch(mutex.acquire()), watch(mutex.acquire())];
    await expect(mutex.acquire()).rejects.toThrow(TooManyWaitersError);
    await hold.release();
    await clock.advance(10);
    expect(waiting.map(({ state }) => state)).toEqual(["done", "pending"]);
  });

  test("refusals are told once a second, with their number, and counted as an outcome of their own", async () => {
    const { clock, open } = rig();
    const a = await open({ maxWaiters: 1 });
    const mutex = a.locks.mutex("m");
    await mutex.acquire();
    const waits = watch(mutex.acquire());
    const flood = async (): Promise<void> => {
      for (let n = 0; n < 5; n += 1) await mutex.acquire().catch(() => {});
    };
    await flood();
    await clock.advance(1000);
    await flood();
    expect(a.told.filter(({ type }) => type === "limited")).toEqual([
      { type: "limited", name: "m", option: "maxWaiters", limit: 1, refused: 1 },
      { type: "limited", name: "m", option: "maxWaiters", limit: 1, refused: 5 },
    ]);
    expect(waits.state).toBe("pending");
    expect(types(a.told)).not.toContain("unavailable");
  });

  /** The counts exist only while there are many claims: they must be the same as if they had always been kept. */
  test.each([1, 2, 3, 4])("who is refused is who would be by counting everybody: seed %i", async (seed) => {
    const { clock, open } = rig();
    const chance = new SeededChance(seed);
    const pick = (n: number): number => Math.floor(chance.fraction() * n);
    const maxWaiters = 1 + pick(3);
    const { locks } = await open({ maxWaiters });
    type Call = { name: string; waits: boolean; abort: AbortController; hold: Hold | null; over: boolean };
    const calls: Call[] = [];
    let refusals = 0;
    for (let step = 0; step < 250; step += 1) {
      const name = `n${pick(3)}`;
      const many = calls.filter((call) => !call.over);
      const kind = pick(10);
      if (kind < 6) {
        const waits = pick(4) > 0;
        const call: Call = { name, waits, abort: new AbortController(), hold: null, over: false };
        const waiting = many.filter((one) => one.waits && one.hold === null && one.name === name).length;
        const options = { signal: call.abort.signal, ...(waits ? {} : { waitMs: 0 }) };
        const taken = locks
          .mutex(name)
          .acquire(options)
          .then(
            (hold) => void (call.hold = hold),
            (error: unknown) => {
              call.over = true;
              return error;
            },
          );
        calls.push(call);
        if (waits && waiting >= maxWaiters) {
          refusals += 1;
          expect(await taken).toBeInstanceOf(TooManyWaitersError);
        } else {
          await clock.advance(1);
          if (call.over) expect(await taken).not.toBeInstanceOf(TooManyWaitersError);
        }
      } else if (kind < 8) {
        const held = many.find((call) => call.hold !== null);
        if (held !== undefined) {
          held.over = true;
          void held.hold?.release().catch(() => {});
        }
      } else many[pick(many.length)]?.abort.abort();
      await clock.advance(1);
    }
    expect(refusals).toBeGreaterThan(0);
  });
});

describe("maxClaims", () => {
  test("claims and holds count, whatever their name, and what is adopted too", async () => {
    const { open } = rig();
    const [a, b] = [await open({ maxClaims: 2 }), await open()];
    const [one] = [await a.locks.mutex("a").acquire(), await a.locks.mutex("b").acquire()];
    const refused = await a.locks
      .mutex("c")
      .tryAcquire()
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(TooManyClaimsError);
    expect(refused).toMatchObject({ code: "HOLDFAST_TOO_MANY_CLAIMS", lock: "c", limit: 2 });
    expect(a.told.filter(({ type }) => type === "limited")).toEqual([
      { type: "limited", name: "c", option: "maxClaims", limit: 2, refused: 1 },
    ]);
    const given = (await b.locks.mutex("d").acquire()).handOver();
    await expect(a.locks.adopt(given)).rejects.toThrow(TooManyClaimsError);
    await expect(a.locks.latch("l", 1).wait()).rejects.toThrow(TooManyClaimsError);
    await one.release();
    expect((await a.locks.adopt(given)).state).toBe("held");
  });
});

describe("whatever ends a claim gives its place back", () => {
  type Case = { readonly a: Rigged; readonly b: Rigged; readonly clock: FakeClock };
  const mutex = ({ a }: Case) => a.locks.mutex("m");
  const aborted = async ({ clock }: Case, wait: (signal: AbortSignal) => Promise<unknown>): Promise<void> => {
    const abort = new AbortController();
    const waiting = watch(wait(abort.signal));
    await clock.advance(10);
    expect(waiting.state).toBe("pending");
    abort.abort();
    await clock.advance(10);
    expect(waiting.state).toBe("failed");
  };

  const ENDINGS: Record<string, (one: Case) => Promise<unknown>> = {
    "a release": async (one) => (await mutex(one).acquire()).release(),
    "a hold that is handed to another process": async (one) => (await mutex(one).acquire()).handOver(),
    "a hold that is lost": async (one) => {
      const hold = await mutex(one).acquire({ leaseMs: 1000, renew: false });
      await one.clock.advance(1000);
      expect(hold.state).toBe("lost");
    },
    "a try that is refused": async (one) => {
      await one.b.locks.mutex("m").acquire();
      expect(await mutex(one).tryAcquire()).toBeNull();
    },
    "a wait that is over": async (one) => {
      await one.b.locks.mutex("m").acquire();
      const waiting = watch(mutex(one).acquire({ waitMs: 500 }));
      await one.clock.advance(500);
      expect(waiting.state).toBe("failed");
    },
    "a wait that is aborted": async (one) => {
      await one.b.locks.mutex("m").acquire();
      await aborted(one, (signal) => mutex(one).acquire({ signal }));
    },
    "a wait that is aborted while the store does not answer": async (one) => {
      one.a.hooks.claim = () => never();
      await aborted(one, (signal) => mutex(one).acquire({ signal }));
    },
    "a wait that is aborted between two claims": async (one) => {
      await one.b.locks.mutex("m").acquire();
      // The store forgot it: it asks anew after a pause, in which it is aborted.
      one.a.hooks.renew = async (call, requests) => {
        const answers = await call();
        return requests.map(({ name }, n) => (name === "m" ? { kind: "gone" } : (answers[n] as RenewAnswer)));
      };
      const claims = one.a.calls.claim;
      const abort = new AbortController();
      const waiting = watch(mutex(one).acquire({ signal: abort.signal }));
      while (one.a.calls.release === 0) await one.clock.advance(1);
      expect(one.a.calls.claim).toBe(claims + 1);
      abort.abort();
      await one.clock.advance(10);
      expect(waiting.state).toBe("failed");
    },
    "another capacity": async (one) => {
      await one.b.locks.mutex("m").acquire();
      await expect(one.a.locks.semaphore("m", 2).acquire()).rejects.toThrow("capacity");
    },
    "an error of the store": async (one) => {
      one.a.hooks.claim = () => Promise.reject(new EngineRefusedError("memory", "no such right", null));
      await expect(mutex(one).acquire()).rejects.toThrow(EngineRefusedError);
    },
    "a store that is away": async (one) => {
      one.a.hooks.claim = () => never();
      const trying = watch(mutex(one).tryAcquire());
      await one.clock.advance(60_000);
      expect(trying.state).toBe("failed");
    },
    "what cannot be adopted": async (one) => {
      const hold = await one.b.locks.mutex("m").acquire();
      const data = hold.handOver();
      await one.clock.advance(60_000);
      await expect(one.a.locks.adopt(data)).rejects.toThrow(ClaimEndedError);
    },
    "a wait for a latch that is aborted": (one) => aborted(one, (signal) => one.a.locks.latch("l", 1).wait({ signal })),
    "a wait for a latch that opens": async (one) => {
      const waiting = watch(one.a.locks.latch("l", 1).wait());
      await one.clock.advance(10);
      await one.b.locks.latch("l", 1).countDown();
      await one.clock.advance(10);
      expect(waiting.state).toBe("done");
    },
    "a wait for a turn in a burst that is aborted": async (one) => {
      await one.b.locks.mutex("m").acquire();
      const burst = one.a.locks.mutex("m", { burst: { holds: 5, ms: 1000 } });
      await aborted(one, (signal) => burst.acquire({ signal }));
    },
  };

  test.each(Object.entries(ENDINGS))("%s", async (_, end) => {
    const { clock, open } = rig();
    const [a, b] = [await open({ maxWaiters: 1 }), await open()];
    // While anything is held here, those who wait are counted, name by name.
    const ballast = await a.locks.mutex("ballast").acquire();
    await end({ a, b, clock });
    for (const verb of Object.keys(a.hooks) as (keyof Rigged["hooks"])[]) delete a.hooks[verb];
    await clock.advance(60_000);
    expect([ballast.state, a.locks.client.claims]).toEqual(["held", 1]);
    const [first, second] = [watch(a.locks.mutex("m").acquire()), watch(a.locks.mutex("m").acquire())];
    await clock.advance(10);
    expect(first.state).not.toBe("failed");
    expect(second.error).toBeInstanceOf(TooManyWaitersError);
  });

  test("a turn in a burst, a timeout and an abort each make room for the next task", async () => {
    const { clock, open } = rig();
    const a = await open({ maxWaiters: 1 });
    const burst = a.locks.mutex("m", { burst: { holds: 10, ms: 100_000 } });
    const hold = await burst.acquire();
    const abort = new AbortController();
    const refused = async (): Promise<void> => expect(burst.acquire()).rejects.toThrow(TooManyWaitersError);
    const late = watch(burst.acquire({ waitMs: 100 }));
    await refused();
    await clock.advance(100);
    expect(late.state).toBe("failed");
    const left = watch(burst.acquire({ signal: abort.signal }));
    await refused();
    abort.abort();
    await clock.advance(0);
    expect(left.state).toBe("failed");
    const next = watch(burst.acquire());
    await refused();
    await hold.release();
    await clock.advance(0);
    expect(next.state).toBe("done");
    expect(watch(burst.acquire()).state).toBe("pending");
    await refused();
  });

  test("closing leaves nothing: a hold, a waiter, a turn and a wait for a latch", async () => {
    const { clock, open } = rig();
    const { locks } = await open();
    await locks.mutex("m").acquire();
    const burst = locks.mutex("m", { burst: { holds: 5, ms: 1000 } });
    const waits: Promise<unknown>[] = [locks.mutex("m").acquire(), burst.acquire(), locks.latch("l", 1).wait()];
    const seen = waits.map((wait) => watch(wait));
    await clock.advance(10);
    expect(locks.client.claims).toBe(4);
    const closing = locks.close();
    await clock.advance(10);
    await closing;
    expect(seen.map(({ state }) => state)).toEqual(["failed", "failed", "failed"]);
    expect(locks.client.claims).toBe(0);
  });
});

test("a listing ends after as many names as were asked for", async () => {
  const { open } = rig();
  const { locks } = await open();
  for (const name of ["a", "b", "c"]) await locks.mutex(name).acquire();
  const names: string[] = [];
  for await (const { name } of locks.inspect({ limit: 2 })) names.push(name);
  expect(names).toHaveLength(2);
  expect(() => locks.inspect({ limit: 0 })).toThrow("limit");
});
