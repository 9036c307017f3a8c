import { expect, test } from "vitest";
import { DeadlockError, InvalidOptionError } from "../../src/core/errors.js";
import type { NameState } from "../../src/core/inspect.js";
import { AcquireTimeoutError } from "../../src/index.js";
import type { Locks } from "../../src/locks.js";
import { findDeadlock } from "../../src/recipes/deadlock-graph.js";
import { settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { rig, watch } from "./rig.js";

const AFTER = { detectDeadlockAfterMs: 500 };

/** Holds the first, then wants the second. */
async function nested(
  locks: Locks,
  clock: { after(ms: number, run: () => void): object },
  first: string,
  second: string,
) {
  await locks.mutex(first).using(async () => {
    await new Promise<void>((resolve) => clock.after(100, resolve));
    await locks.mutex(second).using(() => {});
  });
}

test("two that wait for each other: the later one fails, says who is in it, and the other goes on", async () => {
  const { clock, open } = rig();
  const [a, b] = [
    (await open({ label: "worker-7", ...AFTER })).locks,
    (await open({ label: "worker-9", ...AFTER })).locks,
  ];
  const first = watch(nested(a, clock, "a", "b"));
  await clock.advance(10);
  const second = watch(nested(b, clock, "b", "a"));
  await clock.advance(2000);
  expect(first.state).toBe("done");
  expect(second.error).toBeInstanceOf(DeadlockError);
  const { message, cycle } = second.error as DeadlockError;
  expect(message).toMatch(/worker-9 \(.*\) holds b, waits for a; worker-7 \(.*\) holds a, waits for b/);
  expect(cycle).toHaveLength(2);
});

test("it is not looked for unless it was asked for", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open()).locks, (await open(AFTER)).locks];
  const both = [watch(nested(a, clock, "a", "b")), watch(nested(b, clock, "b", "a"))];
  await clock.advance(60_000);
  expect(both.map(({ state }) => state)).toEqual(["pending", "pending"]);
  await expect(b.mutex("m").acquire({ detectDeadlockAfterMs: 0 })).rejects.toBeInstanceOf(InvalidOptionError);
});

test("pitfall 57: tasks of one process that hold and wait by themselves are no deadlock", async () => {
  const { clock, open } = rig();
  const [p, q] = [(await open(AFTER)).locks, (await open(AFTER)).locks];
  const holders = [p.mutex("a").acquire(), q.mutex("b").acquire()];
  const [a, b] = await Promise.all(holders);
  const waiters = [watch(p.mutex("b").using(() => {})), watch(q.mutex("a").using(() => {}))];
  await clock.advance(30_000);
  expect(waiters.map(({ state }) => state)).toEqual(["pending", "pending"]);
  await Promise.all([a?.release(), b?.release()]);
  await clock.advance(100);
  expect(waiters.map(({ state }) => state)).toEqual(["done", "done"]);
});

test("a chain that ends somewhere is no deadlock, however long it lasts", async () => {
  const { clock, open } = rig();
  const clients = await Promise.all([0, 1, 2].map(async () => (await open(AFTER)).locks));
  const [one, two, three] = clients as [Locks, Locks, Locks];
  const work = [watch(nested(one, clock, "a", "b")), watch(nested(two, clock, "b", "c"))];
  const end = await three.mutex("c").acquire();
  await clock.advance(30_000);
  expect(work.map(({ state }) => state)).toEqual(["pending", "pending"]);
  await end.release();
  await clock.advance(100);
  expect(work.map(({ state }) => state)).toEqual(["done", "done"]);
});

test("with permits, all who could give one back must be stuck", async () => {
  const { clock, open } = rig();
  const clients = await Promise.all([0, 1, 2].map(async () => (await open(AFTER)).locks));
  const [one, two, three] = clients as [Locks, Locks, Locks];
  const both = (locks: Locks) =>
    watch(
      locks.semaphore("s", 2).using(async () => {
        await new Promise<void>((resolve) => clock.after(100, resolve));
        await locks.mutex("m").using(() => {});
      }),
    );
  const held = watch(
    one.mutex("m").using(async () => {
      await new Promise<void>((resolve) => clock.after(200, resolve));
      await one.semaphore("s", 2).using(() => {});
    }),
  );
  await clock.advance(1);
  const stuck = both(two);
  const free = await three.semaphore("s", 2).acquire();
  await clock.advance(20_000);
  // The third one may give its permit back at any time: no deadlock.
  expect([held.state, stuck.state]).toEqual(["pending", "pending"]);
  await free.release();
  await clock.advance(100);
  expect([held.state, stuck.state]).toEqual(["done", "done"]);
  // With both permits stuck it is one.
  const again = watch(
    one.mutex("m").using(async () => {
      await new Promise<void>((resolve) => clock.after(300, resolve));
      await one.semaphore("s", 2).using(() => {});
    }),
  );
  await clock.advance(1);
  const [x, y] = [both(two), both(three)];
  await clock.advance(20_000);
  expect(again.error).toBeInstanceOf(DeadlockError);
  expect([x.state, y.state]).toEqual(["done", "done"]);
});

