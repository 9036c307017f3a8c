import assert from "node:assert/strict";
import { connect } from "../../src/connect.js";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import type { Hold } from "../../src/core/hold.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import type { QuorumOptions } from "../../src/engines/quorum/index.js";
import type { Locks } from "../../src/locks.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { type Hooks, intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { MemberClock, SimulatedMember } from "./quorum-member.js";
import type { MakeEngine } from "./quorum-world.js";

/** What the member that keeps the order may do, and what must hold then: each on the shipped engine, and on broken copies of it. */

const MEMBERS = 5;
/** As far as a message travels. */
const WIRE_MS = 1;
const LEASE_MS = 9_000;
const MEMBER_TIMEOUT_MS = 50;
const TURN = "#holdfast-turn";

type Client = {
  readonly locks: Locks;
  /** Members that it cannot reach: nothing is sent. */
  readonly cut: Set<number>;
  /** What it sent: "claim 0 m". */
  readonly sent: string[];
  /** Nothing that a member pushes arrives. */
  deaf: boolean;
};
type Rig = {
  readonly clock: FakeClock;
  readonly members: readonly SimulatedMember[];
  readonly clients: readonly Client[];
};
type Setting = { readonly clients?: number; readonly differ?: boolean; readonly options?: QuorumOptions };

/** Several clients; the first member keeps the order, unless `differ`: then each lists them from another one on, and none says who it is. */
async function setUp(
  make: MakeEngine,
  { clients: count = 3, differ = false, options = {} }: Setting = {},
): Promise<Rig> {
  const clock = new FakeClock();
  const members = Array.from(
    { length: MEMBERS },
    (_, n) => new SimulatedMember(`member ${n}`, new MemberClock(clock, 1, 0)),
  );
  const clients: Client[] = [];
  for (let own = 0; own < count; own += 1) {
    const client = { cut: new Set<number>(), sent: [] as string[], deaf: false };
    const wire = (n: number): Engine => {
      const member = members[n] as SimulatedMember;
      const there = async <T>(what: string, call: () => Promise<T>): Promise<T> => {
        if (client.cut.has(n)) return new Promise<T>(() => {});
        client.sent.push(`${what} at ${n}`);
        await new Promise<void>((resolve) => clock.after(WIRE_MS, resolve));
        const answer = await call();
        await new Promise<void>((resolve) => clock.after(WIRE_MS, resolve));
        return answer;
      };
      const engine = intercept(member.open(), {
        claim: (call, { name }) => there(`claim ${name}`, call),
        release: (call, { name }) => there(`release ${name}`, call),
        renew: (call) => there("renew", call),
        push: (deliver: () => void) => {
          if (!client.deaf && !client.cut.has(n)) clock.after(WIRE_MS, deliver);
        },
      });
      return { ...engine, serverInfo: async () => ({ server: differ ? "" : `member ${n}` }) };
    };
    const order = members.map((_, n) => (differ ? (n + own) % MEMBERS : n));
    const named = order.map((n, at) => ({ name: `listed ${at}`, engine: wire(n) }));
    const chance = new SeededChance(own + 1);
    const engine = await make(named, { clock, chance, memberTimeoutMs: MEMBER_TIMEOUT_MS, ...options });
    clients.push(Object.assign(client, { locks: await connect(engine, { clock, chance, leaseMs: LEASE_MS }) }));
  }
  return { clock, members, clients };
}

const sorted = (list: readonly number[]): number[] => list.toSorted((one, two) => one - two);
const at = <T>(list: readonly T[], n: number): T => list[n] as T;

/** Everything that is under way, and so much more. */
async function settled<T>(clock: FakeClock, promise: Promise<T>, withinMs = 60_000): Promise<T> {
  const end = { done: false };
  const finished = promise.finally(() => (end.done = true));
  finished.catch(() => {});
  for (let ms = 0; !end.done && ms < withinMs; ms += 1) await clock.advance(1);
  assert.ok(end.done, `not answered within ${withinMs} ms`);
  return finished;
}

type Line = { readonly order: number[]; readonly holds: Hold[]; readonly all: Promise<unknown>; most: number };

/** The clients ask one after the other for the same mutex, and hold it for `holdMs` each. */
async function line({ clock, clients }: Rig, name: string, who: readonly number[], holdMs = 20): Promise<Line> {
  const state: { order: number[]; holds: Hold[]; most: number; all: Promise<unknown> } = {
    order: [],
    holds: [],
    most: 0,
    all: Promise.resolve(),
  };
  let inside = 0;
  const turns: Promise<void>[] = [];
  for (const n of who) {
    const turn = async (): Promise<void> => {
      const hold = await at(clients, n).locks.mutex(name).acquire();
      state.order.push(n);
      state.holds.push(hold);
      inside += 1;
      state.most = Math.max(state.most, inside);
      await new Promise<void>((resolve) => clock.after(holdMs, resolve));
      inside -= 1;
      await hold.release();
    };
    turns.push(turn());
    await clock.advance(10);
  }
  state.all = Promise.all(turns);
  return state;
}

