import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { NotSentError } from "../../src/core/errors.js";
import { type QuorumOptions, quorumEngine, quorumSize } from "../../src/engines/quorum/index.js";
import type { Locks } from "../../src/locks.js";
import { contend } from "../../src/testing/contend.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type FaultProfile, faulty, NO_FAULTS, PausableClock } from "../../src/testing/faults.js";
import { checkHistory, type History, type Violation } from "../../src/testing/history.js";
import { intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { MemberClock, SimulatedMember } from "./quorum-member.js";

/** Leases last from half of this to three times it. */
const STEP_MS = 1000;
const FAULTS_MS = 15 * STEP_MS;
const LIMIT_MS = FAULTS_MS + 150 * STEP_MS;
const LEASE_MAX_MS = 3 * STEP_MS;
/** Two clocks may differ by nearly two percent: half of the margin is the core's, half the quorum's. */
const DRIFT = 0.0095;
/** Nothing arrives, and nobody is told. */
export const CUT: FaultProfile = { ...NO_FAULTS, lostRequest: 1, hang: 1 };

export type SimulationResult = {
  readonly violations: readonly Violation[];
  readonly history: History;
  readonly faults: Faults;
};

/** What went wrong in a run, for a test that must not be green because nothing did. */
type Faults = { crashes: number; amnesias: number; cuts: number; pauses: number };

/** A client: its process, its locks, and its wire to each member. */
export type Party = { readonly process: PausableClock; readonly locks: Locks; readonly cut: Set<SimulatedMember> };

export type World = {
  readonly seed: number;
  readonly chance: SeededChance;
  readonly clock: FakeClock;
  readonly members: readonly SimulatedMember[];
  readonly parties: Party[];
  readonly faults: Faults;
  /** Ids of holds that fewer members than a quorum still knew at some moment, with that moment. */
  readonly broken: Map<string, number>;
};

/** A broken copy of the engine may be put in its place. */
export type MakeEngine = typeof quorumEngine;

/**
 * Several whole clients on a quorum of simulated members, the shipped code unchanged: every member with a clock of its own;
 * delays, losses, copies and reordering on every wire; partitions; members that go away and come back with or without their
 * data; processes that stand still; then no faults, and everybody must come to an end. Everything follows from the
 * seed.
 */
export async function simulateQuorum(seed: number, make: MakeEngine = quorumEngine): Promise<SimulationResult> {
  const chance = new SeededChance(seed);
  const clock = new FakeClock();
  // The worst for exclusion: every member's clock is fast and every client's slow.
  const drift = ["none", "any", "worst", "worst"][chance.between(0, 3)];
  const rate = (worst: number): number =>
    drift === "none" ? 1 : 1 + DRIFT * (drift === "worst" ? worst : Math.sign(chance.fraction() - 0.5));
  // Members may forget everything only where the guard keeps them from voting, and where clocks can order the tokens.
  const forgets = chance.chance(0.4);
  // Members mint at least their own time: beyond an hour they cannot agree in one round.
  const skewMs = forgets ? 100 : chance.chance(0.5) ? 10_000 : 5 * 3_600_000;
  const skew = (): number => (chance.fraction() - 0.5) * skewMs;
  const count = [3, 3, 4, 5, 5][chance.between(0, 4)] ?? 3;
  const members = Array.from(
    { length: count },
    (_, n) => new SimulatedMember(`member ${n}`, new MemberClock(clock, rate(1), skew())),
  );
  const atFirst = randomFaults(chance);
  const quiet = chance.chance(0.3);
  let faultsOver = false;

  const world: World = {
    seed,
    chance,
    clock,
    members,
    parties: [],
    faults: { crashes: 0, amnesias: 0, cuts: 0, pauses: 0 },
    broken: new Map(),
  };
  const options = forgets ? { restartGuardMs: LEASE_MAX_MS * 1.1 } : {};
  const engines: Engine[] = [];
  const clients = chance.between(2, 3);
  for (let n = 0; n < clients; n += 1) {
    const faultsOf = (cut: boolean): FaultProfile => (faultsOver ? NO_FAULTS : cut ? CUT : atFirst);
    const { party, engine } = await join(world, { rate: rate(-1), skewMs: skew(), make, options, faultsOf });
    world.parties.push(party);
    engines.push(engine);
  }

  const contenders = world.parties.map(({ locks, process }) => ({ locks, clock: process, rate: process.rate }));
  const run = contend({
    contenders,
    observer: clock,
    chance,
    rounds: 2,
    stepMs: STEP_MS,
    stem: "quorum",
    bursts: false,
  });
  const { history } = run;
  const revived = watchRevivals(world, history);
  if (!quiet) {
    crashSome(world, forgets, history);
    cutSome(world);
  }
  pauseSome(world, history);
  const end: { finished: boolean; failure?: unknown } = { finished: false };
  run.done.then(
    () => (end.finished = true),
    (failure: unknown) => Object.assign(end, { finished: true, failure }),
  );
  while (!end.finished && clock.now() < LIMIT_MS) {
    if (clock.now() >= FAULTS_MS) faultsOver = true;
    await clock.advance(STEP_MS);
  }
  faultsOver = true;
  const closing = Promise.all(world.parties.map(({ locks }) => locks.close()));
  await clock.advance(20 * STEP_MS);
  await closing;
  const disposing = Promise.all(engines.map((engine) => engine[Symbol.asyncDispose]()));
  await clock.advance(STEP_MS);
  await disposing;

  const violations = [...checkHistory(history, { order: "none", lateMs: 1, ties: true }), ...revived];
  if ("failure" in end) violations.push({ rule: "no unexpected error", what: String(end.failure) });
  if (quiet && atFirst.lostRequest === 0 && atFirst.lostAnswer === 0) violations.push(...leftBehind(members));
  if (members.some((member) => !member.isEmpty))
    violations.push({ rule: "no orphan", what: "a claim outlived its lease" });
  if (clock.pending > 0) violations.push({ rule: "no timer left", what: `${clock.pending} timers` });
  return { violations, history, faults: world.faults };
}

export type Joining = {
  readonly rate: number;
  readonly skewMs: number;
  readonly make: MakeEngine;
  readonly options: QuorumOptions;
  readonly faultsOf: (cut: boolean) => FaultProfile;
};

/** One more client, with a wire of its own to each member. */
export async function join(
  world: World,
  joining: Joining,
): Promise<{ readonly party: Party; readonly engine: Engine }> {
  const { chance, clock, members } = world;
  const process = new SkewedClock(clock, joining.rate, joining.skewMs);
  const cut = new Set<SimulatedMember>();
  const own = (): SeededChance => new SeededChance(chance.between(0, 2 ** 32 - 1));
  const wired = members.map((member) => {
    const wire = faulty(member.open(), process, own(), () => joining.faultsOf(cut.has(member)), false);
    const unlessRefused = <T>(call: () => Promise<T>): Promise<T> =>
      member.refuses ? Promise.reject(new NotSentError("not connected")) : call();
    return intercept(wire, { claim: unlessRefused, renew: unlessRefused, release: unlessRefused });
  });
  const engine = await joining.make(wired, { clock: process, chance: own(), ...joining.options });
  const locks = await connect(engine, { clock: process, chance: own(), callTimeoutMs: STEP_MS });
  return { engine, party: { process, locks, cut } };
}

/** A process whose calendar is wrong. */
class SkewedClock extends PausableClock {
  readonly #skewMs: number;

  constructor(base: FakeClock, rate: number, skewMs: number) {
    super(base, rate);
    this.#skewMs = skewMs;
  }

  override wallMs(): number {
    return super.wallMs() + this.#skewMs;
  }
}

/** A hold that a quorum forgot must be told so: no renewal asked for later may keep it. */
function watchRevivals({ clock, parties, broken }: World, history: History): Violation[] {
  const revived: Violation[] = [];
  for (const [client, { locks }] of parties.entries()) {
    locks.on("renewed", ({ id, name, remainingMs }) => {
      const since = broken.get(id);
      // An answer that was under way, or waited for a process that stood still.
      const old = since === undefined || clock.now() < since + STEP_MS;
      const paused = history.pauses.some((pause) => pause.client === client && pause.to >= (since ?? 0));
      if (!old && !paused && remainingMs > 0)
        revived.push({ rule: "lost is final", what: `"${name}" was renewed although a quorum had forgotten it` });
    });
  }
  return revived;
}

/** Where nothing is lost on any wire, each member that granted a claim is told of its end. */
function leftBehind(members: readonly SimulatedMember[]): Violation[] {
  return members.flatMap(({ granted, released }, n) =>
    [...granted]
      .filter((id) => !released.has(id))
      .map((id) => ({ rule: "no orphan", what: `claim ${id} was left behind at member ${n}` })),
  );
}

function randomFaults(chance: SeededChance): FaultProfile {
  const some = (most: number): number => (chance.chance(0.5) ? chance.fraction() * most : 0);
  return {
    // Often beyond a member's limit of 50 ms.
    delayMs: some(60),
    lostRequest: some(0.2),
    lostAnswer: some(0.2),
    hang: some(1),
    duplicate: some(0.5),
    lostPush: 0,
    duplicatePush: 0,
  };
}

function crashSome(world: World, forgets: boolean, history: History): void {
  const { clock, chance, members, faults } = world;
  // A power cut: all of them at once.
  if (forgets && chance.chance(0.3)) {
    clock.after(chance.fraction() * FAULTS_MS * 0.5, () => {
      faults.amnesias += members.length;
      for (const member of members) member.comeBack(true);
      noteBroken(world, history);
    });
  }
  for (const member of members) {
    if (chance.chance(0.5)) continue;
    clock.after(chance.fraction() * FAULTS_MS * 0.7, () => {
      faults.crashes += 1;
      member.goAway(chance.chance(0.5) ? "refusing" : "hung");
      clock.after(chance.fraction() * 4 * STEP_MS, () => {
        const forgetting = forgets && chance.chance(0.7);
        if (forgetting) faults.amnesias += 1;
        member.comeBack(forgetting);
        noteBroken(world, history);
        // Set back on the way: leases last longer there, which costs time and nothing else.
        if (chance.chance(0.3)) member.clock.jump(-chance.fraction() * 2 * STEP_MS);
      });
    });
  }
}

function noteBroken({ clock, members, broken }: World, history: History): void {
  for (const { name, id, ended, capacity } of history.holds) {
    if (ended !== "open" || broken.has(id)) continue;
    const knowing = members.filter((member) => member.knows(name, id)).length;
    if (knowing < quorumSize(members.length, capacity)) broken.set(id, clock.now());
  }
}

function cutSome({ clock, chance, members, parties, faults }: World): void {
  for (const { cut } of parties) {
    for (const member of members) {
      if (chance.chance(0.7)) continue;
      clock.after(chance.fraction() * FAULTS_MS * 0.7, () => {
        faults.cuts += 1;
        cut.add(member);
        clock.after(chance.fraction() * 5 * STEP_MS, () => cut.delete(member));
      });
    }
  }
}

function pauseSome({ clock, chance, parties, faults }: World, history: History): void {
  if (chance.chance(0.5)) return;
  for (const [client, { process }] of parties.entries()) {
    if (chance.chance(0.4)) continue;
    clock.after(chance.fraction() * FAULTS_MS * 0.5, () => {
      faults.pauses += 1;
      const pause = { client, from: clock.now(), to: Infinity };
      history.pauses.push(pause);
      process.pause();
      clock.after(chance.fraction() * 8 * STEP_MS, () => {
        pause.to = clock.now();
        process.resume();
      });
    });
  }
}
