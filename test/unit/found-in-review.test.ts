import { describe, expect, test } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import { MonotonicClock, SystemClock } from "../../src/core/clock.js";
import type { CapacityAnswer, ClaimAnswer, Engine, EngineEvent } from "../../src/core/engine.js";
import { ClosedError, EngineRefusedError, InvalidOptionError, LockLostError } from "../../src/core/errors.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { settle } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { until } from "../servers/process.js";
import { never, rig, types, watch } from "./rig.js";

/** Each test is named after the defect that it once showed. */

/** A client whose pushes come from the test (and, unless deaf, from the store too). */
async function wired(base: ReturnType<typeof rig>, options: ConnectOptions = {}, deaf = false) {
  let listener: (event: EngineEvent) => void = () => {};
  const real = intercept(base.engine(), {});
  const engine: Engine = {
    ...real,
    listen: (one) => {
      listener = one;
      return deaf ? () => {} : real.listen(one);
    },
  };
  const locks = await connect(engine, { clock: base.clock, chance: new SeededChance(77), ...options });
  return { locks, push: (event: EngineEvent) => listener(event), engine };
}

describe("exclusion", () => {
  test("R1 a repeated claim answered `queued` is no heartbeat: two holders of one mutex", async () => {
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
    b.hooks.renew = () => never(); // b's signs do not arrive
    const asked = watch(b.locks.mutex("m").acquire());
    await clock.advance(7000);
    expect(b.calls.claim).toBe(2);
    await held.release(); // the push does
    await settle();
    const other = watch(c.locks.mutex("m").acquire());
    await clock.advance(3400); // the store passes it on when b's waiter lease ends, 10 s after the first sending
    expect([asked.value?.state, other.value?.state]).not.toEqual(["held", "held"]);
  });

  test("R1b the same with the default call timeout and a silent first answer", async () => {
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

  test("R2 two adoptions of one hand-over at the same time, in one client, both succeed", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const data = (await a.locks.mutex("m").acquire()).handOver();
    const [one, two] = await Promise.allSettled([b.locks.adopt(data), b.locks.adopt(data)]);
    expect([one.status, two.status]).toEqual(["fulfilled", "rejected"]);
  });

  test("R3 an id of the caller's own is not settled: a copy from before the crash comes to life after the release", async () => {
    const { open, store } = rig();
    const before = await open();
    const after = await open();
    const id = "an-id-written-down-before-asking";
    let late: (() => Promise<ClaimAnswer>) | undefined;
    before.hooks.claim = (call) => ((late = call), never());
    void before.locks
      .mutex("m")
      .acquire({ id })
      .catch(() => {}); // this process dies, its request is on the wire
    await settle();
    const hold = await after.locks.mutex("m").acquire({ id }); // started again with the id it wrote down
    await hold.release();
    expect((await late?.())?.kind).toBe("gone");
    expect(store.size.claims).toBe(0);
  });

  test("R4 a wall clock that blips: the store's elapsed time overtakes the holder's", async () => {
    let mono = 0;
    let wall = 1_000_000;
    const pass = (ms: number): void => void ((mono += ms), (wall += ms));
    const make = (): SystemClock =>
      new SystemClock(
        () => mono,
        () => wall,
      );
    // As the store's own clock does, by default: it does not look at the wall clock.
    const monotonic = Object.assign(new MonotonicClock(), { now: () => mono });
    const store = memoryStore(monotonic);
    const a = await connect(memoryEngine(store), { clock: make() });
    const b = await connect(memoryEngine(store), { clock: make() });
    const first = await a.mutex("m").acquire();
    pass(10);
    wall += 3_600_000; // an hour forward
    pass(10);
    const second = await b.mutex("m").tryAcquire(); // the store looks at its clock just now
    wall -= 3_600_000; // and back
    pass(10);
    expect([first.state, second?.state ?? "busy"]).not.toEqual(["held", "held"]);
    await a.close();
    await b.close();
  });
});

describe("losing holds without need", () => {
  test("R5 a grant that came with little time left is renewed only after its deadline", async () => {
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

  test("R6 the confirmation of a pushed grant with a long lease is never sent again when it is not answered", async () => {
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
});

describe("user code in the middle", () => {
  test("R7 leaving from inside the `queued` event leaves a dead waiter that is renewed for ever", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const controller = new AbortController();
    b.locks.on("queued", () => controller.abort(new Error("do not wait")));
    await expect(b.locks.mutex("m").acquire({ signal: controller.signal })).rejects.toThrow("do not wait");
    await clock.advance(60_000);
    const { renew } = b.calls;
    await clock.advance(60_000);
    expect(b.calls.renew - renew).toBe(0);
    await hold.release();
  });

  test("R7b and after close() it starts a timer and a renew loop on the closed client", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    b.locks.on("queued", () => void b.locks.close());
    await expect(b.locks.mutex("m").acquire()).rejects.toBeInstanceOf(ClosedError);
    await b.locks.close();
    await hold.release();
    await a.locks.close();
    expect(clock.pending).toBe(0);
    await clock.advance(60_000);
    expect(b.calls.renew).toBe(0);
  });

  test("R8 releasing from inside the `jeopardy` event leaves a timer behind", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 3_600_000 });
    a.hooks.renew = () => never();
    a.locks.on("jeopardy", () => void hold.release());
    await clock.advance(2_500_000);
    expect(hold.state).toBe("released");
    await a.locks.close();
    expect(clock.pending).toBe(0);
  });

  test("R9 asking anew from inside `lost` while close() runs gets past the closed client", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const mutex = a.locks.mutex("m");
    await mutex.acquire();
    a.locks.on("lost", () => void mutex.acquire().catch(() => {}));
    clock.stall(11_000); // nothing ran; close() is the first to look at the clock
    await a.locks.close();
    await settle();
    expect(store.size.claims).toBe(0);
    expect(clock.pending).toBe(0);
  });

  test("R10 acquire() on a client closed in the same moment resolves with a hold that is released", async () => {
    const { open } = rig();
    const a = await open();
    let ran = false;
    a.locks.on("granted", () => void a.locks.close());
    await expect(a.locks.mutex("m").using(() => void (ran = true))).rejects.toThrow();
    expect(ran).toBe(false);
  });
});

