import { SpanStatusCode } from "@opentelemetry/api";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { DeadlockError, EngineUnavailableError, LockLostError } from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import type { AcquireOptions } from "../../src/core/options.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import type { Locks } from "../../src/locks.js";
import { instrument } from "../../src/telemetry/index.js";
import { type Hooks, intercept } from "../../src/testing/intercept.js";
import { type InMemory, openTelemetry } from "../servers/otel.js";
import { startPostgres } from "../servers/postgres.js";
import { pause, until } from "../servers/process.js";
import { startRedis } from "../servers/redis.js";
import { rig } from "../unit/rig.js";

const sdk = await openTelemetry();
sdk.followContext();

/** Long enough for the store to say on a busy machine that somebody holds the lock: a wait that hears nothing is no time-out. */
const WAIT_MS = 1_500;

type Store = { open(): Promise<Locks> /** From now on it answers nobody. */; end(): Promise<void> };

const STORES: Record<string, () => Promise<Store>> = {
  async memory() {
    const store = memoryStore();
    const hooks: Hooks = {};
    return {
      open: () => connect(intercept(memoryEngine(store), hooks)),
      end: async () => void (hooks.claim = () => Promise.reject(new Error("away"))),
    };
  },
  async redis() {
    const { url, running } = await startRedis();
    return { open: () => connect(url), end: () => running.stop() };
  },
  async postgres() {
    const { url, running } = await startPostgres();
    return { open: () => connect(url), end: () => running.stop() };
  },
};

type Takeable = {
  acquire(options?: AcquireOptions): Promise<{ release(): Promise<void>; readonly signal: AbortSignal }>;
  tryAcquire(): Promise<object | null>;
};

/** Each recipe that is taken like a lock: what it is called in telemetry, the lock, and one that keeps it out. */
const RECIPES: Record<string, { kind: string; of: (locks: Locks) => Takeable; against?: (locks: Locks) => Takeable }> =
  {
    mutex: { kind: "mutex", of: (locks) => locks.mutex("mutex") },
    read: {
      kind: "read",
      of: (locks) => locks.readWrite("read").read,
      against: (locks) => locks.readWrite("read").write,
    },
    write: { kind: "write", of: (locks) => locks.readWrite("write").write },
    semaphore: { kind: "semaphore", of: (locks) => permits(locks, 2) },
    striped: { kind: "mutex", of: (locks) => locks.striped("striped", 8).at(3) },
    multi: { kind: "mutex", of: (locks) => locks.all([locks.mutex("multi")]) },
    burst: { kind: "mutex", of: (locks) => locks.mutex("burst", { burst: { holds: 4, ms: 1000 } }) },
  };

function permits(locks: Locks, count: number): Takeable {
  const semaphore = locks.semaphore("semaphore", 2);
  return {
    acquire: (options) => semaphore.acquire({ ...options, permits: count }),
    tryAcquire: () => semaphore.tryAcquire({ permits: count }),
  };
}

