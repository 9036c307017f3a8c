import { describe, expect, test } from "vitest";
import { EngineUnavailableError } from "../../src/core/errors.js";
import { type QuorumOptions, quorumEngine } from "../../src/engines/quorum/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type FaultProfile, NO_FAULTS } from "../../src/testing/faults.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { MemberClock, SimulatedMember } from "./quorum-member.js";
import { CUT, join, noFaultsYet, type Party, type World } from "./quorum-world.js";

/** What the algorithm cannot do, shown: each of these seeds ends with two clients that believe to hold one mutex. */
const SEEDS = Array.from({ length: 25 }, (_, n) => n + 1);
const LEASE_MS = 6000;

/** What happens around the first client's grant; all of it acts on the members and on the wires to them. */
type Scenario = {
  readonly members?: number;
  /** How far the second client's calendar is ahead. */
  readonly skewMs?: number;
  readonly options?: QuorumOptions;
  /** Who reaches whom when the first client asks. */
  readonly reach?: (first: Party, second: Party, members: readonly SimulatedMember[]) => void;
  /** After the grant, before the fault. */
  readonly meanwhile?: (first: Party, members: readonly SimulatedMember[], clock: FakeClock) => Promise<void>;
  readonly fault: (members: readonly SimulatedMember[]) => void;
};
type Outcome = { readonly both: boolean; readonly second: boolean; readonly staleWrite: "accepted" | "refused" };

