import { describe, expect, test } from "vitest";
import { EngineUnavailableError } from "../../src/core/errors.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { FAIR } from "../../src/testing/faults.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { MemberClock, SimulatedMember } from "./quorum-member.js";
import { join, type World } from "./quorum-world.js";

/** What the algorithm cannot do, shown: each of these seeds ends with two clients that believe to hold one mutex. */
const SEEDS = Array.from({ length: 25 }, (_, n) => n + 1);
const LEASE_MS = 6000;

type Fault = (world: World, members: readonly SimulatedMember[]) => void;
type Outcome = { readonly both: boolean; readonly second: boolean; readonly staleWrite: "accepted" | "refused" };

/** The first client takes the lock; something happens; the second takes it too and writes; then the first writes. */
async function collide(seed: number, fault: Fault, { skewMs = 0, options = {} } = {}): Promise<Outcome> {
  const chance = new SeededChance(seed);
  const clock = new FakeClock();
  const members = Array.from({ length: 5 }, (_, n) => new SimulatedMember(`${n}`, new MemberClock(clock, 1, 0)));
  const world: World = {
    seed,
    chance,
    clock,
    members,
    parties: [],
    faults: { crashes: 0, amnesias: 0, cuts: 0, pauses: 0 },
    broken: new Map(),
  };
  const weather = () => ({ ...FAIR, delayMs: 5 });
  for (const skew of [0, skewMs]) {
    const { party } = await join(world, { rate: 1, skewMs: skew, make: quorumEngine, options, weather });
    world.parties.push(party);
  }
  const [first, second] = world.parties;
  if (first === undefined || second === undefined) throw new Error("two clients");
  const settled = async <T>(promise: Promise<T>): Promise<T> => {
    const state = { done: false };
    const finished = promise.finally(() => (state.done = true));
    finished.catch(() => {});
    while (!state.done) await clock.advance(10);
    return finished;
  };
  const one = await settled(first.locks.mutex("m").acquire({ leaseMs: LEASE_MS }));
  await clock.advance(chance.fraction() * 1000);
  fault(world, members);
  const asking = second.locks.mutex("m").tryAcquire({ leaseMs: LEASE_MS, waitMs: LEASE_MS * 0.25 });
  const two = await settled(
    asking.catch((error: unknown) => {
      if (error instanceof EngineUnavailableError) return null;
      throw error;
    }),
  );
  // By what the process itself can know: it stands still, or its clock says that there is time left.
  const both = two !== null && one.state !== "lost";
  let highest = two?.floor ?? 0;
  const staleWrite = one.token >= highest ? "accepted" : "refused";
  highest = Math.max(highest, one.floor);
  for (const { process } of world.parties) process.resume();
  const closing = Promise.all(world.parties.map(({ locks }) => locks.close()));
  await settled(closing);
  return { both, second: two !== null, staleWrite };
}

const three = (members: readonly SimulatedMember[]): readonly SimulatedMember[] => members.slice(0, 3);

describe("the limits of a quorum", () => {
  test.each(SEEDS)(
    "seed %i: the clocks of three of five members jump: two holders, the stale write is refused",
    async (seed) => {
      const jump: Fault = (_world, members) => three(members).forEach((member) => member.clock.jump(2 * LEASE_MS));
      expect(await collide(seed, jump)).toEqual({ both: true, second: true, staleWrite: "refused" });
    },
  );

  test.each(SEEDS)("seed %i: the clocks of two of five members jump: no harm", async (seed) => {
    const jump: Fault = (_world, members) => members.slice(0, 2).forEach((member) => member.clock.jump(2 * LEASE_MS));
    expect(await collide(seed, jump)).toMatchObject({ second: false });
  });

  test.each(SEEDS)(
    "seed %i: three of five members restart without data: two holders, the stale write is refused",
    async (seed) => {
      const forget: Fault = (_world, members) => three(members).forEach((member) => member.comeBack(true));
      expect(await collide(seed, forget)).toEqual({ both: true, second: true, staleWrite: "refused" });
    },
  );

  test.each(SEEDS)("seed %i: the same with restartGuardMs: the second is refused", async (seed) => {
    const forget: Fault = (_world, members) => three(members).forEach((member) => member.comeBack(true));
    const options = { restartGuardMs: LEASE_MS * 1.1 };
    expect(await collide(seed, forget, { options })).toMatchObject({ second: false });
  });

  test.each(SEEDS)(
    "seed %i: the same, the second client's calendar an hour behind, and only those three left: the stale write is accepted",
    async (seed) => {
      const forget: Fault = (_world, members) => {
        three(members).forEach((member) => member.comeBack(true));
        members.slice(3).forEach((member) => member.goAway("refusing"));
      };
      const outcome = await collide(seed, forget, { skewMs: -3_600_000 });
      expect(outcome).toEqual({ both: true, second: true, staleWrite: "accepted" });
    },
  );

  test("promises say so", async () => {
    const clock = new FakeClock();
    const members = Array.from({ length: 3 }, (_, n) =>
      new SimulatedMember(`${n}`, new MemberClock(clock, 1, 0)).open(),
    );
    const { promises } = await quorumEngine(members, { clock });
    expect(promises).toMatchObject({
      exclusion: "quorum-with-clocks",
      token: "monotonic-if-clocks",
      survivesRestart: false,
    });
  });
});

describe("a pause after the grant", () => {
  test.each(SEEDS)(
    "seed %i: the process stands still past its lease: it believes, and its write is refused",
    async (seed) => {
      const chance = new SeededChance(seed);
      const clock = new FakeClock();
      const members = Array.from({ length: 5 }, (_, n) => new SimulatedMember(`${n}`, new MemberClock(clock, 1, 0)));
      const faults = { crashes: 0, amnesias: 0, cuts: 0, pauses: 0 };
      const world: World = { seed, chance, clock, members, parties: [], faults, broken: new Map() };
      const joining = { rate: 1, skewMs: 0, make: quorumEngine, options: {}, weather: () => FAIR };
      const [first, second] = [(await join(world, joining)).party, (await join(world, joining)).party];
      const one = await first.locks.mutex("m").acquire({ leaseMs: 1000 });
      first.process.pause();
      let told = false;
      one.signal.addEventListener("abort", () => (told = true));
      const waiting = second.locks.mutex("m").acquire({ waitMs: 10_000 });
      await clock.advance(3000 + chance.fraction() * 3000);
      const two = await waiting;
      expect(told, "nobody could tell it").toBe(false);
      expect(one.token, "a guard that has seen the second refuses it").toBeLessThan(two.floor);
      expect(() => one.check(), "and whoever asks the clock is told").toThrow(/lost/);
      first.process.resume();
      const closing = Promise.all([first.locks.close(), second.locks.close()]);
      await clock.advance(2000);
      await closing;
    },
  );
});
