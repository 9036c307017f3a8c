import { describe, expect, test } from "vitest";
import type { ClaimRequest, EngineEvent } from "../../src/core/engine.js";
import { ClosedError } from "../../src/core/errors.js";
import { TOMBSTONE_MS } from "../../src/core/limits.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

const owner = { client: "c", host: "h", pid: 1 };
const claimOf = (name: string, id: string, over: Partial<ClaimRequest> = {}): ClaimRequest => ({
  name,
  id,
  units: 1,
  capacity: 1,
  leaseMs: 1000,
  wait: true,
  owner,
  ...over,
});

function made() {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  return { clock, store, engine: memoryEngine(store) };
}

describe("the memory engine", () => {
  test("abandoned names and old tombstones disappear although nobody touches them", async () => {
    const { clock, store, engine } = made();
    for (let n = 0; n < 1000; n += 1) {
      await engine.claim(claimOf(`abandoned-${n}`, "id"));
      await engine.release({ name: `released-${n}`, id: "id" });
    }
    expect(store.claims.size).toEqual({ names: 1000, claims: 1000, tombstones: 1000 });
    clock.stall(TOMBSTONE_MS);
    await engine.release({ name: "one more", id: "id" });
    expect(store.claims.size).toMatchObject({ tombstones: 1001 });
    clock.stall(3 * TOMBSTONE_MS);
    for (let n = 0; n < 1200; n += 1) {
      await engine.claim(claimOf("busy", `id-${n}`));
      await engine.release({ name: "busy", id: `id-${n}`, tombstone: "never" });
    }
    expect(store.claims.size).toEqual({ names: 0, claims: 0, tombstones: 0 });
  });

  test("a release is told as a loss to the client that claimed, and never to the one that releases", async () => {
    const { store, engine } = made();
    const other = memoryEngine(store);
    const told: [who: string, event: EngineEvent][] = [];
    engine.listen((event) => told.push(["own", event]));
    other.listen((event) => told.push(["other", event]));
    await engine.claim(claimOf("m", "kept"));
    expect(await engine.release({ name: "m", id: "kept" })).toBe("released");
    await settle();
    expect(told).toEqual([]);
    await engine.claim(claimOf("m", "forced"));
    expect(await other.release({ name: "m", id: "forced" })).toBe("released");
    await settle();
    expect(told).toEqual([["own", { kind: "lost", name: "m", id: "forced" }]]);
  });

  test("whoever watches a cell is told although another one stopped watching it", async () => {
    const { engine } = made();
    const { cells } = engine;
    if (cells === null) throw new Error("the memory engine has cells");
    const told: string[] = [];
    const leave = ["one", "two"].map((who) => cells.watch("c", () => told.push(who)));
    leave[0]?.();
    await cells.write({ name: "c", expected: 0, value: "1", operation: "o1" });
    await settle();
    expect(told).toEqual(["two"]);
    leave[1]?.();
    cells.watch("c", () => told.push("three"));
    // Again, which must not take the new watcher's place.
    leave[1]?.();
    const { version } = await cells.read("c");
    await cells.write({ name: "c", expected: version, value: "2", operation: "o2" });
    await settle();
    expect(told).toEqual(["two", "three"]);
  });

  test("the same id under two names is two claims", async () => {
    const { engine } = made();
    expect((await engine.claim(claimOf("a", "id"))).kind).toBe("granted");
    expect((await engine.claim(claimOf("b", "id"))).kind).toBe("granted");
    expect(await engine.release({ name: "a", id: "id" })).toBe("released");
    expect((await engine.renew([{ name: "b", id: "id" }]))[0]?.kind).toBe("granted");
  });

  test("a token suggested by a quorum is kept, raised on renewal, and stands in the order of floors", async () => {
    const { engine } = made();
    const far = 9_000_000_000_000_000;
    const shared = { capacity: 3 };
    const one = await engine.claim(claimOf("s", "one", shared));
    const two = await engine.claim(claimOf("s", "two", { ...shared, tokenAtLeast: far }));
    expect(two).toMatchObject({ token: far });
    const [raised] = await engine.renew([{ name: "s", id: "one", tokenAtLeast: far + 5 }]);
    expect(raised).toMatchObject({ kind: "granted", token: far + 5, floor: far });
    expect(one).not.toMatchObject({ token: far + 5 });
    expect(await engine.claim(claimOf("s", "three", shared))).toMatchObject({ token: far + 6, floor: far });
  });

  test("inspect shows names by filter, holders by token, waiters by arrival, and neither dead ones nor idle names", async () => {
    const { clock, engine } = made();
    await engine.claim(claimOf("job:1", "holder", { leaseMs: 5000, data: "v" }));
    await engine.claim(claimOf("job:1", "dead waiter", { leaseMs: 100 }));
    await engine.claim(claimOf("job:1", "waiter"));
    await engine.claim(claimOf("other", "x", { leaseMs: 100 }));
    clock.stall(500);
    const seen = [];
    for await (const state of engine.inspect({ prefix: "job:" })) seen.push(state);
    expect(seen).toEqual([
      {
        name: "job:1",
        capacity: 1,
        lastToken: expect.any(Number),
        holders: [{ id: "holder", units: 1, leftMs: 4500, owner, data: "v", token: expect.any(Number), heldMs: 500 }],
        waiters: [{ id: "waiter", units: 1, leftMs: 500, owner, waitingMs: 500 }],
      },
    ]);
    const others = [];
    for await (const state of engine.inspect({ name: "other" })) others.push(state);
    expect(others).toEqual([]);
  });

  test("a cell is written once per operation, only over the version expected, and told to watchers", async () => {
    const { clock, engine } = made();
    const { cells } = engine;
    if (cells === null) throw new Error("the memory engine has cells");
    const told: unknown[] = [];
    const unwatch = cells.watch("c", (cell) => told.push(cell));
    expect(await cells.read("c")).toEqual({ version: 0, value: null });
    const write = { name: "c", operation: "op-1", expected: 0, value: "a" };
    const first = await cells.write(write);
    expect(first).toEqual({ kind: "written", cell: { version: 1, value: "a" } });
    const second = await cells.write({ name: "c", operation: "op-2", expected: 1, value: "b" });
    expect(second.kind).toBe("written");
    // The answer to op-1 was lost and it is sent again: it counts once.
    expect(await cells.write(write)).toEqual(first);
    expect(await cells.write({ ...write, operation: "op-3" })).toEqual({ kind: "conflict", cell: second.cell });
    await cells.write({ name: "c", operation: "op-4", expected: second.cell.version, value: null });
    await settle();
    unwatch();
    const back = await cells.write({ name: "c", operation: "op-5", expected: 0, value: "again" });
    expect(back.cell.version).toBeGreaterThan(second.cell.version);
    await settle();
    expect(told).toEqual([first.cell, second.cell, { version: 0, value: null }]);
    clock.stall(3 * TOMBSTONE_MS);
    expect((await cells.write(write)).kind).toBe("conflict");
  });

  test("busy and queued say when the first lease ahead ends, counted from now", async () => {
    const { clock, engine } = made();
    await clock.advance(5000);
    await engine.claim(claimOf("m", "holder", { leaseMs: 1000 }));
    await clock.advance(400);
    expect(await engine.claim(claimOf("m", "busy", { wait: false }))).toMatchObject({ kind: "busy", nextMs: 600 });
    expect(await engine.claim(claimOf("m", "first"))).toMatchObject({ kind: "queued", nextMs: 600 });
    expect(await engine.claim(claimOf("m", "second"))).toMatchObject({ kind: "queued", nextMs: null });
  });

  test("how long it is up counts from when the store was made", async () => {
    const clock = new FakeClock();
    await clock.advance(5000);
    const engine = memoryEngine(memoryStore(clock));
    await clock.advance(700);
    expect(await engine.serverInfo?.()).toEqual({ server: expect.stringMatching(/^memory .{22}$/), upMs: 700 });
  });

  test("a disposed engine refuses calls and hears nothing", async () => {
    const { store, engine } = made();
    const events: EngineEvent[] = [];
    engine.listen((event) => events.push(event));
    await engine.claim(claimOf("m", "mine"));
    await engine[Symbol.asyncDispose]();
    // Nor does whoever comes too late.
    engine.listen((event) => events.push(event));
    await memoryEngine(store).release({ name: "m", id: "mine" });
    await settle();
    expect(events).toEqual([]);
    const calls = [
      engine.claim(claimOf("m", "x")),
      engine.release({ name: "m", id: "x" }),
      engine.renew([{ name: "m", id: "x" }]),
      engine.resize({ name: "m", id: "x" }, 1),
      engine.setCapacity("m", 1, 2),
      engine.inspect()[Symbol.asyncIterator]().next(),
    ];
    for (const call of calls) await expect(call).rejects.toBeInstanceOf(ClosedError);
  });

  test("a waiter in the middle of the queue is gone at the very end of its lease, not before", async () => {
    for (const [afterMs, kind] of [
      [499, "queued"],
      [500, "gone"],
    ] as const) {
      const { clock, engine } = made();
      for (const [id, leaseMs] of [
        ["holder", 1000],
        ["first", 1000],
        ["middle", 500],
        ["last", 1000],
      ] as const)
        await engine.claim(claimOf("m", id, { leaseMs }));
      clock.stall(afterMs);
      expect(await engine.renew([{ name: "m", id: "middle", leaseMs: 500 }])).toMatchObject([{ kind }]);
    }
  });
});
