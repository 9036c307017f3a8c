import assert from "node:assert/strict";
import type * as connecting from "../../src/connect.js";
import type { Engine, EngineEvent, ReleaseAnswer } from "../../src/core/engine.js";
import type { Hold } from "../../src/core/hold.js";
import type * as memory from "../../src/engines/memory/index.js";
import type { Locks } from "../../src/locks.js";
import type * as clocks from "../../src/testing/fake-clock.js";
import type * as interceptors from "../../src/testing/intercept.js";
import type { Hooks } from "../../src/testing/intercept.js";
import type * as chances from "../../src/testing/seeded-chance.js";

/** What a case needs of the library: this one, or a broken copy of it. */
export type Library = typeof connecting & typeof memory & typeof clocks & typeof interceptors & typeof chances;

export type HandOverCase = { readonly name: string; readonly run: (library: Library) => Promise<void> };

/** Two clients of one store in memory, by a clock that moves only when told. */
async function world(library: Library) {
  const clock = new library.FakeClock();
  const store = library.memoryStore(clock);
  const open = async (seed: number): Promise<{ locks: Locks; hooks: Hooks; engine: Engine; pushed: EngineEvent[] }> => {
    const hooks: Hooks = {};
    const pushed: EngineEvent[] = [];
    const engine = library.intercept(library.memoryEngine(store), hooks);
    engine.listen((event) => pushed.push(event));
    const locks = await library.connect(engine, { clock, chance: new library.SeededChance(seed) });
    return { locks, hooks, engine, pushed };
  };
  const [a, b] = [await open(1), await open(2)];
  const holders = async (name: string): Promise<readonly { id: string; token: number }[]> => {
    for await (const state of b.engine.inspect({ name })) return state.holders;
    return [];
  };
  /** Everything that is under way comes to rest; no time passes. */
  const settle = (): Promise<void> => library.settle();
  const close = async (): Promise<void> => {
    for (const { locks, hooks } of [a, b]) {
      for (const verb of Object.keys(hooks) as (keyof Hooks)[]) delete hooks[verb];
      const closing = locks.close();
      await clock.advance(60_000);
      await closing;
    }
  };
  return { clock, a, b, holders, settle, close };
}

type World = Awaited<ReturnType<typeof world>>;

/** The hold, once there is one. */
function asked(taking: Promise<Hold>): { hold: Hold | null; error: unknown } {
  const seen: { hold: Hold | null; error: unknown } = { hold: null, error: null };
  taking.then(
    (hold) => (seen.hold = hold),
    (error: unknown) => (seen.error = error),
  );
  return seen;
}

function stateOf({ hold }: { readonly hold: Hold | null }): string {
  return hold?.state ?? "waiting";
}

/** Its release, which may never be answered. */
function letGo(hold: Hold | null): void {
  assert.ok(hold !== null, "held");
  hold.release().catch(() => {});
}

/** The call's answers stay away until they are let through, in any order. */
function heldBack<T>(): {
  hook: (call: () => Promise<T>) => Promise<T>;
  through: ((nth?: number) => void) & { count: number };
} {
  const waiting: (() => void)[] = [];
  const hook = (call: () => Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => {
      waiting.push(() => void call().then(resolve, reject));
      through.count = waiting.length;
    });
  const through = Object.assign(
    (nth?: number): void => {
      for (const send of nth === undefined ? waiting.splice(0) : waiting.splice(nth, 1)) send();
    },
    { count: 0 },
  );
  return { hook, through };
}

function handOverCase(name: string, run: (world: World) => Promise<void>): HandOverCase {
  return {
    name,
    async run(library) {
      const one = await world(library);
      try {
        await run(one);
      } finally {
        await one.close();
      }
    },
  };
}