test("whoever only waits behind a deadlock is no victim", async () => {
  const { clock, open } = rig();
  const [a, b, c] = await Promise.all([0, 1, 2].map(async () => (await open(AFTER)).locks));
  const first = watch(nested(a as Locks, clock, "a", "b"));
  const second = watch(nested(b as Locks, clock, "b", "a"));
  await clock.advance(150);
  // The latest of all, with a hold of its own that nobody wants.
  const behind = watch(nested(c as Locks, clock, "z", "a"));
  await clock.advance(5000);
  expect([first, second].filter(({ error }) => error instanceof DeadlockError)).toHaveLength(1);
  expect(behind.state).toBe("done");
});

test("a multi-lock's earlier locks count as held while it waits for the later ones", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open(AFTER)).locks, (await open(AFTER)).locks];
  const one = watch(a.all([a.mutex("a"), a.mutex("c")]).acquire());
  const two = watch(
    b.mutex("c").using(async () => {
      await new Promise<void>((resolve) => clock.after(100, resolve));
      await b.mutex("a").using(() => {});
    }),
  );
  await clock.advance(5000);
  const errors = [one.error, two.error].filter((error) => error instanceof DeadlockError);
  expect(errors).toHaveLength(1);
});

test("an abort and a timeout still end the wait as what they are", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open(AFTER)).locks, (await open(AFTER)).locks];
  const held = await b.mutex("b").acquire();
  const controller = new AbortController();
  const aborted = watch(a.mutex("a").using(() => a.mutex("b").acquire({ signal: controller.signal })));
  const timed = watch(a.mutex("c").using(() => a.mutex("b").acquire({ waitMs: 1500 })));
  await clock.advance(1000);
  controller.abort(new Error("enough"));
  await clock.advance(600);
  expect(aborted.error).toEqual(new Error("enough"));
  expect(timed.error).toBeInstanceOf(AcquireTimeoutError);
  await held.release();
});

test("random rings among eight: one victim each; random orders without a ring: none", { timeout: 60_000 }, async () => {
  const { clock, open } = rig();
  const clients = await Promise.all(Array.from({ length: 8 }, async () => (await open(AFTER)).locks));
  const chance = new SeededChance(10);
  for (let run = 0; run < 60; run += 1) {
    const size = chance.between(2, 8);
    const ring = run % 2 === 0;
    const jobs = Array.from({ length: size }, (_, n) => {
      const [first, second] = [n, ring ? (n + 1) % size : n + 1];
      return watch(nested(clients[n] as Locks, clock, `${run}/${first}`, `${run}/${second}`));
    });
    await clock.advance(10_000);
    const victims = jobs.filter(({ error }) => error instanceof DeadlockError);
    expect(victims).toHaveLength(ring ? 1 : 0);
    expect(jobs.filter(({ state }) => state === "done")).toHaveLength(ring ? size - 1 : size);
  }
});

test("a waiting claim tells what its flow of control holds through its own client, and nothing that has ended", async () => {
  const { clock, open } = rig();
  const [a, b, c] = [(await open(AFTER)).locks, (await open(AFTER)).locks, (await open()).locks];
  const blocking = await c.mutex("m").acquire();
  const told = async (): Promise<string[][]> => {
    const stakes: string[][] = [];
    for await (const { waiters } of c.inspect({ name: "m" })) {
      for (const { data } of waiters) {
        const { stake } = JSON.parse(data ?? "{}") as { stake?: { holds: { name: string }[] } };
        stakes.push((stake?.holds ?? []).map(({ name }) => name));
      }
    }
    return stakes;
  };
  const asked: Promise<unknown>[] = [];
  const ask = (): void => void asked.push(a.mutex("m").using(() => {}));
  await b.mutex("others").using(() =>
    a.mutex("own").using(async () => {
      const released = await a.mutex("released").acquire();
      await released.release();
      ask();
      await settle();
    }),
  );
  expect(await told()).toEqual([["own"]]);
  // Work that outlives the callback which held something.
  let end = (): void => {};
  const over = new Promise<void>((resolve) => (end = resolve));
  await a.mutex("outlived").using(() => void over.then(ask));
  end();
  await clock.advance(50);
  expect(await told()).toEqual([["own"], []]);
  await blocking.release();
  await clock.advance(2000);
  await Promise.all(asked);
});