describe.each(Object.keys(STORES))("OpenTelemetry on %s", (name) => {
  let store: Store;
  let locks: Locks;
  let other: Locks;
  let memory: InMemory;

  beforeAll(async () => {
    store = await (STORES[name] as () => Promise<Store>)();
    [locks, other] = [await store.open(), await store.open()];
  });
  afterAll(async () => {
    await store.end();
    await Promise.all([locks.close(), other.close()]);
  });

  /** From here to the end of the test. */
  function observed(source: Locks | "holdfast" = locks): void {
    memory = sdk.inMemory();
    const { meter, tracer } = memory;
    const stop = instrument(source, { meter, tracer });
    onTestFinished(() => stop());
  }

  const spans = (): string[] =>
    memory
      .spans()
      .map(({ name: span, attributes }) =>
        [span.replace("holdfast ", ""), attributes["holdfast.lock.kind"], attributes["holdfast.outcome"]].join(" "),
      );

  /** The counts of one metric, by the attributes that tell them apart; without those that are zero. */
  async function counts(metric: string, ...by: string[]): Promise<Record<string, number>> {
    const points = (await memory.metrics()).find(({ descriptor }) => descriptor.name === metric)?.dataPoints ?? [];
    const sums: Record<string, number> = {};
    for (const { attributes, value } of points) {
      const key = by.map((attribute) => attributes[attribute]).join(" ");
      const count = typeof value === "number" ? value : value.count;
      if (count !== 0) sums[key] = (sums[key] ?? 0) + count;
    }
    return sums;
  }

  test.each(Object.entries(RECIPES))(
    "each outcome of %s is one span and one count",
    async (recipe, { kind, of, against = of }) => {
      observed();
      const lock = of(locks);
      await (await lock.acquire()).release();
      const blocking = await against(other).acquire();
      expect(await lock.tryAcquire()).toBeNull();
      await expect(lock.acquire({ waitMs: WAIT_MS })).rejects.toThrow("was not free");
      const abort = new AbortController();
      const aborted = lock.acquire({ signal: abort.signal });
      abort.abort(new Error("enough"));
      await expect(aborted).rejects.toThrow("enough");
      await blocking.release();
      const ends = ["granted", "busy", "timed-out", "aborted"].map((outcome) => `acquire ${kind} ${outcome}`);
      ends.push(`hold ${kind} released`);
      // The tasks of a burst share a lease.
      const losable = recipe !== "burst";
      if (losable) {
        const hold = await lock.acquire({ renew: false, leaseMs: 150 });
        while (!hold.signal.aborted) await pause(10);
        await expect(hold.release()).rejects.toThrow(LockLostError);
        ends.push(`acquire ${kind} granted`, `hold ${kind} lost`);
      }
      expect(spans().toSorted()).toEqual(ends.toSorted());
      const [engine, outcome, reason] = ["holdfast.engine", "holdfast.outcome", "holdfast.reason"];
      const prefix = `${name} ${kind}`;
      const by = ["holdfast.engine", "holdfast.lock.kind"];
      expect(await counts("holdfast.lock.wait.duration", ...by, outcome)).toEqual({
        [`${prefix} granted`]: losable ? 2 : 1,
        [`${prefix} busy`]: 1,
        [`${prefix} timed-out`]: 1,
        [`${prefix} aborted`]: 1,
      });
      expect(await counts("holdfast.lock.hold.duration", ...by, outcome)).toEqual({
        [`${prefix} released`]: 1,
        ...(losable ? { [`${prefix} lost`]: 1 } : {}),
      });
      expect(await counts("holdfast.lock.lost", ...by, reason)).toEqual(losable ? { [`${prefix} deadline`]: 1 } : {});
      expect(await counts("holdfast.lock.timeouts", ...by)).toEqual({ [prefix]: 1 });
      expect(await counts("holdfast.lock.held", engine)).toEqual({});
      expect(await counts("holdfast.lock.waiting", engine)).toEqual({});
      const failed = memory.spans().filter(({ status }) => status.code === SpanStatusCode.ERROR);
      expect(failed.map(({ attributes }) => String(attributes["error.type"])).toSorted()).toEqual(
        losable ? ["lost", "timed-out"] : ["timed-out"],
      );
    },
  );

  test("an election, a job and a barrier are told apart from mutexes", async () => {
    observed();
    const term = await locks.election("election").campaign();
    await expect(locks.election("election").campaign({ waitMs: WAIT_MS })).rejects.toThrow("was not free");
    await term.resign();
    await locks.job("job").run(async () => {
      expect(await locks.job("job").run(() => {})).toMatchObject({ ran: false });
    });
    await Promise.all([locks.barrier("barrier", 2).wait(), locks.barrier("barrier", 2).wait()]);
    expect(spans().toSorted()).toEqual(
      [
        ...["election granted", "election timed-out", "job granted", "job busy"].map((end) => `acquire ${end}`),
        ...["acquire barrier granted", "acquire barrier granted", "hold barrier released", "hold barrier released"],
        ...["hold election released", "hold job released"],
      ].toSorted(),
    );
  });

  test("what is held and what waits is counted while it is so", async () => {
    observed();
    const hold = await locks.semaphore("gauge", 3).acquire({ permits: 3 });
    const queued = new Promise((resolve) => locks.on("queued", resolve));
    const waiting = locks.semaphore("gauge", 3).acquire();
    await queued;
    expect(await counts("holdfast.lock.held", "holdfast.lock.kind")).toEqual({ semaphore: 1 });
    expect(await counts("holdfast.lock.waiting", "holdfast.lock.kind")).toEqual({ semaphore: 1 });
    await hold.release();
    await (await waiting).release();
    const span = memory.spans().find(({ attributes }) => attributes["holdfast.lock.units"] === 3);
    expect(span?.attributes).toMatchObject({
      "holdfast.lock.name": "gauge",
      "holdfast.lock.capacity": 3,
      "holdfast.engine": name,
      "holdfast.lock.token": hold.token,
    });
  });

  test("one chosen id by two clients is two holds", async () => {
    observed("holdfast");
    const id = "one-id-for-two-clients";
    const [first, second] = [
      await locks.mutex("chosen 1").acquire({ id }),
      await other.mutex("chosen 2").acquire({ id }),
    ];
    await first.release();
    expect(await counts("holdfast.lock.held", "holdfast.lock.kind")).toEqual({ mutex: 1 });
    await second.release();
    expect(await counts("holdfast.lock.held", "holdfast.lock.kind")).toEqual({});
    expect(spans().filter((span) => span === "hold mutex released")).toHaveLength(2);
  });

  test("spans belong to what asked for the lock, and a waiter points to the hold before it", async () => {
    observed();
    const queued = new Promise((resolve) => locks.on("queued", resolve));
    const [work, second] = await memory.tracer.startActiveSpan("work", async (span) => {
      const first = await locks.mutex("linked").acquire();
      const next = locks.mutex("linked").acquire();
      await queued;
      await first.release();
      span.end();
      return [span, await next] as const;
    });
    await second.release();
    const named = (span: string) => memory.spans().filter(({ name: found }) => found === span);
    const tokenOf = ({ attributes }: { attributes: object }) =>
      (attributes as Record<string, number>)["holdfast.lock.token"];
    const waiter = named("holdfast acquire").find((span) => tokenOf(span) === second.token);
    const before = named("holdfast hold").find((span) => tokenOf(span) !== second.token);
    expect(waiter?.links.map(({ context }) => context.spanId)).toEqual([before?.spanContext().spanId]);
    const parents = [...named("holdfast acquire"), ...named("holdfast hold")].map(
      (span) => span.parentSpanContext?.spanId,
    );
    expect(parents).toEqual(Array.from({ length: 4 }, () => work.spanContext().spanId));
  });

  test("a deadlock and a hand-over have their own outcome; all clients of the process are observed by the channels' name", async () => {
    observed("holdfast");
    const cross = (by: Locks, first: string, second: string): Promise<void> =>
      by.mutex(first).using(async () => {
        arrived.push(first);
        await until("both hold one", () => arrived.length === 2);
        await by.mutex(second).using({ detectDeadlockAfterMs: 100 }, () => {});
      });
    const arrived: string[] = [];
    const both = await Promise.allSettled([cross(locks, "one", "two"), cross(other, "two", "one")]);
    const reasons = both.flatMap((end) => (end.status === "rejected" ? [end.reason as unknown] : []));
    expect(reasons.length).toBeGreaterThan(0);
    for (const reason of reasons) expect(reason).toBeInstanceOf(DeadlockError);
    expect(spans().filter((span) => span === "acquire mutex deadlock")).toHaveLength(reasons.length);
    const hold: Hold = await locks.mutex("handed").acquire();
    await (await other.adopt(hold.handOver())).release();
    expect(spans().slice(-3)).toEqual(["acquire mutex granted", "hold mutex handed-over", "hold mutex released"]);
    expect(await counts("holdfast.lock.held", "holdfast.engine")).toEqual({});
  });

  test("names are no label, however many there are, unless nameOf makes them one: then a hundred at most", async () => {
    observed();
    const byPrefix = sdk.inMemory();
    const stop = instrument(locks, {
      meter: byPrefix.meter,
      tracer: null,
      nameOf: (lock) => lock.name.split(":")[0],
    });
    const take = (lock: string): Promise<void> => locks.mutex(lock).using(() => {});
    const series = async (kept: InMemory): Promise<number> =>
      (await kept.metrics()).reduce((sum, { dataPoints }) => sum + dataPoints.length, 0);
    await take("first:1");
    const before = await series(memory);
    const hostile = ['"} 1', "a".repeat(500), "\u202e", "__name__", 'x{y="z"}', "constructor", "__proto__"];
    const tenants = Array.from({ length: 120 }, (_, n) => `tenant-${n}:${n}`);
    await Promise.all([...hostile, ...tenants].map(take));
    expect(await series(memory)).toBe(before);
    stop();
    const metric = (await byPrefix.metrics()).find(
      ({ descriptor }) => descriptor.name === "holdfast.lock.wait.duration",
    );
    const labels = new Set(metric?.dataPoints.map(({ attributes }) => String(attributes["holdfast.lock.name"])));
    expect(labels.size).toBe(101);
    expect(labels).toContain("(other)");
    expect(Math.max(...[...labels].map((label) => label.length))).toBe(100);
  });

  test("a store that is away is told by every acquire, and counted", async () => {
    observed();
    const held = await locks.mutex("held").acquire({ leaseMs: 3000 });
    await store.end();
    await expect(locks.mutex("away").acquire({ waitMs: WAIT_MS })).rejects.toThrow(EngineUnavailableError);
    expect(spans().filter((span) => span.startsWith("acquire mutex unavailable"))).toHaveLength(1);
    const unavailable = await counts("holdfast.lock.unavailable", "holdfast.engine", "holdfast.reason");
    expect(unavailable[`${name} acquiring`]).toBeGreaterThan(0);
    if (name !== "memory") {
      while (!held.signal.aborted) await pause(20);
      expect(await counts("holdfast.lock.lost", "holdfast.reason")).toEqual({ deadline: 1 });
      expect((await counts("holdfast.renewal.duration", "holdfast.outcome")).unavailable).toBeGreaterThan(0);
    }
    return held.release().catch(() => {});
  });
});

