import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import {
  AcquireTimeoutError,
  ClosedError,
  EngineUnavailableError,
  LockLostError,
  MisuseError,
  UnsupportedError,
} from "../../src/core/errors.js";
import type { Grant } from "../../src/core/grant.js";
import { Hold } from "../../src/core/hold.js";
import { burstsOf } from "../../src/recipes/burst.js";
import { settle } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";
import { rig, types, watch } from "./rig.js";

const BURST = { burst: { holds: 3, ms: 1000 } } as const;

test("tasks take turns under one claim, in their order, each with the next token", async () => {
  const { open } = rig();
  const { locks, calls } = await open();
  const mutex = locks.mutex("m", BURST);
  const order: string[] = [];
  const tokens: number[] = [];
  const task = async (name: string): Promise<void> => {
    const hold = await mutex.acquire();
    order.push(name);
    tokens.push(hold.token);
    expect([hold.floor, hold.state]).toEqual([hold.token, "held"]);
    await settle();
    await hold.release();
  };
  await Promise.all(["a", "b", "c"].map(task));
  expect(order).toEqual(["a", "b", "c"]);
  const [first = 0] = tokens;
  expect(tokens).toEqual([first, first + 1, first + 2]);
  // Of the next burst's claim nothing is left; it was asked for while somebody waited.
  expect(calls).toMatchObject({ claim: 2, release: 2 });
  const [next] = [await mutex.acquire()];
  expect(next.token).toBeGreaterThan(first + 2);
  await next.release();
});

test("after so many holds whoever waits elsewhere comes first", async () => {
  const { open } = rig();
  const [a, b] = [await open(), await open()];
  const order: string[] = [];
  const holding = async (name: string, taking: Promise<Hold>): Promise<void> => {
    const hold = await taking;
    order.push(name);
    await settle();
    await hold.release();
  };
  const first = await a.locks.mutex("m", BURST).acquire();
  const other = holding("other", b.locks.mutex("m").acquire());
  await settle();
  const tasks = Array.from({ length: 6 }, (_, n) => holding(`task ${n}`, a.locks.mutex("m", BURST).acquire()));
  await settle();
  order.push("first");
  await first.release();
  await Promise.all([other, ...tasks]);
  expect(order).toEqual(["first", "task 0", "task 1", "other", "task 2", "task 3", "task 4", "task 5"]);
});

test("after so many milliseconds too", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  const first = await a.locks.mutex("m", BURST).acquire();
  const [other, next] = [watch(b.locks.mutex("m").acquire()), watch(a.locks.mutex("m", BURST).acquire())];
  await clock.advance(1000);
  await first.release();
  await settle();
  expect([other.state, next.state]).toEqual(["done", "pending"]);
  await other.value?.release();
  await settle();
  expect(next.state).toBe("done");
  await next.value?.release();
});

test("a turn that is over cannot be taken again, and the next one is nobody else's", async () => {
  const { open } = rig();
  const { locks } = await open();
  const mutex = locks.mutex("m", BURST);
  let late: Promise<unknown> = Promise.resolve();
  const outer = mutex.using(async (hold) => {
    await mutex.using(async (again) => expect(again.token).toBe(hold.token));
    // Goes on after its callback: it takes the lock like anybody else.
    late = settle().then(() => mutex.acquire());
  });
  const next = watch(mutex.acquire());
  await outer;
  await settle();
  expect(next.state).toBe("done");
  const third = watch(late);
  await settle();
  expect(third.state).toBe("pending");
  await next.value?.release();
  await late.then((hold) => (hold as Hold).release());
});

test("a lost claim ends the turn, and the others go on with the next claim", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open({ leaseMs: 1000 });
  const mutex = locks.mutex("m", { burst: { holds: 10, ms: 60_000 } });
  const first = await mutex.acquire();
  const next = watch(mutex.acquire());
  await settle();
  hooks.renew = () => Promise.reject(new Error("connection refused"));
  await clock.advance(995);
  expect(first.state).toBe("lost");
  delete hooks.renew;
  await expect(first.release()).rejects.toBeInstanceOf(LockLostError);
  await clock.advance(3000);
  expect(next.state).toBe("done");
  expect(next.value?.token).toBeGreaterThan(first.token);
  await next.value?.release();
});

test("turns are renewed for as long as they last, by whoever has the turn", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open({ leaseMs: 1000 }), await open()];
  const mutex = a.locks.mutex("m", { burst: { holds: 10, ms: 60_000 } });
  const first = await mutex.acquire();
  const next = watch(mutex.acquire());
  const other = watch(b.locks.mutex("m").acquire());
  await clock.advance(5000);
  await first.release();
  await settle();
  await clock.advance(5000);
  expect([next.value?.state, other.state]).toEqual(["held", "pending"]);
  await next.value?.release();
  await settle();
  expect(other.state).toBe("done");
  await other.value?.release();
});