async function close({ clock, clients }: Rig): Promise<void> {
  for (const client of clients) client.cut.clear();
  await settled(clock, Promise.all(clients.map(({ locks }) => locks.close())));
}

/** Members without a wire: what one of them is asked can be read, lost, or come late. */
async function unwired(make: MakeEngine, count: number) {
  const clock = new FakeClock();
  // Any time but zero: a vote at that time would count as none.
  await clock.advance(LEASE_MS);
  const stores = Array.from({ length: count }, () => memoryStore(clock));
  const chance = new SeededChance(1);
  const open = (hooksOf: (n: number) => Hooks): Promise<Engine> =>
    make(
      stores.map((store, n) => ({
        name: `member ${n}`,
        engine: { ...intercept(memoryEngine(store), hooksOf(n)), serverInfo: async () => ({ server: `member ${n}` }) },
      })),
      { clock, chance, memberTimeoutMs: MEMBER_TIMEOUT_MS },
    );
  return { clock, stores, open };
}

const claimOf = (id: string, units = 1, capacity = 1): ClaimRequest => ({
  ...{ name: "m", id: id.padEnd(22, "."), units, capacity, leaseMs: LEASE_MS, wait: true },
  owner: { client: "c", host: "h", pid: 1 },
});

export const TURNS: Readonly<Record<string, (make: MakeEngine) => Promise<void>>> = {
  "one round takes a free lock and one gives it back: the turn goes with the vote": async (make) => {
    const rig = await setUp(make, { clients: 1 });
    const { clock } = rig;
    const { locks, sent } = at(rig.clients, 0);
    const startedAt = clock.now();
    const hold = await settled(clock, locks.mutex("m").acquire());
    assert.equal(clock.now() - startedAt, 2 * WIRE_MS);
    const votes = Array.from({ length: MEMBERS }, (_, n) => n);
    assert.deepEqual(
      sent.splice(0).toSorted(),
      [...votes.map((n) => `claim m at ${n}`), `claim m${TURN} at 0`].toSorted(),
    );
    await settled(clock, hold.release());
    await clock.advance(5);
    assert.deepEqual(sent.slice(0, 2), ["release m at 0", `release m${TURN} at 0`], "first: the release waits for it");
    assert.equal(sent.length, MEMBERS + 1);
    await close(rig);
  },

  "who waits stands in order, asks nobody meanwhile, and is woken by the release": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    const { order, all, holds } = await line(rig, "m", [1, 2, 0, 1, 2]);
    for (const client of clients) client.sent.length = 0;
    await clock.advance(2_000);
    assert.deepEqual(
      clients.flatMap(({ sent }) => sent),
      [],
      "nobody asks",
    );
    const releasedAt = clock.now();
    const released = hold.release();
    for (let ms = 0; holds.length === 0 && ms < 100; ms += 1) await clock.advance(1);
    assert.ok(clock.now() - releasedAt <= 4 * WIRE_MS + 1, `woken after ${clock.now() - releasedAt} ms`);
    await settled(clock, Promise.all([released, all]));
    assert.deepEqual(order, [1, 2, 0, 1, 2]);
    await close(rig);
  },

  "who lets go and asks again at once stands behind those who wait": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const order: number[] = [];
    const worker = async (n: number): Promise<void> => {
      for (let turns = 0; turns < 6; turns += 1) {
        const hold = await at(clients, n).locks.mutex("m").acquire();
        order.push(n);
        await new Promise<void>((resolve) => clock.after(3, resolve));
        await hold.release();
      }
    };
    await settled(clock, Promise.all([0, 1, 2].map(worker)));
    // The first round sorts them; a claim that met a hand-over on its arrival comes back once.
    const later = order.slice(6, 15);
    for (let n = 0; n + 3 <= later.length; n += 1)
      assert.equal(new Set(later.slice(n, n + 3)).size, 3, `nobody twice in a row of three: ${order.join(" ")}`);
    await close(rig);
  },

  "who does not wait overtakes nobody, not even between a release and the next one's votes": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    const { order, all } = await line(rig, "m", [1]);
    const released = hold.release();
    // It has arrived everywhere, and the one who waits is being told.
    await clock.advance(WIRE_MS);
    assert.equal(await settled(clock, at(clients, 2).locks.mutex("m").tryAcquire()), null);
    await settled(clock, Promise.all([released, all]));
    assert.deepEqual(order, [1]);
    await close(rig);
  },

  "two may hold a semaphore of two; the third is woken by whoever lets go first": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const permit = (n: number): Promise<Hold> => at(clients, n).locks.semaphore("s", 2).acquire();
    const [one, two] = [await settled(clock, permit(0)), await settled(clock, permit(1))];
    const waiting = permit(2);
    await clock.advance(500);
    at(clients, 2).sent.length = 0;
    const startedAt = clock.now();
    const released = settled(clock, two.release());
    const three = await settled(clock, waiting);
    assert.ok(clock.now() - startedAt <= 4 * WIRE_MS + 2, `after ${clock.now() - startedAt} ms`);
    await released;
    await settled(clock, Promise.all([one.release(), three.release()]));
    await close(rig);
  },

  "later readers stand behind a writer that waits": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const lock = (n: number) => at(clients, n).locks.readWrite("rw");
    const reader = await settled(clock, lock(0).read.acquire());
    const order: string[] = [];
    const writing = lock(1)
      .write.acquire()
      .then((hold) => {
        order.push("writer");
        return hold;
      });
    await clock.advance(200);
    const reading = lock(2)
      .read.acquire()
      .then((hold) => {
        order.push("reader");
        return hold;
      });
    await clock.advance(500);
    assert.deepEqual(order, []);
    await settled(clock, reader.release());
    const writer = await settled(clock, writing);
    await clock.advance(100);
    assert.deepEqual(order, ["writer"]);
    const down = settled(clock, writer.release());
    const second = await settled(clock, reading);
    await down;
    await settled(clock, second.release());
    await close(rig);
  },

  "a push that is lost costs a heartbeat, not the turn": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    at(clients, 1).deaf = true;
    const { order, all } = await line(rig, "m", [1]);
    const startedAt = clock.now();
    await settled(clock, hold.release());
    await settled(clock, all);
    assert.deepEqual(order, [1]);
    assert.ok(clock.now() - startedAt <= LEASE_MS / 3 + 200, `after ${clock.now() - startedAt} ms`);
    await close(rig);
  },

  "pitfall 39: the keeper hangs: one claim waits for its limit, the next ones for another keeper's word": async (
    make,
  ) => {
    const rig = await setUp(make);
    const { clock, members, clients } = rig;
    at(members, 0).goAway("hung");
    const took: number[] = [];
    for (let n = 0; n < 5; n += 1) {
      const startedAt = clock.now();
      const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
      took.push(clock.now() - startedAt);
      await settled(clock, hold.release());
    }
    assert.deepEqual(took, [MEMBER_TIMEOUT_MS, ...took.slice(1).map(() => 2 * WIRE_MS)]);
    const without = await line(rig, "m", [0, 1, 2, 0]);
    await settled(clock, without.all);
    assert.deepEqual([sorted(without.order), without.most], [[0, 0, 1, 2], 1]);
    at(members, 0).comeBack(false);
    await clock.advance(20_000);
    const back = await line(rig, "m", [2, 1, 0], 100);
    await settled(clock, back.all);
    assert.deepEqual(back.order, [2, 1, 0], "in order again");
    await close(rig);
  },

  "the keeper goes away under those who wait: they go on elsewhere, one at a time": async (make) => {
    const rig = await setUp(make);
    const { clock, members, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    const waiting = await line(rig, "m", [1, 2, 1]);
    at(members, 0).goAway("refusing");
    await settled(clock, hold.release());
    await settled(clock, waiting.all, 15_000);
    assert.deepEqual([sorted(waiting.order), waiting.most], [[1, 1, 2], 1]);
    await close(rig);
  },

  "the keeper forgets: two never hold, everybody is served, and the order is back": async (make) => {
    const rig = await setUp(make);
    const { clock, members, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    const waiting = await line(rig, "m", [1, 2, 1]);
    at(members, 0).comeBack(true);
    await clock.advance(8_000);
    assert.deepEqual(waiting.order, [], "it is held by the votes of the others");
    hold.throwIfLost();
    const later = await line(rig, "m", [2, 1], 50);
    await settled(clock, hold.release());
    await settled(clock, Promise.all([waiting.all, later.all]), 15_000);
    assert.equal(Math.max(waiting.most, later.most), 1);
    const back = await line(rig, "m", [2, 1, 0], 100);
    await settled(clock, back.all);
    assert.deepEqual(back.order, [2, 1, 0], "in order again");
    await close(rig);
  },

  "a holder whose turn was forgotten stands in the queue again with its next heartbeat": async (make) => {
    const rig = await setUp(make);
    const { clock, members, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    at(members, 0).comeBack(true);
    await clock.advance(LEASE_MS / 2);
    const { order, all } = await line(rig, "m", [1]);
    at(clients, 1).sent.length = 0;
    await clock.advance(1_500);
    assert.deepEqual(at(clients, 1).sent, [], "who waits stands behind it, and asks nobody");
    await settled(clock, hold.release());
    await settled(clock, all, 100);
    assert.deepEqual(order, [1]);
    await close(rig);
  },

  "a holder that cannot tell the keeper lets nobody wait for its whole lease": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const first = at(clients, 0);
    const hold = await settled(clock, first.locks.mutex("m").acquire({ leaseMs: 600_000 }));
    const { order, all } = await line(rig, "m", [1]);
    first.cut.add(0);
    await settled(clock, hold.release());
    await settled(clock, all, LEASE_MS / 3 + 2 * 2 * MEMBER_TIMEOUT_MS + 200);
    assert.deepEqual(order, [1]);
    await close(rig);
  },

  "clients with different keepers exclude each other, and all are served": async (make) => {
    const rig = await setUp(make, { differ: true });
    const { clock } = rig;
    const { order, all, holds } = await line(rig, "m", [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    await settled(clock, all);
    assert.equal(order.length, 9);
    const tokens = holds.map(({ token }) => token);
    assert.deepEqual(
      tokens,
      tokens.toSorted((one, two) => one - two),
    );
    await close(rig);
  },

  "who has its turn and not the votes keeps what it has of them for a moment only": async (make) => {
    const rig = await setUp(make, { clients: 2 });
    const { clock, members, clients } = rig;
    const first = at(clients, 0);
    // It holds the lock by the votes of three, and no turn that the other one knows of.
    first.cut.add(0).add(1);
    const hold = await settled(clock, first.locks.mutex("m").acquire({ leaseMs: 60_000 }));
    const { all, order } = await line(rig, "m", [1]);
    const seen: (string | undefined)[] = [];
    for (let ms = 0; ms < 2_000; ms += 10) {
      await clock.advance(10);
      let id: string | undefined;
      for await (const { holders } of at(members, 1).look({ name: "m" })) id = holders[0]?.id;
      seen.push(id);
    }
    assert.ok(seen.includes(undefined), "the member is free in between");
    assert.ok(new Set(seen).size > 2, "and each time it is another claim");
    await settled(clock, hold.release());
    await settled(clock, all);
    assert.deepEqual(order, [1]);
    await close(rig);
  },

  // In the simulation: a waiter's process stood still while it voted, and all members forgot; the token was below what others had written with.
  "who votes again after its process stood still suggests a token of now": async (make) => {
    const { clock, open } = await unwired(make, 3);
    const suggested: number[] = [];
    const holder = await open((n) => (n === 0 ? {} : { release: () => new Promise(() => {}) }));
    const waiter = await open((n) => ({
      claim(call, { name, tokenAtLeast = 0 }) {
        if (n === 1 && name === "m") suggested.push(tokenAtLeast);
        return call();
      },
    }));
    const [held, next] = [claimOf("held"), claimOf("next")];
    assert.equal((await holder.claim(held)).kind, "granted");
    assert.equal((await waiter.claim(next)).kind, "queued");
    // Only the keeper of the order hears of it: who is next votes, and does not get the others.
    holder.release({ ...held, tombstone: "never" }).catch(() => {});
    await settle();
    assert.equal((await waiter.renew([next]))[0]?.kind, "queued");
    const stoodStillMs = LEASE_MS / 3;
    await clock.advance(stoodStillMs);
    await waiter.renew([next]);
    const [before = 0, after = 0] = suggested.slice(-2);
    assert.equal(after - before, stoodStillMs * 1000);
  },

  // In the simulation: a holder beside others was told a token below the floor that they were told.
  "a token that was written back in vain counts: it may still arrive": async (make) => {
    const { clock, stores, open } = await unwired(make, 5);
    const arriveLate: (() => Promise<unknown>)[] = [];
    let votes = 0;
    const lost = async (): Promise<never> => {
      throw new Error("no answer");
    };
    const waiter = await open((n) => ({
      claim: (call) => (n === 4 && votes === 1 ? lost() : call()),
      renew(call, claims) {
        if (n === 3 && votes === 2) return lost();
        if (votes !== 1 || claims.every(({ tokenAtLeast }) => tokenAtLeast === undefined)) return call();
        arriveLate.push(call);
        return lost();
      },
    }));
    const others = await open(() => ({}));
    const [held, next, beside] = [claimOf("held", 2, 2), claimOf("next", 1, 2), claimOf("beside", 1, 2)];
    assert.equal((await others.claim(held)).kind, "granted");
    assert.equal((await waiter.claim(next)).kind, "queued");
    // One member has seen a higher token than the others.
    const tokenAtLeast = clock.wallMs() * 1000 + 3 * 3_600_000_000;
    await memoryEngine(at(stores, 3)).renew([{ ...held, tokenAtLeast }]);
    await others.release({ ...held, tombstone: "never" });
    await settle();
    votes = 1;
    assert.equal((await waiter.renew([next]))[0]?.kind, "unknown");
    assert.equal(arriveLate.length, 3, "the other three are told of the higher token");
    votes = 2;
    const [granted] = await waiter.renew([next]);
    assert.ok(granted?.kind === "granted");
    for (const call of arriveLate) await call();
    const answer = await others.claim(beside);
    assert.ok(answer.kind === "granted");
    assert.ok(answer.floor <= granted.token, `${answer.floor} shuts out ${granted.token}`);
  },

  "who leaves while it waits leaves no place behind": async (make) => {
    const rig = await setUp(make);
    const { clock, members, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    const leaving = at(clients, 1).locks.mutex("m").tryAcquire({ waitMs: 300 });
    await clock.advance(10);
    const { order, all } = await line(rig, "m", [2]);
    assert.equal(await settled(clock, leaving), null);
    await clock.advance(10);
    const places: string[] = [];
    for await (const { holders, waiters } of at(members, 0).look({ name: `m${TURN}` }))
      places.push(...[...holders, ...waiters].map(({ owner }) => owner.client));
    assert.equal(places.length, 2, "the holder's and one waiter's");
    await settled(clock, hold.release());
    await settled(clock, all, 200);
    assert.deepEqual(order, [2]);
    await close(rig);
  },

  "a lock taken over from another process gives the turn back, too": async (make) => {
    const rig = await setUp(make);
    const { clock, clients } = rig;
    const hold = await settled(clock, at(clients, 0).locks.mutex("m").acquire());
    const data = hold.handOver();
    const adopted = await settled(clock, at(clients, 1).locks.adopt(data));
    const { order, all } = await line(rig, "m", [2]);
    await settled(clock, adopted.release());
    await settled(clock, all, 100);
    assert.deepEqual(order, [2]);
    await close(rig);
  },

  "a hold on a bare majority says so, until others have it too": async (make) => {
    const rig = await setUp(make, { clients: 1 });
    const { clock } = rig;
    const { locks, cut } = at(rig.clients, 0);
    const told: [votes: number, forMs: number, over: boolean][] = [];
    locks.on("bareMajority", ({ votes, forMs, over }) => told.push([votes, forMs, over]));
    cut.add(3).add(4);
    const hold = await settled(clock, locks.mutex("m").acquire());
    await clock.advance(LEASE_MS / 3 + 100);
    assert.deepEqual(
      told.map(([votes, , over]) => [votes, over]),
      [
        [3, false],
        [3, false],
      ],
    );
    assert.ok((told[1]?.[1] ?? 0) > LEASE_MS / 4, "for how long");
    cut.clear();
    await clock.advance((2 * LEASE_MS) / 3);
    assert.deepEqual(told.at(-1)?.[2], true, "over");
    const count = told.length;
    await clock.advance(LEASE_MS);
    assert.equal(told.length, count, "and then nothing more");
    await settled(clock, hold.release());
    await close(rig);
  },

  "with spareVotes a bare majority is not enough, and one member may forget": async (make) => {
    const rig = await setUp(make, { clients: 2, options: { spareVotes: 1 } });
    const { clock, members, clients } = rig;
    const [first, second] = [at(clients, 0), at(clients, 1)];
    first.cut.add(3).add(4);
    await assert.rejects(settled(clock, first.locks.mutex("m").acquire({ waitMs: 500 })), /4 of 5 needed/);
    first.cut.delete(3);
    const hold = await settled(clock, first.locks.mutex("m").acquire());
    second.cut.add(0).add(1);
    second.cut.delete(1);
    at(members, 2).comeBack(true);
    const other = second.locks
      .mutex("m")
      .tryAcquire({ waitMs: 500 })
      .catch(() => null);
    assert.equal(await settled(clock, other), null);
    hold.throwIfLost();
    await settled(clock, hold.release());
    await close(rig);
  },
};