describe("closing", () => {
  test("R11 close() in the middle of a callback lets others in, and nobody tells the callback", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    let finish: () => void = () => {};
    let signal: AbortSignal | undefined;
    const run = watch(
      a.locks.mutex("m").using((hold) => {
        signal = hold.signal;
        return new Promise<void>((resolve) => (finish = resolve));
      }),
    );
    await settle();
    await a.locks.close();
    expect(await b.locks.mutex("m").tryAcquire()).not.toBeNull();
    expect.soft(signal?.aborted).toBe(true);
    finish();
    await settle();
    expect(run.state).toBe("failed"); // half of the work was done without the lock
  });

  test("R12 a withdrawal under way when close() ends starts a new timer, and tells events afterwards", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open({ callTimeoutMs: 1000 });
    const hold = await a.locks.mutex("m").acquire();
    const controller = new AbortController();
    const asked = watch(b.locks.mutex("m").acquire({ signal: controller.signal }));
    await settle();
    b.hooks.release = () => never();
    controller.abort();
    await clock.advance(400); // withdrawing; that call times out at 1000 and is sent again
    expect(asked.state).toBe("failed");
    await hold.release();
    await a.locks.close();
    const closing = watch(b.locks.close());
    await clock.advance(1000);
    expect(closing.state).toBe("done");
    const told = b.told.length;
    expect.soft(clock.pending).toBe(0);
    await clock.advance(5000);
    expect(b.told.slice(told)).toEqual([]);
  });

  test("R13 a call under way when the client closes says that the store did not answer in 5 s", async () => {
    const { clock, engine } = rig();
    const locks = await connect({ ...intercept(engine(), {}), setCapacity: () => never<CapacityAnswer>() }, { clock });
    const resizing = watch(locks.semaphore("s", 3).resize(2));
    await settle();
    await locks.close();
    await clock.advance(2000);
    expect(resizing.error).toBeInstanceOf(ClosedError);
  });
});

