import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import {
  AcquireTimeoutError,
  EngineUnavailableError,
  InvalidOptionError,
  LockLostError,
  MisuseError,
  UnsupportedError,
} from "../../src/core/errors.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { intercept } from "../../src/testing/intercept.js";
import { never, rig, watch } from "./rig.js";

test("several locks of any kind are one hold with all tokens", async () => {
  const { open } = rig();
  const { locks } = await open();
  const all = locks.all([locks.semaphore("s", 2), locks.mutex("a"), locks.readWrite("b").write]);
  const hold = await all.acquire();
  expect(hold.holds.map(({ name }) => name)).toEqual(["s", "a", "b"]);
  expect(hold.tokens.get("b")).toBe(hold.holds[2]?.token);
  expect(hold.state).toBe("held");
  expect(hold.remainingMs).toBeGreaterThan(9000);
  hold.throwIfLost();
  expect(await locks.mutex("a").tryAcquire()).toBe(null);
  expect(await all.tryAcquire()).toBe(null);
  await hold.release();
  await hold.release();
  expect(hold.state).toBe("released");
  expect(() => hold.throwIfLost()).toThrow(/not held/);
  expect(await all.using((inner) => inner.tokens.size)).toBe(3);
  expect(await locks.mutex("a").isHeld()).toBe(false);
});

test("they are taken by the bytes of their names, whatever the list says, and given back in reverse", async () => {
  const { open } = rig();
  const { locks, told, hooks } = await open();
  const released: string[] = [];
  hooks.release = (call, { name }) => (released.push(name), call());
  const names = ["ä", "b", "Z", "a", "10", "9", "ä/1"];
  const hold = await locks.all(names.map((name) => locks.mutex(name))).acquire();
  const granted = told.flatMap((event) => (event.type === "granted" ? [event.name] : []));
  expect(granted).toEqual(["10", "9", "Z", "a", "b", "ä", "ä/1"]);
  await hold.release();
  expect(released).toEqual(granted.toReversed());
});

test("two programs that name the same locks in another order never wait for each other", async () => {
  const { clock, open } = rig();
  const clients = [await open(), await open(), await open()];
  const orders = [
    ["a", "b", "c"],
    ["c", "b", "a"],
    ["b", "c", "a"],
  ];
  let done = 0;
  const work = clients.map(async ({ locks }, n) => {
    for (let round = 0; round < 20; round += 1) {
      await locks.all((orders[n] ?? []).map((name) => locks.mutex(name))).using(() => void (done += 1));
    }
  });
  const all = watch(Promise.all(work));
  await clock.advance(60_000);
  expect(all.state).toBe("done");
  expect(done).toBe(60);
});

test("pitfall 48: an error half way stops, and what was taken is given back in reverse", async () => {
  const { clock, store, open } = rig();
  const { locks, hooks } = await open();
  const claimed: string[] = [];
  const released: string[] = [];
  hooks.claim = (call, claim) => {
    claimed.push(claim.name);
    if (claim.name === "c") throw new Error("the store is on fire");
    return call();
  };
  hooks.release = (call, { name }) => (released.push(name), call());
  const all = locks.all(["d", "c", "b", "a"].map((name) => locks.mutex(name)));
  const failed = watch(all.acquire({ waitMs: 300 }));
  await clock.advance(300);
  expect(failed.error).toBeInstanceOf(EngineUnavailableError);
  expect(new Set(claimed)).toEqual(new Set(["a", "b", "c"]));
  expect(released.filter((name) => name !== "c")).toEqual(["b", "a"]);
  await clock.advance(60_000);
  expect(store.size.claims).toBe(0);
});

test("pitfall 48: one deadline for all: the second lock gets what the first one left", async () => {
  const { clock, store, open } = rig();
  const { locks } = await open();
  const other = (await open()).locks;
  const [a, b] = [await other.mutex("a").acquire(), await other.mutex("b").acquire()];
  const waiting = watch(locks.all([locks.mutex("a"), locks.mutex("b")]).acquire({ waitMs: 1000 }));
  await clock.advance(700);
  await a.release();
  await clock.advance(299);
  expect(waiting.state).toBe("pending");
  await clock.advance(2);
  expect(waiting.error).toBeInstanceOf(AcquireTimeoutError);
  expect((waiting.error as AcquireTimeoutError).lock).toBe("b");
  expect(await other.mutex("a").isHeld()).toBe(false);
  await b.release();
  await clock.advance(100);
  expect(store.size.claims).toBe(0);
});