test("whoever holds more than fits beside a claim takes no part, to the byte, and a warning says so", async () => {
  const { clock, open } = rig();
  const most = 16_384;
  const { locks: a, told: heard } = await open(AFTER);
  const c = (await open()).locks;
  const blocking = await c.mutex("m").acquire();
  const sizes: number[] = [];
  for (const more of [0, 1]) {
    // Flow, id and time have the same length each time: one name makes up for the rest.
    const holding = async (names: readonly string[], then: () => Promise<void>): Promise<void> => {
      const [first, ...rest] = names;
      if (first === undefined) return then();
      await a.mutex(first).using(() => holding(rest, then));
    };
    const told = async (names: readonly string[]): Promise<string | undefined> => {
      let data: string | undefined;
      await holding(names, async () => {
        const asked = watch(a.mutex("m").acquire({ waitMs: 100 }));
        await settle();
        for await (const { waiters } of c.inspect({ name: "m" })) data = waiters[0]?.data;
        await clock.advance(100);
        expect(asked.error).toBeInstanceOf(AcquireTimeoutError);
      });
      return data;
    };
    const names = Array.from({ length: 36 }, (_, n) => `${n}-`.padEnd(400, "x"));
    const without = Buffer.byteLength((await told([...names, "y"])) ?? "") - 1;
    expect(most - without).toBeLessThan(512);
    const data = await told([...names, "y".repeat(most - without + more)]);
    sizes.push(Buffer.byteLength(data ?? ""));
  }
  expect(sizes).toEqual([most, 0]);
  const message = expect.stringContaining("without looking for deadlocks") as string;
  expect(heard.filter(({ type }) => type === "warning")).toEqual([{ type: "warning", name: "m", message }]);
  await blocking.release();
});

test("two pictures tell of one deadlock only if all that it rests on is the same in both", () => {
  const owner = { client: "c", host: "h", pid: 1 };
  const usual = { waiter: "w", units: 2, capacity: 3, holder: "h", held: 2 };
  const picture = ({ waiter, units, capacity, holder, held }: typeof usual): NameState[] => {
    const data = (flow: string, name: string, id: string): string =>
      JSON.stringify({ stake: { flow, since: 1, holds: [{ name, id }] } });
    const common = { leftMs: 1000, owner, units: 1 };
    return [
      {
        name: "a",
        capacity,
        lastToken: 1,
        holders: [{ ...common, id: holder, units: held, token: 1 }],
        waiters: [{ ...common, id: waiter, units, data: data("two", "b", "hb") }],
      },
      {
        name: "b",
        capacity: 1,
        lastToken: 1,
        holders: [{ ...common, id: "hb", token: 1 }],
        waiters: [{ ...common, id: "wb", data: data("one", "a", holder) }],
      },
    ];
  };
  const signatureOf = (states: NameState[]): string | undefined => findDeadlock(states, "one")?.signature;
  const signature = signatureOf(picture(usual));
  expect(signature).toBeDefined();
  expect(signatureOf(picture(usual).toReversed())).toBe(signature);
  const others = [{ waiter: "x" }, { units: 3 }, { capacity: 2 }, { holder: "x" }, { held: 3 }].map((change) =>
    signatureOf(picture({ ...usual, ...change })),
  );
  expect(others).not.toContain(undefined);
  expect(new Set([signature, ...others]).size).toBe(6);
});

test("a job counts as held by what runs inside of it", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open(AFTER)).locks, (await open(AFTER)).locks];
  const job = watch(
    a.job("j").run(async () => {
      await new Promise<void>((resolve) => clock.after(100, resolve));
      await a.mutex("m").using(() => {});
    }),
  );
  const other = watch(nested(b, clock, "m", "j"));
  await clock.advance(5000);
  const errors = [job.error, other.error].filter((error) => error instanceof DeadlockError);
  expect([errors.length, [job.state, other.state].toSorted()]).toEqual([1, ["done", "failed"]]);
});

test.each([
  [1000, "failed"],
  [1001, "pending"],
])("a picture of %d names: the search has a limit, and what is beyond it is not looked for", async (count, state) => {
  const { clock, open, engine } = rig();
  const [a, b] = [(await open(AFTER)).locks, (await open()).locks];
  const later = watch(nested(a, clock, "a", "b"));
  // Waits for ever, and says so: only the other one looks.
  const first = watch(b.mutex("b").using(() => new Promise<void>((resolve) => clock.after(3_600_000, resolve))));
  await clock.advance(1);
  const [held] = await b.mutex("b").holders();
  const owner = { client: "c", host: "h", pid: 1 };
  const waiter = (id: string, flow: string, since: number, holds: readonly object[]) => ({
    ...{ name: "a", id: id.padEnd(22, "."), units: 1, capacity: 1, leaseMs: 60_000, wait: true, owner },
    data: JSON.stringify({ stake: { flow, since, holds } }),
  });
  const bystanders = Array.from({ length: count - 2 }, (_, n) => ({ name: `name ${n}`, id: "x" }));
  await engine().claim(waiter("holder", "other", 1, [{ name: "b", id: held?.id }]));
  await engine().claim(waiter("bystander", "third", 1, bystanders));
  await clock.advance(3000);
  expect(later.state).toBe(state);
  expect(first.state).toBe("pending");
});
