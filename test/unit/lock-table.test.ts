import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Cell } from "../../src/core/cells.js";
import type { EngineEvent, RenewRequest } from "../../src/core/engine.js";
import {
  EngineRefusedError,
  EngineUnavailableError,
  InvalidOptionError,
  UnsupportedError,
} from "../../src/core/errors.js";
import { LAYOUT_VERSIONS } from "../../src/engine-kit/layout-version.js";
import { Listeners } from "../../src/engine-kit/listeners.js";
import type { Database } from "../../src/sql/database.js";
import { LockTableEngine } from "../../src/sql/engine.js";
import { StoreErrors } from "../../src/sql/errors.js";
import { parseEvent } from "../../src/sql/events.js";
import type { LockTableTimes } from "../../src/sql/lock-table.js";
import { type Migrations, migrate, versionMadeBy } from "../../src/sql/migrate.js";
import { OwnPool, openLockTable, unreachable } from "../../src/sql/open.js";
import { checkLockTable } from "../../src/sql/options.js";
import { PoolHealth } from "../../src/sql/pool-health.js";
import { parseLockTableUrl } from "../../src/sql/url.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { claimOf, states } from "../faults/rig.js";

/** What the client's side of a lock table decides by itself: how it asks, how often, and what it makes of errors. */

const CALL_TIMEOUT_MS = 5_000;
const [REFUSED, PASSING, READ_ONLY, TRANSIENT, REPLACED, FATAL] = [1, 2, 3, 4, 5, 6];

class ServerError extends Error {
  constructor(readonly number: number) {
    super(`error ${number}`);
  }
}

const errors = new StoreErrors({
  kind: "some",
  codeOf: (cause) => (cause instanceof ServerError ? cause.number : null),
  endsConnection: (cause) => cause instanceof ServerError && cause.number === FATAL,
  refused: { [REFUSED]: "do this", [REPLACED]: "make it" },
  passing: { [PASSING]: "wait for it", [READ_ONLY]: "find the primary" },
  readOnly: [READ_ONLY],
  transient: [TRANSIENT],
  replaced: REPLACED,
});

type Parameters = Record<string, unknown>;
type Answer = (parameters: Parameters) => unknown;

/** An engine whose functions answer what the test says, call by call. */
function engineOn(
  verbs: Record<string, Answer>,
  watchCells: Database["watchCells"] = () => null,
  over: Partial<LockTableTimes> = {},
) {
  const clock = new FakeClock();
  const calls: { readonly verb: string; readonly parameters: Parameters; readonly at: number }[] = [];
  const closed: number[] = [];
  const database = {
    kind: "some",
    errors,
    client: "me",
    listens: true,
    connections: 10,
    watchCells,
    call: async (verb: string, parameters: Parameters) => {
      calls.push({ verb, parameters, at: clock.now() });
      const answer = await verbs[verb]?.(parameters);
      if (answer instanceof Error) throw answer;
      return answer;
    },
    close: async () => void closed.push(clock.now()),
  } as unknown as Database;
  const listeners = new Listeners();
  const events: EngineEvent[] = [];
  listeners.add((event) => events.push(event));
  const times = { clock, chance: new SeededChance(1), callTimeoutMs: CALL_TIMEOUT_MS, ...over };
  return { engine: new LockTableEngine(database, times, listeners), calls, clock, events, closed, listeners };
}