test("an abort half way gives back what was taken", async () => {
  const { clock, store, open } = rig();
  const { locks } = await open();
  const b = await (await open()).locks.mutex("b").acquire();
  const controller = new AbortController();
  const waiting = watch(locks.all([locks.mutex("a"), locks.mutex("b")]).acquire({ signal: controller.signal }));
  await clock.advance(100);
  controller.abort(new Error("enough"));
  await clock.advance(100);
  expect(waiting.error).toEqual(new Error("enough"));
  await b.release();
  expect(store.size.claims).toBe(0);
});

test("the hold is lost when any lock is lost, also while the others were still waited for", async () => {
  const { clock, open, engine } = rig();
  const { locks } = await open();
  const hold = await locks.all([locks.mutex("a"), locks.mutex("b")]).acquire();
  const { signal } = hold;
  await engine().release({ name: "b", id: hold.holds[1]?.id ?? "" });
  await clock.advance(1);
  expect(signal.reason).toBeInstanceOf(LockLostError);
  expect(hold.signal.aborted).toBe(true);
  expect(hold.state).toBe("lost");
  expect(() => hold.throwIfLost()).toThrow(LockLostError);
  await expect(hold.release()).rejects.toBeInstanceOf(LockLostError);
  expect(await locks.mutex("a").isHeld()).toBe(false);

  const c = await (await open()).locks.mutex("d").acquire();
  const waiting = watch(locks.all([locks.mutex("c"), locks.mutex("d")]).acquire({ leaseMs: 500, renew: false }));
  await clock.advance(1000);
  await c.release();
  await clock.advance(1000);
  expect(waiting.error).toBeInstanceOf(LockLostError);
  expect(await locks.mutex("d").isHeld()).toBe(false);
});

test("a signal that is first asked for after the release tells what became of the hold, and no more", async () => {
  const { clock, open, engine } = rig();
  const { locks } = await open();
  const lost = await locks.all([locks.mutex("a"), locks.mutex("b")]).acquire();
  await engine().release({ name: "b", id: lost.holds[1]?.id ?? "" });
  await clock.advance(10_000);
  await expect(lost.release()).rejects.toBeInstanceOf(LockLostError);
  expect(lost.signal.reason).toBeInstanceOf(LockLostError);

  // Taken again inside of a hold it shares that one's signal, but what comes after its release is not its loss.
  await locks
    .mutex("outer")
    .using(async (outer) => {
      const inner = await locks.all([locks.mutex("outer"), locks.mutex("c")]).acquire();
      await inner.release();
      const { signal } = inner;
      await engine().release({ name: "outer", id: outer.id });
      await clock.advance(10_000);
      expect(outer.signal.aborted).toBe(true);
      expect(signal.aborted).toBe(false);
    })
    .catch((error: unknown) => expect(error).toBeInstanceOf(LockLostError));
});

test("a callback that fails gives everything back, and inside it every lock can be taken again", async () => {
  const { open } = rig();
  const { locks, calls } = await open();
  const [a, b] = [locks.mutex("a"), locks.mutex("b")];
  const failed = locks.all([a, b]).using(async () => {
    const before = calls.claim;
    await a.using(() => b.using(() => {}));
    expect(calls.claim).toBe(before);
    throw new Error("no");
  });
  await expect(failed).rejects.toThrow("no");
  expect(await a.isHeld()).toBe(false);
});

test("locks of several stores are ordered by what the stores say of themselves", async () => {
  const stores = [memoryStore(), memoryStore()];
  const open = (n: number) => connect(memoryEngine(stores[n]));
  const [one, two, oneAgain] = [await open(0), await open(1), await open(0)];
  const order = async (list: Parameters<typeof one.all>[0]): Promise<number[]> => {
    const taken: number[] = [];
    const off = [one, two, oneAgain].map((locks) => locks.on("granted", () => taken.push(locks === two ? 1 : 0)));
    await (await one.all(list).acquire()).release();
    for (const stop of off) stop();
    return taken;
  };
  const first = await order([one.mutex("a"), two.mutex("a")]);
  expect(await order([two.mutex("a"), oneAgain.mutex("a")])).toEqual(first);
  expect(await order([two.mutex("z"), one.mutex("b"), two.mutex("y")])).toHaveLength(3);
  const clash = await one.all([one.mutex("a"), two.mutex("a")]).acquire();
  expect(() => clash.tokens).toThrow(MisuseError);
  expect(clash.holds).toHaveLength(2);
  await clash.release();
  // The same store through two clients: only the store itself can know.
  await expect(one.all([one.mutex("a"), oneAgain.mutex("a")]).acquire()).rejects.toBeInstanceOf(MisuseError);
  const bare = await connect({ ...intercept(memoryEngine(), {}), cells: null });
  await expect(one.all([one.mutex("a"), bare.mutex("a")]).acquire()).rejects.toBeInstanceOf(UnsupportedError);
  for (const locks of [one, two, oneAgain, bare]) await locks.close();
});

