import { expect, test } from "vitest";
import type { ClaimRequest, Engine, EngineEvent } from "../../src/core/engine.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import type { Member } from "../../src/engines/quorum/member.js";
import { Members } from "../../src/engines/quorum/members.js";
import type { Settings } from "../../src/engines/quorum/options.js";
import { Turns } from "../../src/engines/quorum/turns.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { type Hooks, intercept } from "../../src/testing/intercept.js";

/** What becomes of who has the turn while a release is still on its way; the rest is in `test/simulation/quorum-turns.ts`. */

const claimOf = (id: string): ClaimRequest => ({
  name: "m",
  id: id.padEnd(22, "."),
  units: 1,
  capacity: 1,
  leaseMs: 10_000,
  wait: true,
  owner: { client: "c", host: "h", pid: 1 },
});

/** One holds and lets go, which only the keeper of the order has heard until `arrive`; the other has the turn. */
async function lettingGo(): Promise<{
  clock: FakeClock;
  next: ClaimRequest;
  waiter: Engine;
  arrive: () => Promise<void>;
}> {
  const clock = new FakeClock();
  // Any time but zero: what was never noted would count as having been noted then.
  await clock.advance(60_000);
  const calls: (() => Promise<void>)[] = [];
  const late: Hooks = {
    release: (call) => new Promise((resolve) => calls.push(async () => resolve(await call()))),
  };
  const stores = ["keeper", "later 1", "later 2"].map((server) => ({ server, store: memoryStore(clock) }));
  const open = (hooks: Hooks): Promise<Engine> =>
    quorumEngine(
      stores.map(({ server, store }) => ({
        ...intercept(memoryEngine(store), server === "keeper" ? {} : hooks),
        serverInfo: async () => ({ server }),
      })),
      { clock },
    );
  const [holder, waiter] = [await open(late), await open({})];
  const [held, next] = [claimOf("held"), claimOf("next")];
  expect(await holder.claim(held)).toMatchObject({ kind: "granted" });
  expect(await waiter.claim(next)).toMatchObject({ kind: "queued" });
  const events: EngineEvent[] = [];
  waiter.listen((event) => events.push(event));
  void holder.release({ ...held, tombstone: "never" }).catch(() => {});
  await settle();
  expect(events).toEqual([{ kind: "wake", name: next.name, id: next.id }]);
  return { clock, next, waiter, arrive: async () => void (await Promise.all(calls.map((call) => call()))) };
}

test("who has its turn keeps it while a release is on its way to the other members, and holds when that has arrived", async () => {
  const { clock, next, waiter, arrive } = await lettingGo();
  expect(await waiter.renew([next])).toMatchObject([{ kind: "queued" }]);
  await clock.advance(20);
  expect(await waiter.renew([next])).toMatchObject([{ kind: "queued" }]);
  await arrive();
  expect(await waiter.renew([next])).toMatchObject([{ kind: "granted" }]);
});

test("who has its turn and gets no quorum for longer than members may take is gone: it must not be in the way", async () => {
  const { clock, next, waiter } = await lettingGo();
  expect(await waiter.renew([next])).toMatchObject([{ kind: "queued" }]);
  await clock.advance(100);
  expect(await waiter.renew([next])).toMatchObject([{ kind: "gone" }]);
});

/** One holds and lets go, which all have heard but the keeper of the order, until `arrive`. */
async function lettingGoButOfTheTurn(): Promise<{
  clock: FakeClock;
  other: Engine;
  released: () => unknown;
  arrive: () => Promise<void>;
}> {
  const clock = new FakeClock();
  const calls: (() => Promise<void>)[] = [];
  const late: Hooks = {
    release: (call) => new Promise((resolve) => calls.push(async () => resolve(await call()))),
  };
  const stores = ["keeper", "later 1", "later 2"].map((server) => ({ server, store: memoryStore(clock) }));
  const [holder, other] = await Promise.all(
    [late, {}].map((hooks) =>
      quorumEngine(
        stores.map(({ server, store }) => ({
          ...intercept(memoryEngine(store), server === "keeper" ? hooks : {}),
          serverInfo: async () => ({ server }),
        })),
        { clock },
      ),
    ),
  );
  const held = claimOf("held");
  expect(await holder?.claim(held)).toMatchObject({ kind: "granted" });
  let answer: unknown;
  void holder?.release({ ...held, tombstone: "never" }).then((outcome) => (answer = outcome));
  await settle();
  const arrive = async (): Promise<void> => {
    await Promise.all(calls.splice(0).map((call) => call()));
    await settle();
  };
  return { clock, other: other as Engine, released: () => answer, arrive };
}

