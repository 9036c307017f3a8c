import { AsyncLocalStorage } from "node:async_hooks";
import { tracingChannel } from "node:diagnostics_channel";
import { describe, expect, onTestFinished, test } from "vitest";
import { EngineUnavailableError, LockLostError } from "../../src/core/errors.js";
import type { AcquireTrace, HoldTrace, ReleaseTrace, RenewTrace } from "../../src/core/tracing.js";
import type { FakeClock } from "../../src/testing/fake-clock.js";
import { never, rig } from "./rig.js";

const VERBS = ["acquire", "hold", "release", "renew"] as const;
type Verb = (typeof VERBS)[number];
type Traces = { acquire: AcquireTrace; hold: HoldTrace; release: ReleaseTrace; renew: RenewTrace };
type Seen = { readonly verb: Verb; readonly phase: string; readonly trace: Traces[Verb] };

/** Everything that is published until the test ends, in order. */
function traced(verbs: readonly Verb[] = VERBS) {
  const seen: Seen[] = [];
  for (const verb of verbs) {
    const phases = ["start", "end", "error", "asyncStart", "asyncEnd"] as const;
    const note = (phase: string) => (trace: unknown) => void seen.push({ verb, phase, trace: trace as Traces[Verb] });
    const subscribers = Object.fromEntries(phases.map((phase) => [phase, note(phase)])) as never;
    const channel = tracingChannel(`holdfast:${verb}`);
    channel.subscribe(subscribers);
    onTestFinished(() => {
      channel.unsubscribe(subscribers);
    });
  }
  const ended = <V extends Verb>(verb: V): Traces[V][] =>
    seen.filter((one) => one.verb === verb && one.phase === "asyncEnd").map((one) => one.trace as Traces[V]);
  return { seen, ended, phases: (verb: Verb) => seen.filter((one) => one.verb === verb).map((one) => one.phase) };
}

const pause = (clock: FakeClock, ms: number): Promise<void> => new Promise((resolve) => void clock.after(ms, resolve));