describe("renewals", () => {
  const names = fc.array(fc.constantFrom("a", "B", "b", "é", "\u{10000}", "\uffff"), { maxLength: 1_125, size: "max" });
  const request = (name: string, n: number): RenewRequest => ({ name, id: `id ${n}` });

  test("of a call that fails after another was answered are not known, and the others have their answers", async () => {
    const { engine, calls } = engineOn({
      renew: ({ heartbeats }) =>
        calls.length === 1 ? (heartbeats as unknown[]).map(() => ({ kind: "gone" })) : new ServerError(0),
    });
    const told = await engine.renew(Array.from({ length: 1_001 }, (_, n) => request("n", n)));
    expect([...new Set(told.slice(0, 500).map(({ kind }) => kind))]).toEqual(["gone"]);
    expect([...new Set(told.slice(500).map(({ kind }) => kind))]).toEqual(["unknown"]);
    expect([told.length, calls.length]).toEqual([1_001, 2]);
  });

  test("go by name in one order, 500 in a call at most, and each gets its own answer", async () => {
    await fc.assert(
      fc.asyncProperty(names, fc.nat(4), async (all, failsAt) => {
        const cause = new ServerError(0);
        const { engine, calls } = engineOn({
          renew: ({ heartbeats }) => {
            if (calls.length === failsAt + 1) return cause;
            return (heartbeats as string[][]).map(([, id]) => ({ kind: "gone", id }));
          },
        });
        const answers = engine.renew(all.map(request));
        const batches = Math.ceil(all.length / 500);
        if (failsAt === 0 && batches > 0) {
          await expect(answers).rejects.toThrow("error 0");
          return;
        }
        const sent = calls.flatMap(({ parameters }) => parameters["heartbeats"] as string[][]);
        const known = failsAt < batches ? failsAt * 500 : all.length;
        const expected = [...all.entries()].toSorted(([n, one], [m, two]) => (one < two ? -1 : one > two ? 1 : n - m));
        const told = await answers;
        expect(calls.map(({ parameters }) => (parameters["heartbeats"] as unknown[]).length)).toEqual(
          Array.from({ length: Math.min(batches, failsAt + 1) }, (_, n) => Math.min(500, all.length - n * 500)),
        );
        const order = calls.flatMap(({ parameters }) => (parameters["heartbeats"] as string[][]).map(([, id]) => id));
        expect(order).toEqual(expected.slice(0, order.length).map(([n]) => `id ${n}`));
        expect(sent.length).toBeLessThanOrEqual(all.length);
        for (const [at, [n]] of expected.entries()) {
          expect(told[n]).toMatchObject(at < known ? { kind: "gone", id: `id ${n}` } : { kind: "unknown" });
        }
      }),
      { numRuns: 25 },
    );
  });

  test("an answer that is left out is an outcome that is not known", async () => {
    const { engine } = engineOn({ renew: () => [{ kind: "gone" }] });
    expect(await engine.renew(["a", "b"].map(request))).toMatchObject([{ kind: "gone" }, { kind: "unknown" }]);
  });
});

describe("a call", () => {
  test("that was rolled back is made again with pauses, until its time is over", async () => {
    const { engine, calls, clock } = engineOn({ resize: () => new ServerError(TRANSIENT) });
    const over = expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toThrow("error 4");
    await clock.advance(2 * CALL_TIMEOUT_MS);
    await over;
    const pauses = calls.slice(1).map(({ at }, n) => at - (calls[n]?.at ?? 0));
    expect(Math.min(...pauses)).toBeGreaterThanOrEqual(5);
    expect(pauses.every((ms, n) => ms <= 25 * (n + 1) * 1.2)).toBe(true);
    expect(pauses.at(-1)).toBeGreaterThan(60);
    expect(calls.at(-1)?.at).toBeLessThanOrEqual(CALL_TIMEOUT_MS);
    expect(calls.at(-1)?.at).toBeGreaterThan(CALL_TIMEOUT_MS / 2);
    expect(clock.pending).toBe(0);
  });

  test("is made once more when its pause ends with its time", async () => {
    const over = { chance: { fraction: () => 0.8, id: () => "" }, callTimeoutMs: 250 };
    const { engine, calls, clock } = engineOn({ resize: () => new ServerError(TRANSIENT) }, () => null, over);
    const failed = expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toThrow("error 4");
    await clock.advance(1000);
    await failed;
    expect(calls.map(({ at }) => at)).toEqual([0, 25, 75, 150, 250]);
  });

  test("is answered when the obstacle is gone", async () => {
    let left = 3;
    const { engine, calls, clock } = engineOn({ resize: () => (left-- > 0 ? new ServerError(TRANSIENT) : "resized") });
    const answer = engine.resize({ name: "n", id: "i" }, 1);
    await clock.advance(1000);
    expect(await answer).toBe("resized");
    expect(calls).toHaveLength(4);
  });

  test("of a function that is being replaced is made again for a short while, and refused then", async () => {
    const { engine, calls, clock } = engineOn({ resize: () => new ServerError(REPLACED) });
    const over = expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toBeInstanceOf(EngineRefusedError);
    await clock.advance(CALL_TIMEOUT_MS);
    await over;
    expect(calls).toHaveLength(8);
  });

  test("that fails for any other reason is not made again", async () => {
    const { engine, calls } = engineOn({ resize: () => new ServerError(PASSING) });
    await expect(engine.resize({ name: "n", id: "i" }, 1)).rejects.toThrow("error 2. wait for it");
    expect(calls).toHaveLength(1);
  });

  test("carries times that are whole, the waiter's share, and text as JSON", async () => {
    const { engine, calls } = engineOn({
      claim: () => ({ kind: "gone" }),
      release: () => "gone",
      writeCell: () => ({}),
    });
    await engine.claim(claimOf("n", { leaseMs: 1000.2, data: "d" }));
    await engine.claim(claimOf("n"));
    await engine.release({ name: "n", id: "i", tombstone: "never" });
    await engine.release({ name: "n", id: "i" });
    await engine.release({ name: "n", id: "i", tombstone: "if-missing" });
    await engine.cells.write({ name: "n", operation: "o", expected: 0, value: null });
    await engine.cells.write({ name: "n", operation: "o", expected: 0, value: "v" });
    const sent = calls.map(({ parameters }) => parameters);
    expect(sent[0]).toMatchObject({
      leaseMs: 1001,
      data: '"d"',
      exact: false,
      atLeast: 0,
      reserve: 0,
      client: "me",
      listens: true,
    });
    expect(sent[0]?.["waiterMs"]).toBe(1001);
    expect(sent[1]).toMatchObject({ data: null });
    expect(sent.slice(2, 5).map((one) => one["tombstone"])).toEqual([false, true, true]);
    expect(sent.slice(5).map((one) => one["value"])).toEqual([null, '"v"']);
  });
});

