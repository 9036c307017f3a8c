import { beforeAll, expect, test } from "vitest";
import { ClosedError, DrainingError, EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import { locksHealth } from "../../src/nest/health.js";
import { settle } from "../../src/testing/fake-clock.js";
import { never, rig, watch } from "./rig.js";

// Loaded on first use, which takes real time.
beforeAll(() => import("../../src/core/health.js"));

test("a store that gives locks is healthy, and nothing is left behind", async () => {
  const { open, store, clock } = rig();
  const { locks, calls } = await open();
  expect(await locks.health()).toEqual({ healthy: true, tookMs: 0, clockAheadMs: 0 });
  expect(await locksHealth(locks)).toEqual({ locks: { status: "up" } });
  expect(calls).toMatchObject({ claim: 2, renew: 2, release: 2 });
  expect(store.size.claims).toBe(0);
  await locks.close();
  expect(clock.pending).toBe(0);
});

const YEAR_MS = 365 * 24 * 60 * 60 * 1000;

test.each<[string, (asked: number, answered: number) => number, number | undefined]>([
  ["a moment of the request", (asked) => asked + 10, 0],
  ["the moment at which it was asked", (asked) => asked, 0],
  ["the moment at which it answered", (_, answered) => answered, 0],
  ["before it was asked", (asked) => asked - 7, -7],
  ["after it answered", (_, answered) => answered + 9, 9],
  ["a year before", (_, answered) => answered - YEAR_MS, 40 - YEAR_MS],
  ["more than a year before: a count", (_, answered) => answered - YEAR_MS - 1, undefined],
  ["a year after", (_, answered) => answered + YEAR_MS, YEAR_MS],
  ["more than a year after", (_, answered) => answered + YEAR_MS + 1, undefined],
])("how far the store's clock is ahead, by a token that says: %s", async (_, minted, clockAheadMs) => {
  const { open, clock } = rig();
  const { locks, hooks } = await open();
  hooks.claim = async (call) => {
    const asked = clock.wallMs();
    clock.stall(40);
    const answer = await call();
    return answer.kind === "granted" ? { ...answer, token: minted(asked, clock.wallMs()) * 1000 } : answer;
  };
  const health = await locks.health();
  expect(health).toEqual({ healthy: true, tookMs: 40, ...(clockAheadMs === undefined ? {} : { clockAheadMs }) });
});

test("a store that says nothing is not healthy, within the time limit of one call", async () => {
  const { open, clock } = rig();
  const { locks, hooks } = await open({ callTimeoutMs: 2000 });
  hooks.renew = () => never();
  const asked = [watch(locks.health()), watch(locks.health())];
  await settle();
  await clock.advance(1999);
  expect(asked.map(({ state }) => state)).toEqual(["pending", "pending"]);
  await clock.advance(1);
  expect(asked[0]?.value).toMatchObject({ healthy: false, tookMs: 2000 });
  expect(asked[0]?.value?.error).toBeInstanceOf(EngineUnavailableError);
  expect(asked[1]?.value, "whoever asks meanwhile gets the same answer").toBe(asked[0]?.value);
});

test("a claim of the last check that is still there is no illness", async () => {
  const { open, clock } = rig();
  const { locks, hooks } = await open({ callTimeoutMs: 2000 });
  hooks.release = () => never();
  const first = watch(locks.health());
  await settle();
  await clock.advance(2000);
  expect(first.value?.healthy).toBe(false);
  delete hooks.release;
  expect(await locks.health()).toEqual({ healthy: true, tookMs: 0, clockAheadMs: 0 });
});

test("a store that takes no writes is not healthy, although the claim of the last check is still there", async () => {
  const { open, clock } = rig();
  const { locks, hooks } = await open({ callTimeoutMs: 2000 });
  hooks.release = () => never();
  const first = watch(locks.health());
  await settle();
  await clock.advance(2000);
  expect(first.value?.healthy).toBe(false);
  delete hooks.release;
  // It says that the name is busy, and takes nothing.
  hooks.claim = async (call) => {
    const answer = await call();
    if (answer.kind === "busy") return answer;
    throw new EngineRefusedError("memory", "Make room.", new Error("full"));
  };
  expect((await locks.health()).error?.message).toBe("memory refused: full. Make room.");
});

test("a store that confirms a release and keeps the lock is not healthy", async () => {
  const { open } = rig();
  const { locks, hooks } = await open();
  hooks.release = () => Promise.resolve("released");
  expect((await locks.health()).healthy, "the claim is seen to stay at the next check only").toBe(true);
  const { healthy, error } = await locks.health();
  expect([healthy, error?.message]).toEqual([
    false,
    expect.stringContaining("a lock that was given back is still held"),
  ]);
});

test("a claim that another client of the process has there for its check is no illness, and is left alone", async () => {
  const { open, clock } = rig();
  const [one, two] = [await open({ callTimeoutMs: 2000 }), await open({ callTimeoutMs: 2000 })];
  one.hooks.release = () => never();
  const checking = watch(one.locks.health());
  await settle();
  expect(await two.locks.health()).toEqual({ healthy: true, tookMs: 0 });
  expect(two.calls.release).toBe(0);
  await clock.advance(2000);
  expect(checking.value?.healthy).toBe(false);
});

test("what the store refuses is said again at the next check, although the claim of the last one is still there", async () => {
  const { open } = rig();
  const { locks, hooks } = await open();
  hooks.renew = () => Promise.reject(new EngineRefusedError("memory", "Grant it.", new Error("no rights")));
  for (const check of ["first", "second"]) expect((await locks.health()).healthy, check).toBe(false);
});

test("what the store refuses is said, with what to do", async () => {
  const { open } = rig();
  const { locks, hooks } = await open();
  hooks.claim = () => Promise.reject(new EngineRefusedError("memory", "Grant it.", new Error("no rights")));
  const { healthy, error } = await locks.health();
  expect([healthy, error?.message]).toEqual([false, "memory refused: no rights. Grant it."]);
  expect(await locksHealth(locks, "store")).toEqual({ store: { status: "down", message: error?.message } });
});

test("locks that drain or are closed are not healthy, and the store is not asked", async () => {
  const { open } = rig();
  const { locks, calls } = await open();
  const hold = await locks.mutex("m").acquire();
  const draining = locks.drain();
  expect((await locks.health()).error).toBeInstanceOf(DrainingError);
  await hold.release();
  await draining;
  expect((await locks.health()).error).toBeInstanceOf(ClosedError);
  expect(calls.claim).toBe(1);
});