test("a claim with little time left is given back instead of passed on", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open({ leaseMs: 3000 }), await open()];
  const mutex = a.locks.mutex("m", { burst: { holds: 10, ms: 60_000 } });
  const first = await mutex.acquire();
  const [other, next] = [watch(b.locks.mutex("m").acquire()), watch(mutex.acquire())];
  await settle();
  a.hooks.renew = () => new Promise(() => {});
  await clock.advance(2500);
  expect(first.state).toBe("jeopardy");
  await first.release();
  await settle();
  expect([other.state, next.state]).toEqual(["done", "pending"]);
});

test("who leaves is passed over; when nobody is left the next claim is withdrawn", async () => {
  const { clock, open, store } = rig();
  const { locks } = await open();
  const mutex = locks.mutex("m", BURST);
  const first = await mutex.acquire();
  const abort = new AbortController();
  const aborted = watch(mutex.acquire({ signal: abort.signal }));
  const late = watch(mutex.acquire({ waitMs: 100 }));
  await settle();
  expect(store.size.claims).toBe(2);
  abort.abort(new Error("enough"));
  await clock.advance(100);
  expect([aborted.error, late.error]).toEqual([new Error("enough"), expect.any(AcquireTimeoutError)]);
  expect(store.size.claims).toBe(1);
  expect(await mutex.tryAcquire()).toBeNull();
  await first.release();
  expect(store.size.claims).toBe(0);
  const hold = await mutex.tryAcquire();
  expect(hold?.state).toBe("held");
  await hold?.release();
});

test("a store that does not answer is an error, and not a busy lock", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open({ callTimeoutMs: 100 });
  hooks.claim = () => Promise.reject(new Error("connection refused"));
  const mutex = locks.mutex("m", BURST);
  const [waiting, trying] = [watch(mutex.acquire({ waitMs: 500 })), watch(mutex.tryAcquire({ waitMs: 500 }))];
  await clock.advance(600);
  expect([waiting.error, trying.error]).toEqual([
    expect.any(EngineUnavailableError),
    expect.any(EngineUnavailableError),
  ]);
});

test("closing ends the turn and every wait", async () => {
  const { open, store } = rig();
  const { locks } = await open();
  const mutex = locks.mutex("m", BURST);
  const first = await mutex.acquire();
  const next = watch(mutex.acquire());
  await settle();
  await locks.close();
  expect(first.state).toBe("lost");
  expect(next.error).toBeInstanceOf(ClosedError);
  expect(store.size.claims).toBe(0);
});

test("events tell of every turn, with its token, how long it was waited for and held", async () => {
  const { clock, open } = rig();
  const { locks, told } = await open();
  await clock.advance(1000);
  const mutex = locks.mutex("m", BURST);
  const [one, two] = [mutex.acquire(), mutex.acquire()];
  await one;
  await clock.advance(250);
  await (await one).release();
  await two;
  await clock.advance(100);
  await (await two).release();
  const turns = told.filter(({ type }) => type === "granted" || type === "released");
  const [first, second] = [(await one).token, (await two).token];
  expect(types(turns)).toEqual(["granted", "released", "granted", "released"]);
  expect(turns).toMatchObject([
    { token: first, waitedMs: 0 },
    { token: first, heldMs: 250 },
    { token: second, waitedMs: 250 },
    { token: second, heldMs: 100 },
  ]);
});

test("what a burst cannot do is said at once", async () => {
  const { open, engine } = rig();
  const { locks } = await open();
  expect(() => locks.mutex("m", { burst: { holds: 0, ms: 10 } })).toThrow(/burst\.holds/);
  expect(() => locks.mutex("m", { burst: { holds: 2, ms: 0 } })).toThrow(/burst\.ms/);
  expect(() => locks.mutex("m", { burts: {} } as never)).toThrow(/burts/);
  const mutex = locks.mutex("m", BURST);
  await expect(mutex.acquire({ leaseMs: 5000 })).rejects.toThrow(/leaseMs.*share one claim/);
  const hold = await mutex.acquire();
  expect(() => hold.handOver()).toThrow(MisuseError);
  await hold.release();
  const poor = await connect({ ...intercept(engine(), {}), reserves: false });
  expect(() => poor.mutex("m", BURST)).toThrow(UnsupportedError);
  await poor.close();
});

test("what nobody uses is forgotten, two at a time, and a burst in use goes on", async () => {
  const { open } = rig();
  const { locks, calls } = await open();
  const names = ["a", "b", "c", "d", "e"];
  const holds = await Promise.all(names.map((name) => locks.mutex(name, BURST).acquire()));
  const bursts = burstsOf((Hold.grantOf(holds[0]) as Grant).client);
  const use = (name: string): Promise<void> => locks.mutex(name, BURST).using(() => {});
  await use("f");
  expect(bursts.size).toBe(6);
  const before = calls.claim;
  const second = locks.mutex("a", BURST).acquire();
  await holds[0]?.release();
  await (await second).release();
  expect(calls.claim - before, "under the first one's claim, beside one that was asked for in case").toBe(1);
  for (const hold of holds.slice(1)) await hold.release();
  await use("g");
  expect(bursts.size, "two of the six, and the new one").toBe(5);
  for (let n = 0; n < 100; n += 1) await use(`other ${n}`);
  expect(bursts.size).toBeLessThanOrEqual(2);
});
