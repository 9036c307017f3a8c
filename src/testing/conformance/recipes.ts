import assert from "node:assert/strict";
import { DeadlockError, UnsupportedError, WaitTimeoutError } from "../../core/errors.js";
import type { Locks } from "../../locks.js";
import type { Leader } from "../../recipes/election.js";
import type { Case, Kit } from "./kit.js";

/** A store without cells must say so when the recipe is made; one that has them runs the case. */
function needsCells(name: string, make: (locks: Locks) => unknown, run: Case["run"]): Case {
  return {
    name,
    async run(kit) {
      const engine = await kit.open();
      if (engine.cells !== null) return run(kit);
      const locks = await kit.connect();
      await assert.rejects(async () => make(locks), UnsupportedError);
    },
  };
}

/** Leases of ten steps: long enough to live through a case, short enough to be given up. */
const clients = async (kit: Kit, count: number): Promise<Locks[]> => {
  const opened = [];
  for (let n = 0; n < count; n += 1) opened.push(await kit.connect({ leaseMs: 10 * kit.step, label: `client ${n}` }));
  return opened;
};

const counter = needsCells(
  "counter: additions from several clients all count, once each",
  (locks) => locks.counter("x"),
  async (kit) => {
    const name = kit.name("counter");
    const counters = (await clients(kit, 3)).map((locks) => locks.counter(name));
    await kit.settled(Promise.all([1, 2, 3, 4, 5].flatMap((by) => counters.map((one) => one.add(by)))), 100);
    assert.deepEqual(await Promise.all(counters.map((one) => one.get())), [45, 45, 45]);
    const won = await kit.settled(Promise.all(counters.map((one, n) => one.compareAndSet(45, n))));
    assert.equal(won.filter(Boolean).length, 1);
    assert.equal(await counters[0]?.get(), won.indexOf(true));
  },
);

const lostAnswers = needsCells(
  "counter: an addition whose answers are lost counts once",
  (locks) => locks.counter("x"),
  async (kit) => {
    const name = kit.name("counter");
    let sends = 0;
    const locks = await kit.connect(
      {},
      {
        async cellWrite(call) {
          const answer = await call();
          sends += 1;
          if (sends % 3 !== 0) throw new Error("the answer was lost");
          return answer;
        },
      },
    );
    for (const sum of [1, 2, 3]) assert.equal(await kit.settled(locks.counter(name).add()), sum);
    assert.equal(sends, 9);
  },
);

const latch = needsCells(
  "latch: opens at zero for those who wait and those who come later, not before",
  (locks) => locks.latch("x", 1),
  async (kit) => {
    const name = kit.name("latch");
    const [a, b] = (await clients(kit, 2)).map((locks) => locks.latch(name, 3)) as [Latches, Latches];
    await assert.rejects(kit.settled(a.wait({ waitMs: kit.step })), WaitTimeoutError);
    let open = false;
    const waiting = a.wait().then(() => (open = true));
    assert.equal(await kit.settled(b.countDown(2)), 1);
    await kit.pass(1);
    assert.equal(open, false);
    assert.equal(await kit.settled(a.countDown()), 0);
    await kit.settled(waiting);
    await kit.settled(b.wait());
    await kit.settled(b.reset());
    assert.equal(await a.count(), 3);
  },
);

type Latches = ReturnType<Locks["latch"]>;

const barrier = needsCells(
  "barrier: all parties pass together, round after round, and nothing is left",
  (locks) => locks.barrier("x", 2),
  async (kit) => {
    const name = kit.name("barrier");
    const rounds = [0, 0, 0];
    const work = (await clients(kit, 3)).map(async (locks, n) => {
      for (let round = 1; round <= 3; round += 1) {
        await locks.barrier(name, 3).wait();
        rounds[n] = round;
        assert.ok(Math.max(...rounds) - Math.min(...rounds) <= 1, `nobody runs ahead: ${rounds.join(", ")}`);
      }
    });
    await kit.settled(Promise.all(work), 100);
    const engine = await kit.open();
    for await (const state of engine.inspect({ name })) assert.fail(`"${state.name}" is still in use`);
    assert.deepEqual(await engine.cells?.read(name), { version: 0, value: null });
  },
);

