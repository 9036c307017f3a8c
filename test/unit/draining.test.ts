import { describe, expect, test } from "vitest";
import {
  ClosedError,
  DrainingError,
  type HoldfastError,
  InvalidOptionError,
  LockLostError,
} from "../../src/core/errors.js";
import type { Tick } from "../../src/recipes/ticks.js";
import { settle } from "../../src/testing/fake-clock.js";
import { never, rig, types, watch } from "./rig.js";

describe("draining", () => {
  test("nothing new is taken, who waits leaves, holders are asked to finish, and then it closes", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const waiting = watch(a.locks.mutex("m").acquire());
    const others = watch(b.locks.mutex("m").acquire());
    await settle();
    expect([hold.draining.aborted, a.locks.draining.aborted]).toEqual([false, false]);
    const draining = watch(a.locks.drain({ graceMs: 5000 }));
    await settle();
    expect(waiting.error).toBeInstanceOf(DrainingError);
    await expect(a.locks.mutex("n").acquire()).rejects.toThrow(/"n".*draining.*another program/);
    await expect(a.locks.mutex("n").tryAcquire()).rejects.toBeInstanceOf(DrainingError);
    expect([hold.draining.aborted, hold.signal.aborted, hold.state]).toEqual([true, false, "held"]);
    expect(hold.draining.reason).toBeInstanceOf(DrainingError);
    expect(a.locks.draining.aborted).toBe(true);
    await clock.advance(4000); // renewed meanwhile
    expect([draining.state, hold.state, others.state]).toEqual(["pending", "held", "pending"]);
    await hold.release();
    await settle();
    expect([draining.state, others.state]).toEqual(["done", "done"]);
    expect(types(a.told)).not.toContain("lost");
    expect(a.told.filter(({ type }) => type === "draining" || type === "drained")).toEqual([
      { type: "draining", graceMs: 5000 },
      { type: "drained", left: 0, tookMs: 4000 },
    ]);
    await expect(a.locks.mutex("n").acquire()).rejects.toBeInstanceOf(ClosedError);
    await others.value?.release();
    await b.locks.close();
    expect([store.size.claims, clock.pending]).toEqual([0, 0]);
  });

  test("what is still held when the time is over is told, given back and lost", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const others = watch(b.locks.mutex("m").acquire());
    const draining = watch(a.locks.drain({ graceMs: 5000 }));
    await clock.advance(4999);
    expect([draining.state, hold.state]).toEqual(["pending", "held"]);
    await clock.advance(1);
    expect([draining.state, hold.state, others.state]).toEqual(["done", "lost", "done"]);
    expect(hold.signal.reason).toMatchObject({ reason: "closed" });
    expect(types(a.told).slice(-2)).toEqual(["drained", "lost"]);
    expect(a.told.find(({ type }) => type === "drained")).toMatchObject({ left: 1, tookMs: 5000 });
    await expect(hold.release()).rejects.toBeInstanceOf(LockLostError);
  });

  test("with nothing held it closes at once, and leaves no timer", async () => {
    const { clock, open } = rig();
    const a = await open();
    await a.locks.drain();
    expect(clock.pending).toBe(0);
    expect(types(a.told)).toEqual(["draining", "drained"]);
  });

  test("a second drain is the first one, and close() ends it at once", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const [one, two] = [watch(a.locks.drain({ graceMs: 5000 })), watch(a.locks.drain({ graceMs: 1 }))];
    await clock.advance(100);
    expect([one.state, two.state, hold.state]).toEqual(["pending", "pending", "held"]);
    await a.locks.close();
    await settle();
    expect([one.state, two.state, hold.state]).toEqual(["done", "done", "lost"]);
    expect(types(a.told)).not.toContain("drained");
    await a.locks.drain();
    expect(clock.pending).toBe(0);
  });

  test("close() alone ends the signal too", async () => {
    const { open } = rig();
    const a = await open();
    const { draining } = await a.locks.mutex("m").acquire();
    await a.locks.close();
    expect([draining.aborted, a.locks.draining.aborted]).toEqual([true, true]);
    expect(draining.reason).toBeInstanceOf(ClosedError);
    await a.locks.drain();
  });

  test("a holder may take its own lock again, extend, use counters and hand over, and nothing else", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const seen: unknown[] = [];
    let go: () => void = () => {};
    const gone = new Promise<void>((resolve) => (go = resolve));
    const run = watch(
      a.locks.mutex("m").using(async (outer) => {
        const fixed = await a.locks.mutex("fixed").acquire({ renew: false });
        const given = await a.locks.mutex("given").acquire();
        await gone;
        await a.locks.mutex("m").using((inner) => void seen.push(inner.token === outer.token));
        await fixed.extend(20_000);
        seen.push(await a.locks.counter("c").add(1));
        seen.push(
          await a.locks
            .mutex("n")
            .acquire()
            .catch((error: unknown) => error instanceof DrainingError),
        );
        await (await b.locks.adopt(given.handOver())).release();
        await fixed.release();
      }),
    );
    await settle();
    const draining = watch(a.locks.drain());
    go();
    await clock.advance(1000);
    expect(run).toMatchObject({ state: "done" });
    expect(seen).toEqual([true, 1, true]);
    expect(draining.state).toBe("done");
  });

  test("who waits leaves before a holder that releases at once could let it in", async () => {
    const { open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const waiting = watch(a.locks.mutex("m").acquire());
    await settle();
    hold.draining.addEventListener("abort", () => void hold.release());
    await a.locks.drain();
    expect(waiting.error).toBeInstanceOf(DrainingError);
    expect(types(a.told)).not.toContain("lost");
    expect(types(a.told).filter((type) => type === "granted")).toHaveLength(1);
  });

  test("a claim whose answer is under way is withdrawn, and closing waits for that", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    let answer: () => void = () => {};
    a.hooks.claim = async (call) => {
      const answered = await call();
      await new Promise<void>((resolve) => (answer = resolve));
      return answered;
    };
    const asked = watch(a.locks.mutex("m").acquire());
    await settle();
    expect(store.size.claims).toBe(1);
    const draining = watch(a.locks.drain());
    await settle();
    answer();
    await settle();
    expect(asked.error).toBeInstanceOf(DrainingError);
    expect([draining.state, store.size.claims, clock.pending]).toEqual(["done", 0, 0]);
  });

  test("a release that is not answered does not keep it open for longer than one call", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 1000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.release = () => never();
    const draining = watch(a.locks.drain({ graceMs: 5000 }));
    hold.release().catch(() => {});
    await clock.advance(1100);
    expect(draining.state).toBe("done");
    expect(clock.pending).toBe(0);
  });

  test("the tasks of a burst that wait leave, and its holder finishes", async () => {
    const { open } = rig();
    const a = await open();
    const mutex = a.locks.mutex("m", { burst: { holds: 10, ms: 10_000 } });
    const hold = await mutex.acquire();
    const waiting = watch(mutex.acquire());
    await settle();
    const draining = watch(a.locks.drain());
    await settle();
    expect([waiting.error instanceof DrainingError, hold.draining.aborted, draining.state]).toEqual([
      true,
      true,
      "pending",
    ]);
    await hold.release();
    await settle();
    expect(draining.state).toBe("done");
  });

  test("who hears of a burst's grant and drains: its first task finishes, and those behind it leave", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    const hold = await b.locks.mutex("m").acquire();
    const burst = a.locks.mutex("m", { burst: { holds: 8, ms: 1000 } });
    const tasks = [1, 2, 3].map(() => watch(burst.acquire()));
    await settle();
    a.locks.on("granted", () => void a.locks.drain());
    await hold.release();
    await settle();
    expect(tasks.map(({ state }) => state)).toEqual(["done", "failed", "failed"]);
    expect(tasks.slice(1).every(({ error }) => error instanceof DrainingError)).toBe(true);
    await tasks[0]?.value?.release();
    await a.locks.drain();
    await b.locks.close();
    expect([store.size.claims, clock.pending]).toEqual([0, 0]);
  });

  test("a leader is asked to resign, and lead() ends; a candidate leaves", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const asked: boolean[] = [];
    const leading = watch(
      a.locks.election("e").lead(async (term) => {
        await new Promise((resolve) => term.draining.addEventListener("abort", resolve));
        asked.push(term.state === "held");
      }),
    );
    await settle();
    const candidate = watch(a.locks.election("e").campaign());
    const next = watch(b.locks.election("e").campaign());
    const observing = watch(a.locks.election("e").observe().next());
    await settle();
    expect(observing.state).toBe("done");
    await a.locks.drain();
    await settle();
    expect(asked).toEqual([true]);
    // Whichever came first: with its term the last hold has left.
    expect(["HOLDFAST_DRAINING", "HOLDFAST_CLOSED"]).toContain((leading.error as HoldfastError).code);
    expect(candidate.error).toBeInstanceOf(DrainingError);
    expect(next.state).toBe("done");
    await expect(a.locks.election("e").campaign()).rejects.toBeInstanceOf(ClosedError);
  });

  test("a job goes on to its end; another is refused", async () => {
    const { open } = rig();
    const a = await open();
    const run = watch(
      a.locks
        .job("j")
        .run(
          (hold) => new Promise<string>((resolve) => hold.draining.addEventListener("abort", () => resolve("made"))),
        ),
    );
    await settle();
    const draining = a.locks.drain();
    await expect(a.locks.job("k").run(() => 1)).rejects.toBeInstanceOf(DrainingError);
    await draining;
    await settle();
    expect(run.value).toMatchObject({ ran: true, value: "made" });
  });

  test("a schedule stops, its running tick is asked to finish, and the next tick is another program's", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const ran: string[] = [];
    const tick =
      (who: string) =>
      async ({ draining }: Tick) => {
        ran.push(who);
        if (who === "a") await new Promise((resolve) => draining.addEventListener("abort", resolve));
      };
    await a.locks.schedule("s", { everyMs: 60_000 }, tick("a"));
    await clock.advance(60_000);
    await b.locks.schedule("s", { everyMs: 60_000 }, tick("b"));
    await clock.advance(30_000);
    await a.locks.drain();
    await clock.advance(60_000);
    expect(ran).toEqual(["a", "b"]);
    expect(types(a.told)).not.toContain("warning");
  });

  test("a tick that waits for its turn leaves it to another program, without a warning", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const other = await b.locks.mutex("s").acquire();
    await a.locks.schedule("s", { everyMs: 60_000 }, () => {});
    await clock.advance(60_000);
    await a.locks.drain();
    expect(types(a.told)).not.toContain("warning");
    await other.release();
  });

  test("waits for latches and barriers end; a party inside of a double barrier has left", async () => {
    const { open } = rig();
    const [a, b] = [await open(), await open()];
    const latch = watch(a.locks.latch("l", 1).wait());
    const barrier = watch(a.locks.barrier("b", 2).wait());
    const [mine, theirs] = await Promise.all([
      a.locks.doubleBarrier("d", 2).enter(),
      b.locks.doubleBarrier("d", 2).enter(),
    ]);
    await settle();
    const draining = watch(a.locks.drain());
    await settle();
    expect(latch.error).toBeInstanceOf(DrainingError);
    expect(barrier.error).toBeInstanceOf(DrainingError);
    expect(draining.state).toBe("pending");
    await expect(mine.leave()).rejects.toBeInstanceOf(DrainingError);
    await settle();
    expect(draining.state).toBe("done");
    expect(await theirs.leave()).toEqual({ died: [] });
  });

  test("listeners on a hold's signal do not add up on the client's", async () => {
    const { open } = rig();
    const a = await open();
    const warned: string[] = [];
    const note = (warning: Error): void => void warned.push(warning.name);
    process.on("warning", note);
    for (let n = 0; n < 20; n += 1) {
      await a.locks.mutex("m").using((hold) => hold.draining.addEventListener("abort", () => warned.push("told late")));
      a.locks.draining.addEventListener("abort", () => {});
    }
    await a.locks.drain();
    await new Promise((resolve) => setImmediate(resolve));
    process.off("warning", note);
    expect(warned).toEqual([]);
  });

  test("a grant in the same turn as drain(), at any microtask, is usable or given back", async () => {
    for (let turns = 0; turns < 25; turns += 1) {
      const { clock, open, store } = rig();
      const a = await open();
      a.hooks.claim = async (call) => {
        const answer = await call();
        void (async () => {
          for (let n = 0; n < turns; n += 1) await Promise.resolve();
          await a.locks.drain({ graceMs: 1000 });
        })();
        return answer;
      };
      const asked = watch(a.locks.mutex("m").acquire());
      await settle();
      await settle();
      if (asked.state === "done") expect(asked.value?.state).toBe("held");
      else expect(asked.error).toBeInstanceOf(DrainingError);
      await clock.advance(1000);
      expect(store.size.claims).toBe(0);
    }
  });

  test("wrong options are refused", async () => {
    const { open } = rig();
    const a = await open();
    await expect(a.locks.drain({ graceMs: -1 })).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(a.locks.drain({ grace: 1 } as object)).rejects.toBeInstanceOf(InvalidOptionError);
    await (await a.locks.mutex("m").acquire()).release();
  });
});