test("a store that does not say who it is holds nobody up for longer than waitMs", async () => {
  const { clock, open } = rig();
  const { locks } = await open();
  const hooks = { cellRead: () => never<never>() };
  const other = await connect(intercept(memoryEngine(memoryStore(clock)), hooks), { clock });
  const waiting = watch(locks.all([locks.mutex("a"), other.mutex("a")]).acquire({ waitMs: 300 }));
  await clock.advance(301);
  expect(waiting.state).toBe("failed");
  await other.close();
});

test("what cannot be a multi-lock is refused at once", async () => {
  const { open } = rig();
  const { locks } = await open();
  expect(() => locks.all([])).toThrow(InvalidOptionError);
  expect(() => locks.all([locks.readWrite("a") as never])).toThrow(InvalidOptionError);
  expect(() => locks.all([locks.mutex("a"), locks.readWrite("b") as never])).toThrow(InvalidOptionError);
  expect(() => locks.all([locks.mutex("a"), locks.mutex("a")])).toThrow(MisuseError);
  expect(() => locks.all([locks.readWrite("a").read, locks.readWrite("a").write])).toThrow(/stands twice/);
  const both = locks.all([locks.mutex("a"), locks.mutex("b")]);
  await expect(both.acquire({ id: "x".repeat(22) } as never)).rejects.toBeInstanceOf(InvalidOptionError);
  await expect(both.acquire({ waitMs: -1 })).rejects.toBeInstanceOf(InvalidOptionError);
});

test("one deadline for the identities of all stores, too", async () => {
  const { clock, open } = rig();
  const { locks } = await open();
  const slow = async (hooks: object) =>
    connect(intercept(memoryEngine(memoryStore(clock)), hooks), { clock, callTimeoutMs: 1000 });
  const late = async <T>(call: () => Promise<T>): Promise<T> => {
    await new Promise<void>((resolve) => clock.after(200, resolve));
    return call();
  };
  const others = [await slow({ cellRead: late }), await slow({ cellRead: () => never<never>() })];
  const list = [...others.map((other) => other.mutex("a")), locks.mutex("a")];
  const waiting = watch(locks.all(list).acquire({ waitMs: 300 }));
  await clock.advance(301);
  expect(waiting.state).toBe("failed");
  for (const other of others) await other.close();
});

test("what is left of several is what is left of the shortest", async () => {
  const { clock, open } = rig();
  const [{ locks }, other] = [await open(), await open()];
  const blocking = await other.locks.mutex("b").acquire();
  const taken = watch(locks.all([locks.mutex("b"), locks.mutex("a")]).acquire({ renew: false, leaseMs: 10_000 }));
  await clock.advance(3000);
  await blocking.release();
  await clock.advance(10);
  const [later, first] = taken.value?.holds ?? [];
  expect(first?.remainingMs).toBeLessThan(later?.remainingMs ?? 0);
  expect(taken.value?.remainingMs).toBe(first?.remainingMs);
  await taken.value?.release();
});

test("what could not be given back cleanly after one of them failed is told, and the failure is the caller's", async () => {
  const { clock, open } = rig();
  const [a, other] = [await open(), await open()];
  const blocking = await other.locks.mutex("b").acquire();
  a.hooks.release = async (call) => (await call(), "gone");
  const taken = watch(a.locks.all([a.locks.mutex("a"), a.locks.mutex("b")]).acquire({ waitMs: 100 }));
  await clock.advance(200);
  expect(taken.error).toBeInstanceOf(AcquireTimeoutError);
  const warnings = a.told.filter(({ type }) => type === "warning");
  expect(warnings).toMatchObject([
    { message: "a, b: not all were given back cleanly after one of them failed", cause: expect.any(LockLostError) },
  ]);
  await blocking.release();
});