const doubleBarrier = needsCells(
  "double barrier: parties begin and end together; who dies inside is given up with its lease, and named",
  (locks) => locks.doubleBarrier("x", 2),
  async (kit) => {
    const name = kit.name("double barrier");
    const [a, b] = (await clients(kit, 2)) as [Locks, Locks];
    const mortal = await kit.connect({ leaseMs: 4 * kit.step, label: "mortal" });
    const entering = [a, b, mortal].map((locks) => locks.doubleBarrier(name, 3).enter());
    const [one, two] = await kit.settled(Promise.all(entering));
    assert.ok(one && two);
    let left = 0;
    const leaving = [one, two].map((stay) => stay.leave().finally(() => (left += 1)));
    await kit.pass(1);
    assert.equal(left, 0);
    // Its client goes without a word of its own: all that the others see is that its claim is gone.
    await kit.settled(mortal.close());
    for (const { died } of await kit.settled(Promise.all(leaving))) {
      assert.deepEqual(
        died.map((owner) => owner.label),
        ["mortal"],
      );
    }
  },
);

const multi: Case = {
  name: "multi-lock: clients that name the same locks in different orders all get them, all or none",
  async run(kit) {
    const stem = kit.name("multi");
    const orders = [[0, 1, 2], [2, 1, 0], [1, 0]]; // biome-ignore format: a table
    let inside = 0;
    const tokens: number[] = [];
    const work = (await clients(kit, 3)).map(async (locks, n) => {
      const list = (orders[n] ?? []).map((at) =>
        at === 1
          ? locks.readWrite(`${stem}/1`).write
          : at === 2
            ? locks.semaphore(`${stem}/2`, 2)
            : locks.mutex(`${stem}/0`),
      );
      for (let round = 0; round < 3; round += 1) {
        await locks.all(list).using(async (hold) => {
          inside += 1;
          assert.equal(inside, 1, "all of them want the same write lock");
          tokens.push(hold.tokens.get(`${stem}/1`) ?? 0);
          await Promise.resolve();
          hold.throwIfLost();
          inside -= 1;
        });
      }
    });
    await kit.settled(Promise.all(work), 100);
    assert.equal(tokens.length, 9);
    assert.deepEqual(
      tokens,
      tokens.toSorted((one, two) => one - two),
    );
    const [first] = await clients(kit, 1);
    assert.ok(first);
    const busy = await kit.settled(first.mutex(`${stem}/1`).acquire());
    const both = first.all([first.mutex(`${stem}/0`), first.mutex(`${stem}/1`)]);
    assert.equal(await kit.settled(both.tryAcquire()), null);
    assert.equal(await first.mutex(`${stem}/0`).isHeld(), false, "none is held when one is busy");
    await kit.settled(busy.release());
  },
};

const striped: Case = {
  name: "striped lock: stripes exclude each other's keys, and all of them exclude everything",
  async run(kit) {
    const name = kit.name("striped");
    const [a, b] = (await clients(kit, 2)).map((locks) => locks.striped(name, 4));
    assert.ok(a && b);
    const hold = await kit.settled(a.for("key").acquire());
    assert.equal(await kit.settled(b.for("key").tryAcquire()), null);
    const free = [...b.walk("key")].slice(1);
    for (const { lock } of free) await (await kit.settled(lock.acquire({ waitMs: 0 }))).release();
    assert.equal(await kit.settled(b.all().tryAcquire()), null);
    await kit.settled(hold.release());
    const parts = b.split(10);
    assert.equal(await kit.settled(b.sum((index) => parts[index] ?? 0)), 10);
  },
};

const election: Case = {
  name: "election: one leader at a time, its value and token seen by all, observers told of every term",
  async run(kit) {
    const name = kit.name("election");
    const [a, b, watcher] = (await clients(kit, 3)).map((locks) => locks.election(name));
    assert.ok(a && b && watcher);
    const observable = (await kit.open()).cells !== null;
    const seen: Leader[] = [];
    const stop = new AbortController();
    const observing = (async () => {
      for await (const leader of watcher.observe({ signal: stop.signal })) seen.push(leader);
    })();
    if (!observable) await assert.rejects(kit.settled(observing), UnsupportedError);
    // It ends by its signal, which is an error; what it has seen is compared below.
    else observing.catch(() => {});
    const tokens: number[] = [];
    let next = a.campaign({ value: "value 0" });
    for (let n = 0; n < 6; n += 1) {
      const term = await kit.settled(next);
      tokens.push(term.token);
      const leader: Leader | null = await watcher.leader();
      assert.deepEqual([leader?.value, leader?.token], [`value ${n}`, term.token]);
      next = (n % 2 ? a : b).campaign({ value: `value ${n + 1}` });
      await kit.pass(0.2);
      term.throwIfLost();
      await kit.settled(term.resign());
    }
    await (await kit.settled(next)).resign();
    assert.deepEqual(
      tokens,
      tokens.toSorted((one, two) => one - two),
    );
    if (!observable) return;
    await kit.until(20, "the observer has seen the last term", () => seen.at(-1)?.value === "value 6");
    assert.deepEqual(
      seen.slice(0, 6).map(({ token }) => token),
      tokens,
    );
    stop.abort();
    await kit.settled(observing.catch(() => {}));
  },
};