describe("tracing channels", () => {
  test("one mutex gives one trace of each kind, with who, what and how long", async () => {
    const { clock, open } = rig();
    const { locks } = await open({ label: "worker" });
    const { ended, phases } = traced();
    const hold = await locks.mutex("m").acquire();
    await clock.advance(4000);
    await hold.release();
    const lock = { name: "m", kind: "mutex", units: 1, capacity: 1, engine: "memory", owner: locks.owner };
    const { id, token } = hold;
    expect(ended("acquire")).toEqual([{ ...lock, outcome: "granted", waitedMs: 0, id, token }]);
    const [acquire] = ended("acquire");
    expect(ended("hold")).toEqual([{ ...lock, id, token, acquire, outcome: "released", heldMs: 4000 }]);
    expect(ended("release")).toEqual([{ ...lock, id, token, outcome: "released" }]);
    expect(ended("renew")).toEqual([
      { engine: "memory", owner: locks.owner, claims: 1, outcome: "answered", tookMs: 0 },
    ]);
    for (const verb of VERBS) expect(phases(verb)).toEqual(["start", "end", "asyncStart", "asyncEnd"]);
  });

  test("each way out of a wait has its outcome", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const hold = await a.locks.mutex("m").acquire();
    const { ended } = traced(["acquire"]);
    const mutex = b.locks.mutex("m");
    expect(await mutex.tryAcquire()).toBeNull();
    const late = mutex.acquire({ waitMs: 500 }).catch(() => {});
    await clock.advance(500);
    await late;
    const abort = new AbortController();
    const left = mutex.acquire({ signal: abort.signal }).catch(() => {});
    await clock.advance(100);
    abort.abort(new Error("enough"));
    await left;
    await mutex.acquire({ signal: abort.signal }).catch(() => {});
    await b.locks
      .semaphore("m", 2)
      .acquire()
      .catch(() => {});
    b.hooks.claim = () => never();
    const unanswered = mutex.acquire({ waitMs: 700 }).catch((error: unknown) => error);
    await clock.advance(700);
    expect(await unanswered).toBeInstanceOf(EngineUnavailableError);
    delete b.hooks.claim;
    const closing = mutex.acquire().catch(() => {});
    await clock.advance(10);
    const closed = b.locks.close();
    await clock.advance(10_000);
    await closed;
    await closing;
    expect(ended("acquire").map(({ outcome, waitedMs }) => [outcome, waitedMs])).toEqual([
      ["busy", 0],
      ["timed-out", 500],
      ["aborted", 100],
      ["aborted", 0],
      ["failed", 0],
      ["unavailable", 700],
      ["closed", 10],
    ]);
    await hold.release();
  });

  test("a deadlock is an outcome of the wait that gave up", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const { ended } = traced(["acquire"]);
    const cross = (locks: typeof a.locks, first: string, second: string): Promise<void> =>
      locks.mutex(first).using(async () => {
        await pause(clock, 10);
        await locks.mutex(second).using({ detectDeadlockAfterMs: 100 }, () => {});
      });
    const both = Promise.allSettled([cross(a.locks, "one", "two"), cross(b.locks, "two", "one")]);
    await clock.advance(2000);
    expect((await both).map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
    const outcomes = ended("acquire").map(({ outcome }) => String(outcome));
    expect(outcomes.toSorted()).toEqual(["deadlock", "granted", "granted", "granted"]);
  });

  test("a hold is lost, handed over or released, once, and says why", async () => {
    const { clock, open } = rig();
    const a = await open();
    const { ended } = traced(["hold", "release"]);
    const fixed = await a.locks.mutex("fixed").acquire({ leaseMs: 1000, renew: false });
    await clock.advance(1500);
    await expect(fixed.release()).rejects.toThrow(LockLostError);
    const given = await a.locks.mutex("given").acquire();
    const adopted = await a.locks.adopt(given.handOver());
    a.hooks.release = async () => "gone";
    await clock.advance(200);
    await expect(adopted.release()).rejects.toThrow(LockLostError);
    a.hooks.release = () => Promise.reject(new Error("away"));
    const unconfirmed = (await a.locks.mutex("unconfirmed").acquire({ leaseMs: 1000 })).release();
    const told = unconfirmed.catch((error: unknown) => error);
    await clock.advance(20_000);
    expect(await told).toBeInstanceOf(EngineUnavailableError);
    expect(ended("hold").map(({ name, outcome, reason, heldMs }) => [name, outcome, reason, heldMs])).toEqual([
      ["fixed", "lost", "deadline", expect.any(Number)],
      ["given", "handed-over", undefined, 0],
      ["given", "lost", "gone", 200],
      ["unconfirmed", "released", undefined, 0],
    ]);
    expect(ended("release").map(({ name, outcome }) => [name, outcome])).toEqual([
      ["given", "lost"],
      ["unconfirmed", "unavailable"],
    ]);
  });

  test("every recipe says what it is, and has one trace for each claim", async () => {
    const { open } = rig();
    const { locks } = await open();
    const { ended } = traced(["acquire", "hold"]);
    await locks.mutex("m").using(() => locks.mutex("m").using(() => {}));
    await locks.readWrite("rw").read.using(() => {});
    await locks.readWrite("rw").write.using((hold) => hold.downgrade());
    await locks.semaphore("s", 3).using({ permits: 2 }, () => {});
    await (await locks.election("e").campaign()).resign();
    await locks.job("j", { atLeastForMs: 1000 }).run(() => {});
    await locks.job("j", { atLeastForMs: 1000 }).run(() => {});
    await locks
      .striped("st", 4)
      .at(2)
      .using(() => {});
    await locks.all([locks.mutex("x"), locks.mutex("y")]).using(() => {});
    await locks.barrier("b", 1).wait();
    const all = [
      ["m", "mutex", 1],
      ["rw", "read", 1],
      ["rw", "write", 1_048_576],
      ["s", "semaphore", 2],
      ["e", "election", 1],
      ["j", "job", 1],
      ["j", "job", 1],
      ["st/2", "mutex", 1],
      ["x", "mutex", 1],
      ["y", "mutex", 1],
      ["b", "barrier", 1],
    ];
    expect(ended("acquire").map(({ name, kind, units }) => [name, kind, units])).toEqual(all);
    const byName = (traces: readonly { name: string; kind: string }[]) =>
      traces.map(({ name, kind }) => `${name} ${kind}`).toSorted();
    expect(byName(ended("hold"))).toEqual(byName(ended("acquire")));
    expect(new Set(ended("hold").map(({ outcome }) => outcome))).toEqual(new Set(["released"]));
  });

  test("a burst is traced by its turns, not by the claim that they share", async () => {
    const { clock, open } = rig();
    const { locks } = await open();
    const { ended, seen } = traced(["acquire", "hold"]);
    const mutex = locks.mutex("m", { burst: { holds: 3, ms: 1000 } });
    const tasks = Array.from({ length: 5 }, () => mutex.using(() => pause(clock, 10)));
    const busy = await mutex.tryAcquire();
    await clock.advance(1000);
    await Promise.all(tasks);
    expect(busy).toBeNull();
    expect(ended("acquire").map(({ outcome }) => outcome)).toEqual(["busy", ...tasks.map(() => "granted")]);
    expect(ended("hold").map(({ outcome, heldMs }) => [outcome, heldMs])).toEqual(tasks.map(() => ["released", 10]));
    expect(new Set(ended("hold").map(({ token }) => token)).size).toBe(5);
    // One after the other: a turn begins when the one before it has ended.
    const holds = seen.filter(({ verb, phase }) => verb === "hold" && (phase === "start" || phase === "asyncEnd"));
    expect(holds.filter(({ phase }) => phase === "start")).toHaveLength(5);
  });

  test("a waiter knows the claim before it when that is the same client's", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const { ended } = traced(["acquire"]);
    const first = await a.locks.mutex("m").acquire();
    const second = a.locks.mutex("m").acquire();
    const third = b.locks.mutex("m").acquire();
    await clock.advance(1);
    await first.release();
    await (await second).release();
    await (await third).release();
    expect(ended("acquire").map(({ ahead }) => ahead)).toEqual([undefined, first.id, undefined]);
  });

  test("a subscriber that throws changes nothing, and one that closes or waits finds what it would find anywhere", async () => {
    const { open } = rig();
    const { locks } = await open();
    const thrown: unknown[] = [];
    const others = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", (error) => void thrown.push(error));
    const mistake = (): never => {
      throw new Error("a subscriber's mistake");
    };
    const all = { start: mistake, end: mistake, asyncStart: mistake, asyncEnd: mistake, error: mistake };
    const channels = VERBS.map((verb) => tracingChannel(`holdfast:${verb}`));
    for (const channel of channels) channel.subscribe(all);
    const hold = await locks.mutex("m").acquire();
    expect(await locks.mutex("m").tryAcquire()).toBeNull();
    await hold.release();
    for (const channel of channels) channel.unsubscribe(all);
    // Node.js tells them in a turn of their own.
    await new Promise((resolve) => setImmediate(resolve));
    process.removeAllListeners("uncaughtException");
    for (const listener of others) process.on("uncaughtException", listener);
    // Two acquires, one hold, one release: four publications each.
    expect(thrown).toHaveLength(16);

    const { asyncEnd } = tracingChannel("holdfast:acquire");
    const close = (): void => void locks.close();
    asyncEnd.subscribe(close);
    const closed = await locks.mutex("m").acquire();
    asyncEnd.unsubscribe(close);
    expect(closed.state).toBe("lost");
  });

  test("nothing is built while nobody subscribes, and a trace that began without an end is not ended", async () => {
    const { open } = rig();
    const { locks } = await open();
    const early = await locks.mutex("m").acquire();
    const { ended, seen } = traced();
    await early.release();
    expect(ended("hold")).toEqual([]);
    expect(ended("release")).toHaveLength(1);
    expect(seen.filter(({ verb }) => verb === "acquire")).toEqual([]);
    const channel = tracingChannel("holdfast:hold");
    expect(channel.hasSubscribers).toBe(true);
  });

  test("what a subscriber binds to the start stands while the store is asked", async () => {
    const { open } = rig();
    const a = await open();
    const current = new AsyncLocalStorage<string>();
    const during: (string | undefined)[] = [];
    const { start } = tracingChannel("holdfast:acquire");
    start.bindStore(current, (trace) => (trace as AcquireTrace).name);
    onTestFinished(() => void start.unbindStore(current));
    a.hooks.claim = (call) => (during.push(current.getStore()), call());
    await a.locks.mutex("bound").using(() => {
      during.push(current.getStore());
    });
    expect(during).toEqual(["bound", undefined]);
  });

  test("a heartbeat that is not answered is told, with how long it took", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 500 });
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 3000 });
    const { ended } = traced(["renew"]);
    a.hooks.renew = () => never();
    await clock.advance(1600);
    expect(ended("renew")[0]).toMatchObject({ outcome: "unavailable", tookMs: 500, claims: 1 });
    expect(a.told.find(({ type }) => type === "unavailable")).toMatchObject({ engine: "memory", doing: "renewing" });
    delete a.hooks.renew;
    await clock.advance(500);
    expect(ended("renew").at(-1)).toMatchObject({ outcome: "answered" });
    await hold.release();
  });
});
