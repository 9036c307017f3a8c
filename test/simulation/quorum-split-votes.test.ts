import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Chance } from "../../src/core/clock.js";
import type { Engine } from "../../src/core/engine.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import type { Locks } from "../../src/locks.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { MemberClock, SimulatedMember } from "./quorum-member.js";

/** As many clients as members; each is near one of them, so that everybody's own member hears it first. */
const PARTIES = [3, 5] as const;
const SEEDS = Array.from({ length: 25 }, (_, n) => n + 1);
const NEAR_MS = 1;
const FAR_MS = 5;
/** One round of votes, and what it gave back, is over; nobody asks again before `RETRY_MIN_MS`. */
const ROUND_MS = 4 * FAR_MS;

type Setup = { readonly clock: FakeClock; readonly members: readonly SimulatedMember[]; readonly clients: Locks[] };

async function setUp(
  parties: number,
  chanceOf: (client: number) => Chance,
  change: (engine: Engine) => Engine = (engine) => engine,
): Promise<Setup> {
  const clock = new FakeClock();
  const members = Array.from({ length: parties }, (_, n) => new SimulatedMember(`${n}`, new MemberClock(clock, 1, 0)));
  const wire = (ms: number): Promise<void> => new Promise((resolve) => clock.after(ms, resolve));
  const clients: Locks[] = [];
  for (let client = 0; client < parties; client += 1) {
    const wired = members.map((member, n): Engine => {
      const ms = n === client ? NEAR_MS : FAR_MS;
      const there = async <T>(call: () => Promise<T>): Promise<T> => {
        await wire(ms);
        const answer = await call();
        await wire(ms);
        return answer;
      };
      return change(intercept(member.open(), { claim: there, release: there, renew: there }));
    });
    const chance = chanceOf(client);
    clients.push(await connect(await quorumEngine(wired, { clock, chance }), { clock, chance }));
  }
  return { clock, members, clients };
}

/** Everybody asks at the same moment, holds for a while, and gives back. Resolves to the clients in the order of their grants. */
async function contest({ clock, members, clients }: Setup, limitMs: number) {
  const order: number[] = [];
  let [inside, most] = [0, 0];
  const leaving = new AbortController();
  const all = Promise.allSettled(
    clients.map(async (locks, client) => {
      const hold = await locks.mutex("m").acquire({ signal: leaving.signal });
      order.push(client);
      inside += 1;
      most = Math.max(most, inside);
      await new Promise<void>((resolve) => clock.after(10, resolve));
      inside -= 1;
      await hold.release();
    }),
  );
  await clock.advance(2 * FAR_MS);
  const votes = members.map(({ granted }) => granted.size);
  const winners = new Set(members.flatMap(({ granted }) => [...granted])).size;
  await clock.advance(ROUND_MS - 2 * FAR_MS);
  const afterOneRound = order.length;
  for (let ms = 0; ms < limitMs && order.length < clients.length; ms += 1000) await clock.advance(1000);
  leaving.abort();
  await clock.advance(5000);
  await all;
  const closing = Promise.all(clients.map((locks) => locks.close()));
  await clock.advance(5000);
  await closing;
  return { votes, winners, afterOneRound, order, most };
}

test.each(PARTIES.flatMap((parties) => SEEDS.map((seed) => [parties, seed] as const)))(
  "%i members, seed %i: the votes are split and nobody wins; after random delays everybody gets it, one at a time",
  async (parties, seed) => {
    const setup = await setUp(parties, (client) => new SeededChance(seed * 100 + client));
    const { votes, winners, afterOneRound, order, most } = await contest(setup, 60_000);
    expect(votes, "each member voted once").toEqual(votes.map(() => 1));
    expect(winners, "each for another client").toBe(parties);
    expect(afterOneRound).toBe(0);
    expect(order.toSorted((one, two) => one - two)).toEqual(order.map((_, n) => n));
    expect(order).toHaveLength(parties);
    expect(most).toBe(1);
  },
);

/** Every member says that it keeps no queue, or all do. */
const withQueues =
  (queues: boolean) =>
  (engine: Engine): Engine =>
    queues ? engine : { ...engine, guarantees: { ...engine.guarantees, order: "none" } };

const equal = (client: number): Chance => {
  const ids = new SeededChance(client + 1);
  return { id: () => ids.id(), fraction: () => 0.5 };
};

test.each(PARTIES)(
  "%i members: without a turn it is chance that resolves it: with equal delays nobody gets it for a minute",
  async (parties) => {
    const { order, votes } = await contest(await setUp(parties, equal, withQueues(false)), 60_000);
    expect(votes).toEqual(votes.map(() => 1));
    expect(order).toEqual([]);
  },
);

test.each(PARTIES)("%i members: with a turn everybody gets it, also with equal delays", async (parties) => {
  const { order, most } = await contest(await setUp(parties, equal, withQueues(true)), 60_000);
  expect(order).toHaveLength(parties);
  expect(most).toBe(1);
});