const job: Case = {
  name: "job: runs in one place, and not again before at-least-for is over, or says that it cannot keep that",
  async run(kit) {
    const name = kit.name("job");
    const [a, b] = (await clients(kit, 2)) as [Locks, Locks];
    const nested = a.job(name).run(async () => (await b.job(name).run(() => 1)).ran);
    assert.deepEqual({ ...(await kit.settled(nested)), token: 0 }, { ran: true, value: false, token: 0 });
    const atLeastForMs = 4 * kit.step;
    if (a.guarantees.crashRelease === "session") {
      assert.throws(() => a.job(name, { atLeastForMs }), UnsupportedError);
      return;
    }
    assert.equal((await kit.settled(a.job(name, { atLeastForMs }).run(() => 1))).ran, true);
    await kit.settled(a.close());
    assert.equal((await kit.settled(b.job(name, { atLeastForMs }).run(() => 1))).ran, false);
    await kit.pass(5);
    assert.equal((await kit.settled(b.job(name, { atLeastForMs }).run(() => 1))).ran, true);
  },
};

const schedule = needsCells(
  "schedule: each tick runs once among several clients, with growing tokens",
  async (locks) => locks.schedule("x", { everyMs: 1000 }, () => {}),
  async (kit) => {
    const name = kit.name("schedule");
    const ticks: { at: number; token: number }[] = [];
    const schedules = [];
    for (const locks of await clients(kit, 3)) {
      const run = ({ at, token }: { at: Date; token: number }): void => void ticks.push({ at: at.getTime(), token });
      schedules.push(await locks.schedule(name, { everyMs: 2 * kit.step }, run));
    }
    // A tick that nobody could begin before the next one is left out: on a busy machine it takes more than three.
    await kit.until(50, "three ticks", () => ticks.length >= 3);
    await kit.settled(Promise.all(schedules.map((one) => one.stop())));
    const times = ticks.map(({ at }) => at);
    assert.deepEqual(
      times,
      [...new Set(times)].toSorted((one, two) => one - two),
      "no tick twice, none before another",
    );
    const tokens = ticks.map(({ token }) => token);
    assert.deepEqual(
      tokens,
      tokens.toSorted((one, two) => one - two),
    );
  },
);

const deadlock: Case = {
  name: "deadlock detection: of two that wait for each other the later one fails, and the other goes on",
  async run(kit) {
    const stem = kit.name("deadlock");
    const options = { leaseMs: 20 * kit.step, detectDeadlockAfterMs: kit.step };
    const [a, b] = [await kit.connect({ ...options, label: "a" }), await kit.connect({ ...options, label: "b" })];
    const [x, y] = [`${stem} x`, `${stem} y`];
    if ((await kit.open()).guarantees.order === "none") {
      await assert.rejects(kit.settled(a.mutex(x).acquire()), UnsupportedError);
      return;
    }
    let held = 0;
    let meet = (): void => {};
    const met = new Promise<void>((resolve) => (meet = resolve));
    const both = async (locks: Locks, first: string, second: string): Promise<void> =>
      locks.mutex(first).using(async () => {
        held += 1;
        if (held === 2) meet();
        await met;
        await locks.mutex(second).using(() => {});
      });
    const outcomes = await kit.settled(Promise.allSettled([both(a, x, y), both(b, y, x)]), 60);
    const reasons = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
    assert.equal(reasons.length, 1, `one victim: ${reasons.map(String).join(", ")}`);
    const [reason] = reasons;
    assert.ok(reason instanceof DeadlockError);
    assert.deepEqual(reason.cycle.map(({ waitsFor }) => waitsFor).toSorted(), [x, y]);
  },
};

/** A section for each recipe: the same code on every engine, so these show that the engine carries it. */
export const recipes: readonly Case[] = [
  counter,
  lostAnswers,
  latch,
  multi,
  striped,
  barrier,
  doubleBarrier,
  election,
  job,
  schedule,
  deadlock,
];