test("each verb has its parameters by name, with the defaults in place", async () => {
  const { engine, calls } = engineOn({
    claim: () => ({ kind: "gone" }),
    release: () => "gone",
    renew: () => [{ kind: "gone" }, { kind: "gone" }],
    resize: () => "gone",
    setCapacity: () => ({ kind: "set" }),
    readCell: () => ({ version: 0, value: null }),
    writeCell: () => ({}),
  });
  const claim = {
    ...claimOf("n", { leaseMs: 30_000, tokenAtLeast: 4, reserve: 2, exact: true }),
    capacity: 5,
    units: 3,
  };
  await engine.claim(claim);
  await engine.release({ name: "n", id: "i", to: "next" });
  await engine.renew([
    { name: "a", id: "i", leaseMs: 1.2, tokenAtLeast: 5 },
    { name: "b", id: "j" },
  ]);
  await engine.resize({ name: "n", id: "i" }, 2);
  await engine.setCapacity("n", 3, 4);
  await engine.cells.read("c");
  await engine.cells.write({ name: "c", operation: "o", expected: 7, value: "v" });
  const { id, owner } = claim;
  expect(calls.map(({ verb, parameters }) => [verb, parameters])).toEqual([
    [
      "claim",
      {
        ...{ name: "n", id, units: 3, capacity: 5, wait: true, exact: true, atLeast: 4, reserve: 2 },
        ...{ client: "me", listens: true, leaseMs: 30_000, waiterMs: 10_000, owner: JSON.stringify(owner), data: null },
      },
    ],
    ["release", { name: "n", id: "i", tombstone: true, tombstoneMs: 60_000, to: "next", client: "me" }],
    [
      "renew",
      {
        heartbeats: [
          ["a", "i", 2, 5],
          ["b", "j", 0, 0],
        ],
        waiterMaxMs: 10_000,
      },
    ],
    ["resize", { name: "n", id: "i", units: 2 }],
    ["setCapacity", { name: "n", from: 3, to: 4 }],
    ["readCell", { name: "c" }],
    ["writeCell", { name: "c", operation: "o", expected: 7, value: '"v"', keepMs: 60_000 }],
  ]);
});