/** Local hand-over: what it does, and each condition without which two would hold. */
export const HAND_OVER_CASES: readonly HandOverCase[] = [
  handOverCase(
    "the next of the same client holds in the same turn, before the store has heard of the release",
    async ({ a, holders, settle }) => {
      const mutex = a.locks.mutex("m");
      const first = await mutex.acquire();
      const next = asked(mutex.acquire());
      await settle();
      const { hook, through } = heldBack<ReleaseAnswer>();
      a.hooks.release = hook;
      const releasing = first.release();
      await settle();
      assert.equal(through.count, 1, "one release is on its way");
      assert.equal(stateOf(next), "held");
      assert.deepEqual(
        (await holders("m")).map(({ id }) => id),
        [first.id],
        "as the store knows it",
      );
      through();
      await releasing;
      assert.deepEqual(await holders("m"), [
        { ...(await holders("m"))[0], id: next.hold?.id, token: next.hold?.token },
      ]);
      await settle();
      assert.deepEqual(a.pushed, [], "no push was needed");
      assert.equal(next.hold?.floor, next.hold?.token);
    },
  ),
  handOverCase(
    "a claim whose place the store says is sure for a short time only is not handed anything, and counts from that",
    async ({ clock, a, settle }) => {
      const mutex = a.locks.mutex("m");
      const first = await mutex.acquire();
      const place = { leftMs: 4_000 };
      a.hooks.claim = async (call) => {
        const answer = await call();
        return answer.kind === "queued" ? { ...answer, ...place } : answer;
      };
      const next = asked(mutex.acquire());
      await settle();
      place.leftMs = 8_000;
      const last = asked(mutex.acquire());
      await settle();
      const { hook, through } = heldBack<ReleaseAnswer>();
      a.hooks.release = hook;
      letGo(first);
      await settle();
      assert.equal(stateOf(next), "waiting", "less than half of a waiter's lease");
      through();
      await settle();
      letGo(next.hold);
      await settle();
      assert.equal(stateOf(last), "held");
      const left = last.hold?.remainingMs ?? 0;
      assert.ok(left > 7_000 && left < 8_000, `${left} ms: as long as its place is sure`);
      through();
      await clock.advance(1);
    },
  ),
  handOverCase("a claim that is not in the queue any more is not handed anything", async ({ clock, a, b, settle }) => {
    const first = await a.locks.mutex("m").acquire();
    const ended = asked(a.locks.mutex("m").acquire());
    await settle();
    const other = asked(b.locks.mutex("m").acquire());
    await settle();
    let id = "";
    for await (const state of b.engine.inspect({ name: "m" })) id = state.waiters[0]?.id ?? "";
    // Taken out by somebody else; its client finds out, and pauses before it asks again.
    assert.equal(await b.engine.release({ name: "m", id, tombstone: "always" }), "released");
    await settle();
    await first.release();
    await settle();
    assert.equal(stateOf(ended), "waiting");
    assert.equal(stateOf(other), "held");
    await clock.advance(2_000);
    assert.equal(stateOf(ended), "waiting", "it asked again, and waits");
  }),
  handOverCase("a claim that a late copy queued anew has nobody ahead", async ({ clock, a, b, settle }) => {
    const first = await a.locks.mutex("m").acquire({ leaseMs: 60_000 });
    let sendCopy: () => Promise<unknown> = async () => {};
    a.hooks.claim = (call) => (sendCopy = call)();
    const ended = asked(a.locks.mutex("m").acquire());
    await settle();
    // Its place lapses, somebody else comes, and then the copy arrives.
    a.hooks.renew = () => new Promise(() => {});
    await clock.advance(10_500);
    const other = asked(b.locks.mutex("m").acquire());
    await settle();
    await sendCopy();
    delete a.hooks.renew;
    await clock.advance(4_000);
    await first.release();
    await settle();
    assert.deepEqual([stateOf(other), stateOf(ended)], ["held", "waiting"]);
  }),
  handOverCase("a place in the queue that is not sure is confirmed first", async ({ clock, a, settle }) => {
    const first = await a.locks.mutex("m").acquire({ leaseMs: 60_000 });
    const next = asked(a.locks.mutex("m").acquire());
    await settle();
    a.hooks.renew = () => new Promise(() => {});
    await clock.advance(6_000);
    letGo(first);
    await settle();
    assert.equal(stateOf(next), "waiting");
    delete a.hooks.renew;
    await clock.advance(5_000);
    assert.equal(stateOf(next), "held");
  }),
  handOverCase("the time of the next hold counts from its last answered heartbeat", async ({ clock, a, settle }) => {
    const first = await a.locks.mutex("m").acquire({ leaseMs: 60_000 });
    const next = asked(a.locks.mutex("m").acquire());
    await settle();
    a.hooks.renew = () => new Promise(() => {});
    await clock.advance(4_000);
    letGo(first);
    await settle();
    assert.ok(next.hold !== null, "sure enough");
    assert.ok(next.hold.remainingMs > 5_000 && next.hold.remainingMs < 6_000, `${next.hold.remainingMs} ms left`);
  }),
  handOverCase("nobody is handed the lock past somebody who came between", async ({ a, b, settle }) => {
    const first = await a.locks.mutex("m").acquire();
    const between = asked(b.locks.mutex("m").acquire());
    await settle();
    const [third, fourth] = [asked(a.locks.mutex("m").acquire()), asked(a.locks.mutex("m").acquire())];
    await settle();
    await first.release();
    await settle();
    assert.equal(stateOf(between), "held");
    assert.deepEqual([stateOf(third), stateOf(fourth)], ["waiting", "waiting"]);
    await between.hold?.release();
    await settle();
    assert.equal(stateOf(third), "held", "by a push");
    letGo(third.hold);
    await settle();
    assert.equal(stateOf(fourth), "held");
  }),
  handOverCase("an older hold beside it keeps out whoever is next", async ({ a, b, holders, settle }) => {
    const older = await b.locks.semaphore("s", 1).acquire();
    assert.deepEqual(await b.engine.setCapacity("s", 1, 2), { kind: "set" });
    const first = await a.locks.semaphore("s", 2).acquire();
    assert.equal(first.floor, older.token);
    assert.deepEqual(await b.engine.setCapacity("s", 2, 1), { kind: "set" });
    const next = asked(a.locks.semaphore("s", 1).acquire());
    await settle();
    await first.release();
    await settle();
    assert.equal(stateOf(next), "waiting", "the one unit is taken");
    assert.deepEqual(
      (await holders("s")).map(({ id }) => id),
      [older.id],
    );
    await older.release();
    await settle();
    assert.equal(stateOf(next), "held");
  }),
  handOverCase("a claim that a lowered capacity dropped is not handed anything", async ({ a, b, settle }) => {
    const first = await a.locks.semaphore("s", 2).acquire({ permits: 2 });
    const dropped = asked(a.locks.semaphore("s", 2).acquire({ permits: 2 }));
    await settle();
    a.hooks.push = () => {};
    assert.deepEqual(await b.engine.setCapacity("s", 2, 1), { kind: "set" });
    const other = asked(b.locks.semaphore("s", 1).acquire());
    await settle();
    await first.release();
    await settle();
    assert.equal(stateOf(other), "held");
    assert.equal(stateOf(dropped), "waiting");
  }),
  handOverCase("a lost lock is handed to nobody", async ({ clock, a, settle }) => {
    const first = await a.locks.mutex("m").acquire({ leaseMs: 1_000 });
    const next = asked(a.locks.mutex("m").acquire());
    await settle();
    // Nothing that the store could say comes through.
    a.hooks.renew = () => new Promise(() => {});
    a.hooks.release = () => new Promise(() => {});
    clock.stall(2_000);
    letGo(first);
    await settle();
    assert.equal(stateOf(next), "waiting");
  }),
  handOverCase(
    "until the store has heard of it, a place in the queue keeps the hold",
    async ({ clock, a, b, settle }) => {
      const mutex = a.locks.mutex("m");
      const first = await mutex.acquire({ leaseMs: 60_000 });
      const [next, last] = [asked(mutex.acquire()), asked(mutex.acquire())];
      await settle();
      const other = asked(b.locks.mutex("m").acquire());
      await settle();
      const { hook, through } = heldBack<ReleaseAnswer>();
      a.hooks.release = hook;
      letGo(first);
      await clock.advance(4_000);
      assert.ok((next.hold?.remainingMs ?? 0) > 6_500, "renewed, although it only waits there");
      letGo(next.hold);
      await clock.advance(4_000);
      assert.equal(stateOf(last), "held", "two before it are still there");
      // In the wrong order: the first of them leaves last.
      through(1);
      await clock.advance(4_000);
      assert.equal(stateOf(last), "held");
      through();
      await clock.advance(4_000);
      assert.equal(stateOf(last), "held");
      assert.equal(stateOf(other), "waiting");
      delete a.hooks.release;
      await last.hold?.release();
      await settle();
      assert.equal(stateOf(other), "held");
    },
  ),
  handOverCase("once the store has heard of it, a place in the queue is a loss", async ({ clock, a, settle }) => {
    const mutex = a.locks.mutex("m");
    const first = await mutex.acquire();
    const next = asked(mutex.acquire());
    await settle();
    await first.release();
    assert.equal(stateOf(next), "held");
    const token = next.hold?.token ?? 0;
    await clock.advance(1);
    a.hooks.renew = async () => [{ kind: "queued", token, nextMs: null }];
    await clock.advance(4_000);
    assert.equal(stateOf(next), "lost");
  }),
  handOverCase("an answer that was under way when the store heard of it is no loss", async ({ clock, a, settle }) => {
    const mutex = a.locks.mutex("m");
    const first = await mutex.acquire({ leaseMs: 60_000 });
    const next = asked(mutex.acquire());
    await settle();
    const releases = heldBack<ReleaseAnswer>();
    a.hooks.release = releases.hook;
    letGo(first);
    await settle();
    let answer: () => void = () => {};
    a.hooks.renew = async (call) => {
      const answers = await call();
      return new Promise((resolve) => (answer = () => resolve(answers)));
    };
    await clock.advance(4_000);
    delete a.hooks.renew;
    releases.through();
    await settle();
    await clock.advance(10);
    answer();
    await settle();
    assert.equal(stateOf(next), "held");
    await clock.advance(20_000);
    assert.equal(stateOf(next), "held");
  }),
  handOverCase("its token is the one that it arrived with", async ({ clock, a, settle }) => {
    const mutex = a.locks.mutex("m");
    const first = await mutex.acquire();
    let token = 0;
    a.hooks.claim = async (call) => {
      const answer = await call();
      if (answer.kind === "queued") token = answer.token;
      return answer;
    };
    const next = asked(mutex.acquire());
    await settle();
    await first.release();
    assert.equal(next.hold?.token, token);
    await clock.advance(20_000);
    assert.equal(stateOf(next), "held", "the store agrees");
  }),
  handOverCase("not to a claim that is not renewed, nor to one whose id the program chose", async ({ a, settle }) => {
    const mutex = a.locks.mutex("m");
    const { hook, through } = heldBack<ReleaseAnswer>();
    for (const options of [{ renew: false }, { id: "chosen-by-the-program-0123456789" }]) {
      const first = await mutex.acquire();
      const next = asked(mutex.acquire(options));
      await settle();
      a.hooks.release = hook;
      letGo(first);
      await settle();
      assert.equal(stateOf(next), "waiting");
      through();
      await settle();
      assert.equal(stateOf(next), "held", "by a push");
      delete a.hooks.release;
      await next.hold?.release();
    }
  }),
  handOverCase("a writer that was handed the lock can become a reader", async ({ a, b, settle }) => {
    const lock = a.locks.readWrite("rw");
    const first = await lock.write.acquire();
    const second = asked(lock.write.acquire());
    const taking = lock.write.acquire();
    const next = asked(taking);
    await settle();
    const reader = asked(b.locks.readWrite("rw").read.acquire());
    await settle();
    const { hook, through } = heldBack<ReleaseAnswer>();
    a.hooks.release = hook;
    letGo(first);
    await settle();
    letGo(second.hold);
    await settle();
    assert.equal(stateOf(next), "held");
    const downgrading = (await taking).downgrade();
    downgrading.catch(() => {});
    through(0);
    await settle();
    assert.equal(stateOf(reader), "waiting", "one of the two before it is still there");
    through();
    await downgrading;
    await settle();
    assert.deepEqual([stateOf(next), stateOf(reader)], ["held", "held"]);
  }),
  handOverCase(
    "another process adopts what was handed over before the store heard of it",
    async ({ clock, a, b, settle }) => {
      const first = await a.locks.mutex("m").acquire();
      const next = asked(a.locks.mutex("m").acquire());
      await settle();
      const { hook, through } = heldBack<ReleaseAnswer>();
      a.hooks.release = hook;
      letGo(first);
      await settle();
      const data = next.hold?.handOver();
      assert.ok(data);
      const adopted = asked(b.locks.adopt(data));
      await clock.advance(500);
      assert.deepEqual([stateOf(adopted), adopted.error], ["waiting", null]);
      through();
      await clock.advance(2_000);
      assert.equal(adopted.hold?.token, next.hold?.token);
    },
  ),
  handOverCase("a capacity of readers: the writer behind the only reader follows it", async ({ a, settle }) => {
    const lock = a.locks.readWrite("rw");
    const reader = await lock.read.acquire();
    const writer = asked(lock.write.acquire());
    await settle();
    a.hooks.release = () => new Promise(() => {});
    letGo(reader);
    await settle();
    assert.equal(stateOf(writer), "held");
  }),
];