/** The first client takes the lock; something happens; the second takes it too and writes; then the first writes. */
async function collide(seed: number, scenario: Scenario): Promise<Outcome> {
  const chance = new SeededChance(seed);
  const clock = new FakeClock();
  const members = Array.from(
    { length: scenario.members ?? 5 },
    (_, n) => new SimulatedMember(`${n}`, new MemberClock(clock, 1, 0)),
  );
  const world: World = {
    seed,
    chance,
    clock,
    members,
    parties: [],
    faults: noFaultsYet(),
    broken: new Map(),
    beyondLimits: new Set(),
  };
  const faultsOf = (cut: boolean): FaultProfile => (cut ? CUT : { ...NO_FAULTS, delayMs: 5 });
  const { options = {} } = scenario;
  for (const skewMs of [0, scenario.skewMs ?? 0]) {
    const { party } = await join(world, { rate: 1, skewMs, make: quorumEngine, options, faultsOf });
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
  scenario.reach?.(first, second, members);
  const one = await settled(first.locks.mutex("m").acquire({ leaseMs: LEASE_MS }));
  await clock.advance(chance.fraction() * 1000);
  await scenario.meanwhile?.(first, members, clock);
  scenario.fault(members);
  const asking = second.locks.mutex("m").tryAcquire({ leaseMs: LEASE_MS, waitMs: LEASE_MS * 0.25 });
  const two = await settled(
    asking.catch((error: unknown) => {
      if (error instanceof EngineUnavailableError) return null;
      throw error;
    }),
  );
  // By what the process itself can know: it stands still, or its clock says that there is time left.
  const both = two !== null && one.state !== "lost";
  const staleWrite = one.token >= (two?.floor ?? 0) ? "accepted" : "refused";
  for (const { process } of world.parties) process.resume();
  const closing = Promise.all(world.parties.map(({ locks }) => locks.close()));
  await settled(closing);
  return { both, second: two !== null, staleWrite };
}

const TWO_HOLDERS: Outcome = { both: true, second: true, staleWrite: "refused" };

const jump = (members: readonly SimulatedMember[]): void =>
  members.forEach((member) => member.clock.jump(2 * LEASE_MS));
const forget = (members: readonly SimulatedMember[]): void => members.forEach((member) => member.comeBack(true));
const guarded = { restartGuardMs: LEASE_MS * 1.1 };

describe("the limits of a quorum", () => {
  test.each(SEEDS)(
    "seed %i: the clocks of three of five members jump: two holders, the stale write is refused",
    async (seed) => {
      expect(await collide(seed, { fault: (members) => jump(members.slice(0, 3)) })).toEqual(TWO_HOLDERS);
    },
  );

  test.each(SEEDS)(
    "seed %i: the clocks of two of five members jump, and all five had the claim: no harm",
    async (seed) => {
      expect(await collide(seed, { fault: (members) => jump(members.slice(0, 2)) })).toMatchObject({ second: false });
    },
  );

  test.each(SEEDS)(
    "seed %i: three of five members restart without data: two holders, the stale write is refused",
    async (seed) => {
      expect(await collide(seed, { fault: (members) => forget(members.slice(0, 3)) })).toEqual(TWO_HOLDERS);
    },
  );

  test.each(SEEDS)("seed %i: the same with restartGuardMs: the second is refused", async (seed) => {
    const scenario = { options: guarded, fault: (members: readonly SimulatedMember[]) => forget(members.slice(0, 3)) };
    expect(await collide(seed, scenario)).toMatchObject({ second: false });
  });

  test.each(SEEDS)(
    "seed %i: the same, the second client's calendar an hour behind, and only those three left: the stale write is accepted",
    async (seed) => {
      const fault = (members: readonly SimulatedMember[]): void => {
        forget(members.slice(0, 3));
        members.slice(3).forEach((member) => member.goAway("refusing"));
      };
      expect(await collide(seed, { skewMs: -3_600_000, fault })).toEqual({ ...TWO_HOLDERS, staleWrite: "accepted" });
    },
  );

  test("guarantees say so", async () => {
    const clock = new FakeClock();
    const members = Array.from({ length: 3 }, (_, n) =>
      new SimulatedMember(`${n}`, new MemberClock(clock, 1, 0)).open(),
    );
    const { guarantees } = await quorumEngine(members, { clock });
    expect(guarantees).toMatchObject({
      exclusion: "quorum-with-clocks",
      token: "monotonic-if-clocks",
      survivesRestart: false,
    });
  });
});

/** Two clients whose reach overlaps in one member: A, B, C and C, D, E of five; A, B and B, C of three. */
describe.each([3, 5])(
  "partial reach, %i members: each client reaches a bare majority, and one member is in both",
  (count) => {
    const shared = (count - 1) / 2;
    const reach: Scenario["reach"] = (first, second, members) => {
      members.slice(shared + 1).forEach((member) => first.cut.add(member));
      members.slice(0, shared).forEach((member) => second.cut.add(member));
    };
    const sharedOf = (members: readonly SimulatedMember[]): readonly SimulatedMember[] =>
      members.slice(shared, shared + 1);
    const scenario: Omit<Scenario, "fault"> = { members: count, reach };

    test.each(SEEDS)("seed %i: nothing happens to it: the second is refused", async (seed) => {
      expect(await collide(seed, { ...scenario, fault: () => {} })).toMatchObject({ second: false });
    });

    test.each(SEEDS)("seed %i: its clock jumps: two holders, the stale write is refused", async (seed) => {
      expect(await collide(seed, { ...scenario, fault: (members) => jump(sharedOf(members)) })).toEqual(TWO_HOLDERS);
    });

    test.each(SEEDS)("seed %i: it restarts without data: two holders, the stale write is refused", async (seed) => {
      expect(await collide(seed, { ...scenario, fault: (members) => forget(sharedOf(members)) })).toEqual(TWO_HOLDERS);
    });

    test.each(SEEDS)(
      "seed %i: it restarts without data, and the second client's calendar is an hour behind: the stale write is accepted",
      async (seed) => {
        const fault = (members: readonly SimulatedMember[]): void => forget(sharedOf(members));
        const outcome = await collide(seed, { ...scenario, skewMs: -3_600_000, fault });
        expect(outcome).toEqual({ ...TWO_HOLDERS, staleWrite: "accepted" });
      },
    );

    test.each(SEEDS)("seed %i: it restarts without data, with restartGuardMs: the second is refused", async (seed) => {
      const outcome = await collide(seed, {
        ...scenario,
        options: guarded,
        fault: (members) => forget(sharedOf(members)),
      });
      expect(outcome).toMatchObject({ second: false });
    });

    test.each(SEEDS)("seed %i: its clock jumps, with restartGuardMs: two holders all the same", async (seed) => {
      const outcome = await collide(seed, {
        ...scenario,
        options: guarded,
        fault: (members) => jump(sharedOf(members)),
      });
      expect(outcome).toEqual(TWO_HOLDERS);
    });

    const faults = SEEDS.flatMap((seed) => [[seed, "jumps", jump] as const, [seed, "forgets", forget] as const]);
    /** The wires are mended, and the first client renews so often. */
    const repaired =
      (renewals: number): NonNullable<Scenario["meanwhile"]> =>
      async (first, _members, clock) => {
        first.cut.clear();
        await clock.advance((renewals * LEASE_MS) / 3 + 200);
      };

    test.each(faults)(
      "seed %i: it %s after a renewal that reached all members: never two",
      async (seed, _what, fault) => {
        const outcome = await collide(seed, {
          ...scenario,
          meanwhile: repaired(1),
          fault: (members) => fault(sharedOf(members)),
        });
        expect(outcome).toMatchObject({ both: false });
      },
    );

    // A member that got the claim by repair counts from the renewal after that: before, a copy that came late looks the same.
    test.each(faults)("seed %i: it %s after two of them: the second is refused", async (seed, _what, fault) => {
      const outcome = await collide(seed, {
        ...scenario,
        meanwhile: repaired(2),
        fault: (members) => fault(sharedOf(members)),
      });
      expect(outcome).toMatchObject({ second: false });
    });
  },
);

describe("a pause after the grant", () => {
  test.each(SEEDS)(
    "seed %i: the process stands still past its lease: it believes, and its write is refused",
    async (seed) => {
      const chance = new SeededChance(seed);
      const clock = new FakeClock();
      const members = Array.from({ length: 5 }, (_, n) => new SimulatedMember(`${n}`, new MemberClock(clock, 1, 0)));
      const faults = noFaultsYet();
      const [broken, beyondLimits] = [new Map<string, number>(), new Set<string>()];
      const world: World = { seed, chance, clock, members, parties: [], faults, broken, beyondLimits };
      const joining = { rate: 1, skewMs: 0, make: quorumEngine, options: {}, faultsOf: () => NO_FAULTS };
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
      expect(() => one.throwIfLost(), "and whoever asks the clock is told").toThrow(/lost/);
      first.process.resume();
      const closing = Promise.all([first.locks.close(), second.locks.close()]);
      await clock.advance(2000);
      await closing;
    },
  );
});