test("what is asked together goes in one call, for this client; what the server refuses is asked one by one", async () => {
  const { engine, calls } = engineOn({
    batch: () => new ServerError(REFUSED),
    claim: ({ name }) => (name === "b" ? new ServerError(REFUSED) : { kind: "gone" }),
  });
  const answers = await Promise.allSettled([engine.claim(claimOf("a")), engine.claim(claimOf("b"))]);
  expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
  expect(calls.map(({ verb }) => verb)).toEqual(["batch", "claim", "claim"]);
  expect(calls[0]?.parameters).toMatchObject({ tombstoneMs: 60_000, client: "me", listens: true });
  const lost = engineOn({ batch: () => new ServerError(FATAL) });
  const unknown = await Promise.allSettled([lost.engine.claim(claimOf("a")), lost.engine.claim(claimOf("b"))]);
  expect(unknown.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(lost.calls.map(({ verb }) => verb)).toEqual(["batch"]);
});

describe("opening", () => {
  const settings = (over: object) => checkLockTable({ clock: new FakeClock(), ...over });

  function opening(over: Record<string, unknown> = {}) {
    const done: string[] = [];
    const note = (what: string) => async () => void done.push(what);
    const database = {
      ...{ kind: "postgres", errors, client: "me", listens: false, connections: 1 },
      ...{ probe: note("probe"), listen: note("listen"), close: note("close") },
      migrations: { read: note("read"), run: note("migrate"), missing: [], raced: [] },
      ...over,
    };
    return { done, database: database as unknown as Database };
  }
  const current = { read: async () => ({ version: LAYOUT_VERSIONS.postgres.highest, least: 1 }) };

  test("the server is asked first, then the lock table is looked at, and then it listens, unless it is to poll", async () => {
    for (const wake of ["push", "poll"] as const) {
      const { done, database } = opening();
      Object.assign(database.migrations, current);
      await openLockTable(database, settings({ wake }), new Listeners());
      expect(done).toEqual(wake === "push" ? ["probe", "listen"] : ["probe"]);
    }
  });

  test("what fails closes everything, and is refused where the server only reads", async () => {
    for (const [code, refused] of [
      [READ_ONLY, true],
      [PASSING, false],
    ] as const) {
      const probe = () => Promise.reject(new ServerError(code));
      const { done, database } = opening({ probe });
      const error = await openLockTable(database, settings({}), new Listeners()).catch((cause: unknown) => cause);
      expect([error instanceof EngineRefusedError, done]).toEqual([refused, ["close"]]);
      expect(error).toBeInstanceOf(Error);
    }
    const { done, database } = opening();
    Object.assign(database.migrations, { read: async () => undefined });
    await expect(openLockTable(database, settings({ migrate: false }), new Listeners())).rejects.toBeInstanceOf(
      UnsupportedError,
    );
    expect(done).toEqual(["probe", "close"]);
  });
});

describe("old rows", () => {
  const granted = { kind: "gone" };

  test("are swept behind every 64th claim, page by page, one batch at a time, and waited for at the end", async () => {
    const pages: ((swept: unknown) => void)[] = [];
    const { engine, calls, closed, clock } = engineOn({
      claim: () => granted,
      sweep: () => new Promise((resolve) => pages.push(resolve)),
    });
    const sweeps = () => calls.filter(({ verb }) => verb === "sweep").map(({ parameters }) => parameters);
    const claim = async (times: number) => {
      for (let n = 0; n < times; n += 1) await engine.claim(claimOf("n"));
    };
    await claim(63);
    expect(sweeps()).toEqual([]);
    await claim(1);
    expect(sweeps()).toEqual([{ after: "", limit: 128, idleMs: 10_000 }]);
    await claim(64);
    expect(sweeps()).toHaveLength(1);
    pages[0]?.({ next: "m", rows: 1, full: false });
    await clock.advance(0);
    await claim(64);
    expect(sweeps()[1]).toEqual({ after: "m", limit: 128, idleMs: 10_000 });
    pages[1]?.({ next: null, rows: 1, full: true });
    await clock.advance(0);
    await claim(64);
    expect(sweeps()[2]).toMatchObject({ after: "" });
    const ended = engine[Symbol.asyncDispose]();
    await clock.advance(0);
    expect(closed).toEqual([]);
    pages[2]?.({ next: null, rows: 0, full: false });
    await ended;
    expect(closed).toEqual([0]);
  });

  test("that cannot be swept are told of, and claims go on", async () => {
    const { engine, events, clock } = engineOn({ claim: () => granted, sweep: () => new ServerError(PASSING) });
    for (let n = 0; n < 128; n += 1) expect(await engine.claim(claimOf("n"))).toEqual(granted);
    await clock.advance(0);
    expect(events).toHaveLength(2);
    expect(events[0]).toMatchObject({ kind: "warning", message: expect.stringContaining("old rows are still there") });
  });

  test("maintenance goes on until a batch was neither full nor the last but one, and adds up what it removed", async () => {
    const batches = [
      { next: "b", rows: 3, full: true },
      { next: null, rows: 2, full: true },
      { next: null, rows: 1, full: false },
    ];
    const { engine, calls } = engineOn({ sweep: () => batches.shift() });
    expect(await engine.maintenance()).toEqual({ rowsRemoved: 6 });
    expect(calls.map(({ parameters }) => parameters["after"])).toEqual(["", "b", "b"]);
    expect(calls[0]?.parameters["idleMs"]).toBe(0);
  });
});

test("inspect turns pages until there is none, and asks nothing about a name that the prefix leaves out", async () => {
  const pages = [
    { states: [{ name: "pa" }], next: "pa" },
    { states: [{ name: "pb" }], next: null },
  ];
  const { engine, calls } = engineOn({ inspect: () => pages.shift() });
  const found = await states(engine, { prefix: "p" });
  expect(found).toEqual([{ name: "pa" }, { name: "pb" }]);
  expect(calls.map(({ parameters }) => parameters)).toEqual([
    { name: null, prefix: "p", after: "", limit: 100 },
    { name: null, prefix: "p", after: "pa", limit: 100 },
  ]);
  expect(await states(engine, { name: "other", prefix: "p" })).toEqual([]);
  expect(calls).toHaveLength(2);
  pages.push({ states: [{ name: "pc" }], next: null as never });
  expect(await states(engine, { name: "pc", prefix: "p" })).toEqual([{ name: "pc" }]);
  expect(calls.at(-1)?.parameters).toEqual({ name: "pc", prefix: "p", after: "", limit: 100 });
});

test("after the end every verb says that the engine is closed, what was not sent is not sent, nobody is told anything, and the end is made once", async () => {
  const { engine, calls, closed, events, listeners } = engineOn({});
  expect([engine.leaseMinMs, engine.reserves]).toEqual([1, true]);
  const asked = expect(engine.claim(claimOf("n"))).rejects.toThrow(/closed/);
  await Promise.all([engine[Symbol.asyncDispose](), engine[Symbol.asyncDispose]()]);
  await asked;
  listeners.tell({ kind: "wake" });
  expect([closed, calls, events]).toEqual([[0], [], []]);
  await expect(engine.claim(claimOf("n"))).rejects.toThrow(/closed/);
  await expect(engine.cells.read("n")).rejects.toThrow(/closed/);
  await expect(engine.serverInfo()).rejects.toThrow(/closed/);
  expect(() => engine.cells.watch("n", () => {})).toThrow(/closed/);
});

describe("watched cells", () => {
  const HOUR_MS = 3_600_000;

  function watching(pushes: boolean) {
    const state = { cells: { a: 1, b: 1 } as Record<string, number>, watchers: 0, fails: false };
    let push = (_name: string | null): void => {};
    const made = engineOn(
      { readCell: ({ name }) => (state.fails ? new ServerError(PASSING) : cellOf(state.cells[String(name)] ?? 0)) },
      (changed) => {
        if (!pushes) return null;
        state.watchers += 1;
        push = changed;
        return () => void (state.watchers -= 1);
      },
    );
    const reads = async (ms: number, name?: string): Promise<number> => {
      const before = made.calls.length;
      await made.clock.advance(ms);
      const mine = made.calls.slice(before);
      return mine.filter(({ parameters }) => name === undefined || parameters["name"] === name).length;
    };
    return { ...made, state, reads, push: (name: string | null) => push(name) };
  }
  const cellOf = (version: number): Cell => ({ version, value: String(version) });

  test("are read when something is pushed about them, and rarely besides; what is read first is told, because the caller may not have seen it", async () => {
    const { engine, calls, state, clock, reads, push } = watching(true);
    const seen: number[] = [];
    const unwatch = engine.cells.watch("a", ({ version }) => seen.push(version));
    const other = engine.cells.watch("b", ({ version }) => seen.push(-version));
    expect(await reads(1999)).toBe(0);
    expect(state.watchers).toBe(1);
    expect(await reads(HOUR_MS, "a")).toBe(HOUR_MS / 2000);
    expect(seen).toEqual([1, -1]);
    state.cells = { a: 2, b: 2 };
    calls.length = 0;
    push("a");
    await reads(0);
    expect(calls.map(({ parameters }) => parameters)).toEqual([{ name: "a" }]);
    expect(seen).toEqual([1, -1, 2]);
    push(null);
    await reads(0);
    expect(calls).toHaveLength(3);
    expect(seen).toEqual([1, -1, 2, -2]);
    unwatch();
    expect(await reads(HOUR_MS, "a")).toBe(0);
    expect(state.watchers).toBe(1);
    other();
    expect(state.watchers).toBe(0);
    expect(clock.pending).toBe(0);
    expect(await reads(HOUR_MS)).toBe(0);
  });

  test("are read ten times a second where nothing is pushed", async () => {
    const { engine, state, reads } = watching(false);
    const seen: number[] = [];
    engine.cells.watch("a", ({ version }) => seen.push(version));
    expect(await reads(10_000)).toBe(100);
    state.cells["a"] = 5;
    await reads(100);
    expect(seen).toEqual([1, 5]);
    await engine[Symbol.asyncDispose]();
    expect(await reads(10_000)).toBe(0);
  });

  test("a change during a read is read after it, and once", async () => {
    const { engine, calls, state, reads, push } = watching(true);
    const seen: number[] = [];
    engine.cells.watch("a", ({ version }) => seen.push(version));
    await reads(0);
    for (const version of [2, 3, 4]) {
      state.cells["a"] = version;
      push("a");
    }
    await reads(0);
    expect(calls).toHaveLength(2);
    expect(seen.at(-1)).toBe(4);
  });

  test("a listener that left is not told; of two watches of one cell the other one is", async () => {
    const { engine, state, reads, push } = watching(true);
    const seen: string[] = [];
    const first = engine.cells.watch("a", () => seen.push("first"));
    engine.cells.watch("a", () => seen.push("second"));
    await reads(0);
    first();
    first();
    state.cells["a"] = 2;
    push("a");
    await reads(0);
    expect(seen).toEqual(["second"]);
  });

  test("who watches again after all had left is told again, by a push and by the slow poll", async () => {
    const { engine, state, clock, reads, push } = watching(true);
    engine.cells.watch("a", () => {})();
    expect([state.watchers, clock.pending]).toEqual([0, 0]);
    const seen: number[] = [];
    engine.cells.watch("a", ({ version }) => seen.push(version));
    expect(state.watchers).toBe(1);
    push("a");
    await reads(0);
    state.cells["a"] = 2;
    expect(await reads(2000)).toBe(1);
    expect(seen).toEqual([1, 2]);
  });

  test("what a read finds that was under way at the end is told to nobody, and is not read again", async () => {
    const answers: ((cell: Cell) => void)[] = [];
    let push = (_name: string | null): void => {};
    const { engine, calls, events, clock } = engineOn(
      { readCell: () => new Promise<Cell>((resolve) => answers.push(resolve)) },
      (changed) => ((push = changed), () => {}),
    );
    const seen: number[] = [];
    const unwatch = engine.cells.watch("a", ({ version }) => seen.push(version));
    engine.cells.watch("b", ({ version }) => seen.push(version));
    push("a");
    push("a");
    unwatch();
    answers[0]?.(cellOf(1));
    await clock.advance(0);
    expect(calls).toHaveLength(1);
    push("b");
    await engine[Symbol.asyncDispose]();
    answers[1]?.(cellOf(1));
    await clock.advance(0);
    expect([seen, events, calls.length, clock.pending]).toEqual([[], [], 2, 0]);
  });

  test("a cell that cannot be read is told of, and read again", async () => {
    const { engine, state, events, reads, push } = watching(true);
    const seen: number[] = [];
    const unwatch = engine.cells.watch("a", ({ version }) => seen.push(version));
    await reads(0);
    state.fails = true;
    push("a");
    await reads(0);
    expect(events).toEqual([{ kind: "warning", message: expect.stringContaining('"a" could not be read') }]);
    state.fails = false;
    state.cells["a"] = 2;
    await reads(2000);
    expect(seen).toEqual([2]);
    state.fails = true;
    push("a");
    unwatch();
    await reads(0);
    expect(events).toHaveLength(1);
  });
});

describe("the errors of a store", () => {
  test("are refused, passing, or not known; the store's own object is never passed on", () => {
    const refusal = errors.translated(new ServerError(REFUSED));
    expect(refusal).toBeInstanceOf(EngineRefusedError);
    expect(refusal).toMatchObject({ engine: "some", advice: "do this", message: "some refused: error 1. do this" });
    const readOnly = errors.translated(new ServerError(READ_ONLY), true);
    expect(readOnly).toMatchObject({ engine: "some", advice: "find the primary" });
    for (const [code, opening, refused] of [
      [PASSING, false, false],
      [PASSING, true, false],
      [READ_ONLY, false, false],
      [READ_ONLY, true, true],
      [0, true, false],
    ] as const) {
      const error = errors.translated(new ServerError(code), opening);
      expect(error instanceof EngineRefusedError, `${code} ${opening}`).toBe(refused);
      expect(error).not.toBeInstanceOf(ServerError);
    }
    expect(errors.translated(new ServerError(0)).message).toBe("error 0");
    expect(errors.translated("text").message).toBe("text");
    const own = new UnsupportedError("some", "what", "why");
    expect(errors.translated(own)).toBe(own);
    const several = new AggregateError([new Error("first"), new Error("second")], "");
    expect(errors.translated(several).message).toBe("first");
    expect(errors.translated(Object.assign(new Error(""), { code: "EPIPE" })).message).toBe("EPIPE");
    expect(errors.translated(new TypeError("")).message).toBe("TypeError");
  });

  test("leave the connection as good as before when the server refused a statement, and only then", () => {
    for (const [cause, good] of [
      [new ServerError(REFUSED), true],
      [new ServerError(0), true],
      [new ServerError(READ_ONLY), false],
      [new ServerError(FATAL), false],
      [new Error("cut"), false],
      ["text", false],
    ] as const) {
      expect(errors.isAnswer(cause), String(cause)).toBe(good);
    }
    expect(errors.hasCode(new ServerError(REFUSED), [REFUSED, PASSING])).toBe(true);
    expect(errors.hasCode(new ServerError(FATAL), [REFUSED])).toBe(false);
    expect(errors.hasCode(new Error("cut"), [REFUSED])).toBe(false);
    expect(errors.isTransient(new Error("cut"), 1)).toBe(false);
  });

  test("while a URL is opened what is no refusal means that the server could not be reached", () => {
    const refused = new EngineRefusedError("some", "advice", new Error("no"));
    expect(unreachable("some", refused)).toBe(refused);
    expect(unreachable("some", new Error("away"))).toBeInstanceOf(EngineUnavailableError);
  });
});

describe("migrating", () => {
  const [MISSING, RACED] = [10, 11];

  function migrating(read: () => { version: number; least: number } | Error, run: () => Error | undefined) {
    let runs = 0;
    const migrations: Migrations = {
      read: async () => {
        const found = read();
        if (found instanceof Error) throw found;
        return found;
      },
      missing: [MISSING],
      run: async () => {
        runs += 1;
        const failure = run();
        if (failure !== undefined) throw failure;
      },
      raced: [RACED],
    };
    return { parts: { kind: "postgres", errors, migrations } as const, runs: () => runs };
  }

  const ours = { ...LAYOUT_VERSIONS.postgres };
  beforeAll(() => void (LAYOUT_VERSIONS.postgres = { lowest: 2, highest: 3 }));
  afterAll(() => void (LAYOUT_VERSIONS.postgres = ours));

  test("runs what is missing, and nothing when everything is there or something newer", async () => {
    let version = 0;
    const made = migrating(
      () => (version === 0 ? new ServerError(MISSING) : { version, least: 3 }),
      () => void (version = 3),
    );
    await migrate(made.parts, "s", true);
    await migrate(made.parts, "s", true);
    version = 4;
    await migrate(made.parts, "s", false);
    expect(made.runs()).toBe(1);
  });

  test("a schema without a lock table gets one, also where the first version is the newest", async () => {
    LAYOUT_VERSIONS.postgres = { lowest: 1, highest: 1 };
    let version: number | null = null;
    const made = migrating(
      () => (version === null ? new ServerError(MISSING) : { version, least: 1 }),
      () => void (version = 1),
    );
    await migrate(made.parts, "s", true);
    expect(made.runs()).toBe(1);
    LAYOUT_VERSIONS.postgres = { lowest: 2, highest: 3 };
  });

  test("each migration makes the version after the last one's, for who speaks our lowest", () => {
    expect([0, 1, 2].map((at) => versionMadeBy("postgres", at))).toEqual([
      { number: 2, least: 2 },
      { number: 3, least: 2 },
      { number: 4, least: 2 },
    ]);
  });

  test("is refused where it is not allowed, and where the schema is too new", async () => {
    const old = migrating(
      () => ({ version: 2, least: 1 }),
      () => undefined,
    );
    await expect(migrate(old.parts, "s", false)).rejects.toBeInstanceOf(UnsupportedError);
    const tooNew = migrating(
      () => ({ version: 9, least: 4 }),
      () => undefined,
    );
    await expect(migrate(tooNew.parts, "s", true)).rejects.toBeInstanceOf(EngineRefusedError);
    const broken = migrating(
      () => new ServerError(REFUSED),
      () => undefined,
    );
    await expect(migrate(broken.parts, "s", true)).rejects.toThrow("error 1");
    expect([old.runs(), tooNew.runs(), broken.runs()]).toEqual([0, 0, 0]);
  });

  test("that meets somebody else's is tried again ten times, and any other failure is the caller's", async () => {
    for (const [code, runs] of [
      [RACED, 10],
      [TRANSIENT, 10],
      [REFUSED, 1],
    ] as const) {
      const made = migrating(
        () => ({ version: 0, least: 0 }),
        () => new ServerError(code),
      );
      await expect(migrate(made.parts, "s", true)).rejects.toThrow(`error ${code}`);
      expect(made.runs()).toBe(runs);
    }
  });
});

test("a pool of ours that does not end is left after two seconds, with every connection of it destroyed", async () => {
  const clock = new FakeClock();
  const destroyed: string[] = [];
  const streamOf = (name: string) => ({ destroyed: name === "old", destroy: () => destroyed.push(name) });
  const pool = new OwnPool<string>({ end: () => new Promise(() => {}) }, clock, streamOf);
  for (const name of ["old", "one", "two"]) pool.add(name);
  let ended = false;
  const end = pool.end().then(() => (ended = true));
  await clock.advance(1999);
  expect([ended, destroyed]).toEqual([false, []]);
  await clock.advance(1);
  await end;
  expect(destroyed).toEqual(["one", "two"]);
  expect(clock.pending).toBe(0);
  const quick = new OwnPool<string>({ end: async () => {} }, clock, streamOf);
  await quick.end();
  expect(clock.pending).toBe(0);
});

test("a connection without an answer since a call went unanswered is suspect", () => {
  const health = new PoolHealth();
  const [one, two] = [{}, {}];
  health.answered(one);
  expect([health.isSuspect(one), health.isSuspect(two)]).toEqual([false, false]);
  health.unanswered();
  expect([health.isSuspect(one), health.isSuspect(two)]).toEqual([true, true]);
  health.answered(two);
  expect([health.isSuspect(one), health.isSuspect(two)]).toEqual([true, false]);
  health.unanswered();
  health.answered(one);
  expect([health.isSuspect(one), health.isSuspect(two)]).toEqual([false, true]);
});

test("a message on a channel is ours only when it says so", () => {
  const granted = { kind: "granted", name: "n", id: "i", token: 1, floor: 1 };
  const lost = { kind: "lost", name: "n", id: "i" };
  for (const event of [granted, lost]) expect(parseEvent(JSON.stringify(event))).toEqual(event);
  for (const text of ["", "{}", "null", '{"kind":"wake"}', "granted"]) expect(parseEvent(text)).toBeUndefined();
});

describe("options", () => {
  test("have defaults, and limits that are told", () => {
    expect(checkLockTable({})).toMatchObject({ schema: "holdfast", migrate: true, wake: "push", callTimeoutMs: 5000 });
    for (const fine of [{ schema: `_${"a".repeat(39)}` }, { wake: "poll" }, { migrate: false }, { callTimeoutMs: 1 }]) {
      expect(checkLockTable(fine as object)).toMatchObject(fine);
    }
    for (const wrong of [
      { schema: "a".repeat(41) },
      { schema: "" },
      { schema: "1a" },
      { schema: "a b" },
      { schema: 1 },
      { schema: ["a"] },
      { wake: "maybe" },
      { migrate: "yes" },
      { callTimeoutMs: 0.5 },
      { callTimeoutMs: Infinity },
      { other: 1 },
    ]) {
      expect(() => checkLockTable(wrong as object), JSON.stringify(wrong)).toThrow(InvalidOptionError);
    }
    expect(checkLockTable({ other: 1 } as object, ["other"])).not.toHaveProperty("other");
  });

  test("are taken out of a URL, and the rest of it is left for the client library", () => {
    const taken = parseLockTableUrl("some://u:secret@h/d?schema=s&wake=poll&migrate=false&durable=true&x=1", "example");
    expect(taken.own).toEqual({ schema: "s", wake: "poll", migrate: false });
    expect(taken.account).toEqual({ username: "u", password: "secret" });
    expect(parseLockTableUrl("some://us%40er@h", "example").account).toEqual({
      username: "us@er",
      password: undefined,
    });
    expect(parseLockTableUrl("some://h", "example").account).toEqual({ username: undefined, password: undefined });
    expect(taken.takeBoolean("durable")).toBe(true);
    expect(taken.takeBoolean("durable")).toBeUndefined();
    expect(taken.take("none")).toBeUndefined();
    expect(taken.url.href).toBe("some://u:secret@h/d?x=1");
    expect(parseLockTableUrl("some://h/d?migrate=true", "example").own).toEqual({ migrate: true });
    expect(parseLockTableUrl("some://h/d", "example").own).toEqual({});
    for (const wrong of ["//u:secret@h", "some://u:secret@h/d?migrate=maybe"]) {
      const parse = (): unknown => parseLockTableUrl(wrong, "example");
      expect(parse).toThrow(InvalidOptionError);
      expect(parse).not.toThrow(/secret/);
    }
  });
});