describe("state machine", () => {
  test("R14 a wake after maxHoldMs starts the renewal again", async () => {
    const base = rig();
    const { clock } = base;
    const { locks, push } = await wired(base);
    const hold = await locks.mutex("m").acquire({ maxHoldMs: 5000 });
    await clock.advance(5001); // last renewal at 3.3 s: it must be lost at 13.2 s
    for (let n = 0; n < 20; n += 1) {
      push({ kind: "wake" });
      await clock.advance(1000);
    }
    expect(hold.state).toBe("lost");
    await locks.close();
  });

  test("R15 a released hold turns into a lost one when the answer to its downgrade comes late", async () => {
    const { open } = rig();
    const a = await open();
    const hold = await a.locks.readWrite("rw").write.acquire();
    let arrive: () => void = () => {};
    a.hooks.resize = async (call) => {
      await new Promise<void>((resolve) => (arrive = resolve));
      return call();
    };
    const downgrading = watch(hold.downgrade());
    await settle();
    await hold.release();
    arrive();
    await settle();
    expect(downgrading.state).toBe("failed");
    expect.soft(types(a.told)).not.toContain("lost");
    expect(hold.state).toBe("released");
  });

  test("R15b a hold is lost twice, with two reasons", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.readWrite("rw").write.acquire({ renew: false, leaseMs: 1000 });
    let arrive: () => void = () => {};
    a.hooks.resize = async (call) => {
      await new Promise<void>((resolve) => (arrive = resolve));
      return call();
    };
    void hold.downgrade().catch(() => {});
    await clock.advance(1100);
    arrive();
    await settle();
    expect(types(a.told).filter((type) => type === "lost")).toHaveLength(1);
  });

  test("R16 a claim call that fails during the pause before the next round ends a wait without limit", async () => {
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
    b.hooks.renew = async (call, signs) => {
      const answers = await call();
      if (!gone) return answers;
      gone = false;
      return signs.map(() => ({ kind: "gone" }));
    };
    const asked = watch(b.locks.mutex("m").acquire({ renew: false }));
    await settle();
    await first.release(); // pushed while the claim is not answered: a fixed lease confirms, and is told gone
    await settle();
    fail(new Error("connection reset"));
    await clock.advance(5000);
    expect(asked.error).toBeUndefined();
    expect(asked.state).toBe("done");
  });

  test("R17 a wake that overtakes the queued answer is forgotten (pitfall 59)", async () => {
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

  test("R18 a wake for one name makes every hold of the client renew", async () => {
    const base = rig();
    const signs: number[] = [];
    let push: (event: EngineEvent) => void = () => {};
    const engine: Engine = {
      ...intercept(base.engine(), { renew: (call, batch) => (signs.push(batch.length), call()) }),
      listen: (one) => ((push = one), () => {}),
    };
    const locks = await connect(engine, { clock: base.clock, chance: new SeededChance(6) });
    for (let n = 0; n < 50; n += 1) await locks.mutex(`m${n}`).acquire();
    push({ kind: "wake", name: "somebody else's" });
    await settle();
    expect(signs).toEqual([]);
    await locks.close();
  });

  test("R19 maxHoldMs is lost in a hand-over: the adopted hold is renewed for ever", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire({ maxHoldMs: 5000 });
    const adopted = await b.locks.adopt(hold.handOver());
    await clock.advance(60_000);
    expect(adopted.state).toBe("lost");
  });
});