test("jeopardy is counted, and stands in the span of the hold; what is observed no more is told nobody", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open();
  const memory = sdk.inMemory();
  const { meter, tracer } = memory;
  const stop = instrument(locks, { meter, tracer });
  const hold = await locks.mutex("m").acquire({ leaseMs: 3000 });
  hooks.renew = () => Promise.reject(new Error("away"));
  await clock.advance(2500);
  expect(hold.state).toBe("jeopardy");
  delete hooks.renew;
  await clock.advance(400);
  expect(hold.state).toBe("held");
  await hold.release();
  const span = memory.spans().find(({ name }) => name === "holdfast hold");
  expect(span?.events.map((event) => event.name)).toEqual(["jeopardy"]);
  const values = async (metric: string): Promise<unknown[]> =>
    (await memory.metrics())
      .filter(({ descriptor }) => descriptor.name === metric)
      .flatMap(({ dataPoints }) => dataPoints.map(({ value }) => value));
  expect(await values("holdfast.lock.jeopardy")).toEqual([1]);
  expect(await values("holdfast.lock.lost")).toEqual([0, 0, 0, 0, 0]);
  stop();
  const spans = memory.spans().length;
  await locks.mutex("m").using(() => {});
  expect(memory.spans()).toHaveLength(spans);
  expect(() => instrument({} as Locks)).toThrow("source");
});