test("whoever asks without waiting is not refused once a release has been answered: the turn is free too", async () => {
  const { other, released, arrive } = await lettingGoButOfTheTurn();
  expect(released()).toBe(undefined);
  expect(await other.claim({ ...claimOf("too early"), wait: false })).toMatchObject({ kind: "busy" });
  await arrive();
  expect(released()).toBe("released");
  expect(await other.claim({ ...claimOf("next"), wait: false })).toMatchObject({ kind: "granted" });
});

test("a release waits for the keeper of the turn as long as members may take, and no longer", async () => {
  const { clock, released } = await lettingGoButOfTheTurn();
  await clock.advance(49);
  expect(released()).toBe(undefined);
  await clock.advance(2);
  expect(released()).toBe("released");
});

test("a release that is asked again does not wait for the keeper of the turn once more: that has answered", async () => {
  const clock = new FakeClock();
  const silent = new Set(["later 1", "later 2"]);
  const servers = ["keeper", "later 1", "later 2"];
  const members = servers.map((server) => ({
    ...intercept(memoryEngine(memoryStore(clock)), {
      release: (call) => (silent.has(server) ? new Promise(() => {}) : call()),
    }),
    serverInfo: async () => ({ server }),
  }));
  const engine = await quorumEngine(members, { clock });
  const held = claimOf("held");
  expect(await engine.claim(held)).toMatchObject({ kind: "granted" });
  const answers: unknown[] = [];
  const release = async (): Promise<void> => {
    engine.release({ ...held, tombstone: "always" }).then(
      (answer) => answers.push(answer),
      (error: unknown) => answers.push(error),
    );
    await settle();
  };
  await release();
  await clock.advance(51);
  expect(answers).toMatchObject([{ message: expect.stringContaining("too few members answered the release") }]);
  silent.delete("later 1");
  await release();
  expect(answers.slice(1)).toEqual(["released"]);
});

test("a claim asks the member that keeps the order first, whichever that is, and then the others in their order", async () => {
  const clock = new FakeClock();
  const asked: string[] = [];
  // The first by who it is keeps the order, wherever it stands.
  const engine = await quorumEngine(
    ["3", "1", "4", "2", "5"].map((server) => ({
      ...intercept(memoryEngine(memoryStore(clock)), {
        claim(call, { name }) {
          if (name === "m") asked.push(server);
          return call();
        },
      }),
      serverInfo: async () => ({ server }),
    })),
    { clock },
  );
  expect(await engine.claim(claimOf("first"))).toMatchObject({ kind: "granted" });
  expect(asked).toEqual(["1", "3", "4", "2", "5"]);
  await engine[Symbol.asyncDispose]();
  const all = [0, 1, 2].map((index) => ({ index })) as unknown as readonly Member[];
  const members = new Members(all, clock, 100);
  const places = [2, 0, 1, 2].map((first) => members.startingWith(all[first] as Member).map(({ index }) => index));
  expect(places).toEqual([
    [2, 0, 1],
    [0, 1, 2],
    [1, 0, 2],
    [2, 0, 1],
  ]);
});

test("of names that others want too the last ten thousand are remembered", () => {
  const turns = new Turns({} as Members, {} as Settings, () => {});
  const names = Array.from({ length: 10_000 }, (_, n) => `name ${n}`);
  for (const name of names) turns.noteContended(name, true);
  expect(names.every((name) => turns.isContended(name))).toBe(true);
  turns.noteContended("one more", true);
  expect(["name 0", "name 1", "name 9999", "one more"].map((name) => turns.isContended(name))).toEqual([
    false,
    true,
    true,
    true,
  ]);
  turns.noteContended("one more", false);
  expect(turns.isContended("one more")).toBe(false);
});

test("a claim that was sent twice is gone by both when one of them fails: all of it is being given back", async () => {
  const clock = new FakeClock();
  const answers: (() => void)[] = [];
  const held: Hooks = {
    async claim(call, { name }) {
      const answer = await call();
      if (name !== "m") return answer;
      return new Promise((resolve) => answers.push(() => resolve(answer)));
    },
  };
  const engine = await quorumEngine(
    ["1", "2", "3"].map((server) => ({
      ...intercept(memoryEngine(memoryStore(clock)), held),
      serverInfo: async () => ({ server }),
    })),
    { clock },
  );
  const claim = { ...claimOf("twice"), wait: false };
  const first = engine.claim(claim).catch(() => "failed");
  await clock.advance(30);
  const second = engine.claim(claim).catch(() => "failed");
  await settle();
  expect(answers).toHaveLength(6);
  // The limit of the first is over: nobody has answered it, and everybody is told to forget the claim.
  await clock.advance(25);
  expect(await first).toBe("failed");
  for (const answer of answers.slice(3)) answer();
  expect(await second).toMatchObject({ kind: "gone" });
  await clock.advance(60_000);
});