describe("re-entry", () => {
  test("R21 after one loss, work that was started inside the callback can never take the lock again", async () => {
    const { clock, open } = rig();
    const a = await open();
    const mutex = a.locks.mutex("job");
    let later: () => Promise<unknown> = async () => {};
    const run = watch(
      mutex.using(async () => {
        // What `setTimeout(tick, 1000)` inside a callback does: the next tick runs in this async context.
        const { AsyncResource } = await import("node:async_hooks");
        const here = new AsyncResource("tick");
        later = () => here.runInAsyncScope(() => mutex.using(() => "ran"));
        a.hooks.renew = () => Promise.reject(new Error("away"));
        await clock.advance(11_000);
      }),
    );
    await clock.advance(20_000);
    await settle();
    expect(run.error).toBeInstanceOf(LockLostError);
    delete a.hooks.renew;
    await clock.advance(60_000);
    await expect(later()).resolves.toBe("ran");
  });

  test("R22 re-entry ignores options: an aborted signal", async () => {
    const { open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const aborted = AbortSignal.abort(new Error("stop"));
    await expect(a.locks.mutex("m").acquire({ within: hold, signal: aborted })).rejects.toThrow("stop");
  });

  test("R22c re-entry ignores options: id and fence", async () => {
    const { open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const id = "an-id-written-down-before-asking";
    const again = await a.locks
      .mutex("m")
      .acquire({ within: hold, id, fence: "exact" })
      .catch(() => null);
    expect([null, id]).toContain(again?.id ?? null);
  });
});

describe("wrong answers to the caller", () => {
  test("R23 where a store keeps no queue, a time-out while a poll is on its way is told as a broken store", async () => {
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

  test("R24 a waiter whose store refuses for good waits for ever", async () => {
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

  test("R25 an id in use is said to have ended, with nothing held by it", async () => {
    const { open } = rig();
    const a = await open();
    const id = "an-id-written-down-before-asking";
    const hold = await a.locks.mutex("m").acquire({ id });
    const error = await a.locks
      .mutex("m")
      .acquire({ id })
      .catch((one: Error) => one);
    expect(hold.state).toBe("held");
    expect((error as Error).message).not.toMatch(/nothing is held/);
  });

  test("R26 tokenBase may push tokens out of the safe integers: two grants, one token", async () => {
    const { open } = rig();
    const tokens: number[] = [];
    const a = await open({ tokenBase: Number.MAX_SAFE_INTEGER }).catch((error: unknown) => {
      expect(error).toBeInstanceOf(InvalidOptionError);
      return null;
    });
    if (a === null) return;
    for (let n = 0; n < 4; n += 1) {
      const hold = await a.locks.mutex("m").acquire();
      tokens.push(hold.token);
      await hold.release();
    }
    expect.soft(tokens.every((token) => Number.isSafeInteger(token))).toBe(true);
    expect(new Set(tokens).size).toBe(4);
  });

  test("R27 connect(url, null) is a TypeError of JavaScript, and a listener that is no function is taken", async () => {
    const { open } = rig();
    const a = await open();
    await expect.soft(connect("memory:", null as never)).rejects.toBeInstanceOf(InvalidOptionError);
    expect(() => a.locks.on("lost", undefined as never)).toThrow();
  });

  test("R28 a label may carry terminal escapes into another program's error message", async () => {
    const { open } = rig();
    const label = "\u001b[2J\nfree: true";
    const a = await open({ label }).catch((error: unknown) => {
      expect(error).toBeInstanceOf(InvalidOptionError);
      return null;
    });
    if (a === null) return;
    const b = await open();
    await a.locks.mutex("m").acquire();
    const error = await b.locks
      .mutex("m")
      .acquire({ waitMs: 0 })
      .catch((one: Error) => one);
    expect((error as Error).message).not.toContain("\u001b");
  });

  test("R29 memory:jobs and memory://jobs are two stores, and MEMORY: has no scheme", async () => {
    const one = await connect("memory:r29");
    const two = await connect("memory://r29").catch(() => null);
    const hold = await one.mutex("m").acquire();
    expect.soft(two === null ? null : await two.mutex("m").tryAcquire()).toBeNull();
    await hold.release();
    await one.close();
    await two?.close();
    await (await connect("MEMORY:")).close();
  });
});

describe("cells", () => {
  test("R30 stopping a watch twice makes a later watcher of that name deaf", async () => {
    const { cells } = memoryEngine();
    const told: string[] = [];
    const stop = cells?.watch("c", () => void told.push("first"));
    stop?.();
    cells?.watch("c", () => void told.push("second"));
    stop?.();
    await cells?.write({ name: "c", operation: "op-1", expected: 0, value: "x" });
    await settle();
    expect(told).toEqual(["second"]);
  });

  test("R31 a write that was refused takes effect when its copy arrives later", async () => {
    const { cells } = memoryEngine();
    const first = await cells?.write({ name: "c", operation: "op-1", expected: 0, value: "x" });
    const refused = { name: "c", operation: "op-2", expected: 0, value: "y" };
    expect((await cells?.write(refused))?.kind).toBe("conflict");
    await cells?.write({ name: "c", operation: "op-3", expected: first?.cell.version ?? 0, value: null });
    expect((await cells?.write(refused))?.kind).toBe("conflict"); // "answers as it did the first time"
  });

  test("R32 a watcher is told after it stopped watching", async () => {
    const { cells } = memoryEngine();
    let told = 0;
    const stop = cells?.watch("c", () => void (told += 1));
    const writing = cells?.write({ name: "c", operation: "op-1", expected: 0, value: "x" });
    stop?.();
    await writing;
    await settle();
    expect(told).toBe(0);
  });
});

describe("clocks", () => {
  const HOUR = 3_600_000;
  const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

  test("R33 after a suspension the signal is as late as the timer was long, not one timers phase", async () => {
    let jump = 0;
    const clock = new SystemClock(
      () => performance.now(),
      () => Date.now() + jump,
    );
    const locks = await connect(memoryEngine(), { clock });
    const hold = await locks.mutex("m").acquire({ leaseMs: 60_000 });
    const { signal } = hold;
    await pause(20);
    jump = HOUR; // the machine slept; timers of Node did not count that
    await until("it is told", () => signal.aborted);
    expect(hold.state).toBe("lost"); // whoever looks knows
    await locks.close();
  });

  test("R34 after a suspension new holds are not renewed until an older, longer timer fires", async () => {
    let jump = 0;
    const clock = new SystemClock(
      () => performance.now(),
      () => Date.now() + jump,
    );
    const locks = await connect(memoryEngine(), { clock });
    const long = await locks.mutex("long").acquire({ leaseMs: HOUR });
    await pause(20);
    jump = HOUR / 2; // slept half an hour; the loop's timer is due in 20 minutes of waking time
    const short = await locks.mutex("short").acquire({ leaseMs: 3000 });
    let renewals = 0;
    locks.on("renewed", ({ name }) => (renewals += name === "short" ? 1 : 0));
    await until("it is renewed for longer than its lease", () => renewals >= 4);
    expect(long.state).not.toBe("lost");
    expect(short.state).toBe("held");
    await locks.close();
  });
});

describe("more", () => {
  test("R35 resizing a semaphore whose name is a mutex in use lets a second holder into the mutex", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const c = await open();
    const first = await a.locks.mutex("m").acquire();
    const second = watch(b.locks.mutex("m").acquire());
    await settle();
    await c.locks
      .semaphore("m", 3)
      .resize(2)
      .catch(() => {}); // a CapacityMismatchError is expected: the name has capacity 1, not 3
    await settle();
    expect([first.state, second.value?.state]).not.toEqual(["held", "held"]);
  });

  test("R36 extend() without an answer hangs past the loss and then blames the store", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ renew: false, leaseMs: 1000 });
    a.hooks.renew = () => never();
    const extending = watch(hold.extend(5000));
    await clock.advance(1100);
    expect.soft(hold.state).toBe("lost");
    expect.soft(extending.state).toBe("failed");
    await clock.advance(10_000);
    expect(extending.error).toBeInstanceOf(LockLostError);
  });

  test("R37 callTimeoutMs does not count for renew: a silent store is told to a waiter as busy (pitfall 19)", async () => {
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

  test("R38 an engine that answers renew with nothing makes a rejection escape", async () => {
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
});

describe("papercuts", () => {
  test("R39 null is refused for waitMs and silently ignored for leaseMs, renew and minRemainingMs", async () => {
    const { open } = rig();
    const a = await open();
    for (const option of ["waitMs", "leaseMs", "renew", "minRemainingMs"]) {
      const asked = a.locks.mutex(`m-${option}`).acquire({ [option]: null });
      await expect.soft(asked, option).rejects.toBeInstanceOf(InvalidOptionError);
    }
  });

  test("R40 a hand-over and an adoption tell no event: whoever counts holds by events is wrong from then on", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const adopted = await b.locks.adopt(hold.handOver());
    await adopted.release();
    expect.soft(types(a.told).length).toBeGreaterThan(1); // granted and nothing after it
    expect(types(b.told)[0]).not.toBe("released"); // released and nothing before it
  });

  test("R41 one function listening twice: stopping one stops both", async () => {
    const { open } = rig();
    const a = await open();
    let told = 0;
    const listener = (): void => void (told += 1);
    const stop = a.locks.on("granted", listener);
    a.locks.on("granted", listener);
    stop();
    await a.locks.mutex("m").acquire();
    expect(told).toBe(1);
  });

  test("R42 a promise demanded as undefined is told as a promise the store does not keep", async () => {
    const { engine } = rig();
    const require = { token: undefined } as never;
    const opened = await connect(engine(), { require }).catch((error: Error) => error);
    expect(opened instanceof Error ? opened.message : "").not.toMatch(/must be undefined/);
    if (!(opened instanceof Error)) await opened.close();
  });
});

describe("suspicions that turned out to be fine", () => {
  test("F1 an abort listener that throws does not stop the loss", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const thrown: unknown[] = [];
    const others = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", (error) => thrown.push(error));
    hold.signal.addEventListener("abort", () => {
      throw new Error("mine");
    });
    a.hooks.renew = () => never();
    await clock.advance(11_000);
    process.removeAllListeners("uncaughtException");
    for (const other of others) process.on("uncaughtException", other);
    expect(thrown).toHaveLength(1);
    expect(hold.state).toBe("lost");
    expect(types(a.told)).toContain("withdrawn");
  });

  test("F2 a grant answered in the same turn as close(), at any microtask, is given back or usable", async () => {
    for (let turns = 0; turns < 25; turns += 1) {
      const { open, store } = rig();
      const a = await open();
      a.hooks.claim = async (call) => {
        const answer = await call();
        void (async () => {
          for (let n = 0; n < turns; n += 1) await Promise.resolve();
          await a.locks.close();
        })();
        return answer;
      };
      const asked = watch(a.locks.mutex("m").acquire());
      await settle();
      await settle();
      expect(store.size.claims).toBe(0);
      expect(asked.state).not.toBe("pending");
    }
  });

  test("F3 maxHoldMs that ends during jeopardy is not overshot", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 9000, maxHoldMs: 8000 });
    a.hooks.renew = () => Promise.reject(new Error("away"));
    await clock.advance(6500);
    expect(hold.state).toBe("jeopardy");
    delete a.hooks.renew;
    await clock.advance(1000);
    expect(hold.state).toBe("held");
    const { renew } = a.calls;
    await clock.advance(7000);
    expect(a.calls.renew).toBe(renew);
    await clock.advance(3000);
    expect(hold.state).toBe("lost");
  });

  test("F4 a renewal answered gone, queued or with another token after the release changes nothing", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    let arrive: () => void = () => {};
    a.hooks.renew = async (_call, signs) => {
      await new Promise<void>((resolve) => (arrive = resolve));
      return signs.map(() => ({ kind: "gone" }));
    };
    await clock.advance(3400);
    await hold.release();
    arrive();
    await settle();
    expect(hold.state).toBe("released");
    expect(types(a.told)).not.toContain("lost");
  });
});