test("how long a hold stood on a bare majority is counted when it is over", async () => {
  const away: Hooks = { claim: () => Promise.reject(new Error("away")) };
  const members = [{}, {}, away].map((hooks) => intercept(memoryEngine(), hooks));
  const locks = await connect(await quorumEngine(members));
  onTestFinished(() => locks.close());
  const memory = sdk.inMemory();
  const { meter, tracer } = memory;
  const stop = instrument(locks, { meter, tracer });
  const told = new Promise((resolve) => locks.on("bareMajority", resolve));
  const hold = await locks.mutex("bare").acquire();
  await told;
  const counted = async (): Promise<unknown[]> =>
    (await memory.metrics())
      .filter(({ descriptor }) => descriptor.name === "holdfast.lock.bare_majority.duration")
      .flatMap(({ dataPoints }) => dataPoints.map(({ value }) => (value as { count: number }).count));
  expect(await counted(), "it lasts").toEqual([]);
  await hold.release();
  expect(await counted()).toEqual([1]);
  stop();
});

test("calls that maxWaiters and maxClaims refused are counted, by kind, and their spans say so", async () => {
  const locks = await connect(memoryEngine(), { maxWaiters: 1, maxClaims: 3 });
  onTestFinished(() => locks.close());
  const memory = sdk.inMemory();
  const { meter, tracer } = memory;
  const stop = instrument(locks, { meter, tracer });
  onTestFinished(() => stop());
  const mutex = locks.mutex("m");
  const hold = await mutex.acquire();
  const waiting = mutex.acquire();
  await expect(mutex.acquire()).rejects.toMatchObject({ code: "HOLDFAST_TOO_MANY_WAITERS" });
  await expect(mutex.acquire()).rejects.toMatchObject({ code: "HOLDFAST_TOO_MANY_WAITERS" });
  const permit = await locks.semaphore("s", 5).acquire();
  await expect(locks.semaphore("s", 5).acquire()).rejects.toMatchObject({ code: "HOLDFAST_TOO_MANY_CLAIMS" });
  const points = (await memory.metrics())
    .filter(({ descriptor }) => descriptor.name === "holdfast.lock.limited")
    .flatMap(({ dataPoints }) => dataPoints.map(({ attributes, value }) => [attributes["holdfast.lock.kind"], value]));
  expect(Object.fromEntries(points)).toEqual({ mutex: 2, semaphore: 1 });
  expect(memory.spans().filter(({ attributes }) => attributes["holdfast.outcome"] === "limited")).toHaveLength(3);
  await permit.release();
  await hold.release();
  await (await waiting).release();
});
