import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { NotSentError } from "../../src/core/errors.js";
import type { ServerInfo } from "../../src/core/server-info.js";
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
type Faults = {
  crashes: number;
  amnesias: number;
  cuts: number;
  pauses: number;
  jumps: number;
  lists: number;
  beyondLimits: number;
};

export const noFaultsYet = (): Faults => ({
  crashes: 0,
  amnesias: 0,
  cuts: 0,
  pauses: 0,
  jumps: 0,
  lists: 0,
  beyondLimits: 0,
});

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
  /** Those of them that a jumping clock ended, which no quorum can prevent: see quorum-limits.test.ts. */
  readonly beyondLimits: Set<string>;
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
    faults: noFaultsYet(),
    broken: new Map(),
    beyondLimits: new Set(),
  };
  // Clients that list the members differently, and members that will not say who they are: each has its own keeper of the order.
  const lists = chance.chance(0.3);
  if (lists) world.faults.lists += 1;
  const jumps = !forgets && chance.chance(0.3);
  const options = forgets ? { restartGuardMs: LEASE_MAX_MS * 1.1 } : {};
  const engines: Engine[] = [];
  const clients = chance.between(2, 3);
  for (let n = 0; n < clients; n += 1) {
    const faultsOf = (cut: boolean): FaultProfile => (faultsOver ? NO_FAULTS : cut ? CUT : atFirst);
    const { party, engine } = await join(world, {
      rate: rate(-1),
      skewMs: skew(),
      make,
      options,
      faultsOf,
      ...(lists ? { order: shuffled(members, chance), anonymous: true } : {}),
    });
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
    if (jumps) jumpSome(world, history);
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

  const violations = [
    ...checkHistory(within(history, world.beyondLimits), { order: "none", lateMs: 1, ties: true }),
    ...revived,
  ];
  const { delayMs, lostRequest, lostAnswer, lostPush } = atFirst;
  const instant = delayMs + lostRequest + lostAnswer + lostPush === 0;
  if (quiet && instant && !lists && world.faults.pauses === 0) violations.push(...overtaken(history));
  if ("failure" in end) violations.push({ rule: "no unexpected error", what: String(end.failure) });
  if (quiet && atFirst.lostRequest === 0 && atFirst.lostAnswer === 0) violations.push(...leftBehind(members));
  if (members.some((member) => !member.isEmpty))
    violations.push({ rule: "no orphan", what: "a claim outlived its lease" });
  if (clock.pending > 0) violations.push({ rule: "no timer left", what: `${clock.pending} timers` });
  world.faults.beyondLimits = world.beyondLimits.size;
  return { violations, history, faults: world.faults };
}

/** Without the holds that no quorum could keep. */
function within(history: History, beyondLimits: ReadonlySet<string>): History {
  if (beyondLimits.size === 0) return history;
  return {
    ...history,
    holds: history.holds.filter(({ id }) => !beyondLimits.has(id)),
    writes: history.writes.filter(({ hold }) => !beyondLimits.has(hold.id)),
  };
}

/** With all members there, who was known to wait for a mutex before another asked for it holds it before the other. */
function overtaken(history: History): Violation[] {
  const mutexes = history.holds.filter(({ capacity }) => capacity === 1);
  return mutexes.flatMap((one) =>
    mutexes
      .filter((two) => two.name === one.name && one.queuedAt !== null && one.queuedAt < two.askedAt)
      .filter((two) => two.grantedAt < one.grantedAt)
      .map((two) => ({ rule: "turn", what: `client ${two.client} overtook client ${one.client} at "${one.name}"` })),
  );
}

function shuffled<T>(list: readonly T[], chance: SeededChance): readonly T[] {
  return list
    .map((item) => ({ item, at: chance.fraction() }))
    .toSorted((one, two) => one.at - two.at)
    .map(({ item }) => item);
}

export type Joining = {
  /** As this client lists the members. */
  readonly order?: readonly SimulatedMember[];
  /** The members do not tell it who they are. */
  readonly anonymous?: boolean;
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
  const wired = (joining.order ?? members).map((member) => {
    const wire = faulty(member.open(), process, own(), () => joining.faultsOf(cut.has(member)), false);
    const unlessRefused = <T>(call: () => Promise<T>): Promise<T> =>
      member.refuses ? Promise.reject(new NotSentError("not connected")) : call();
    const engine = intercept(wire, { claim: unlessRefused, renew: unlessRefused, release: unlessRefused });
    const serverInfo = async (): Promise<ServerInfo> => ({ ...(await member.serverInfo()), server: "" });
    return joining.anonymous ? { ...engine, serverInfo } : engine;
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

/**
 * A hold that a quorum forgot must be told so: no renewal asked for later may keep it. Unless a jumping clock ended it, of which nobody
 * can know: a copy of its claim that was under way may make it a quorum again.
 */
function watchRevivals({ clock, parties, broken, beyondLimits }: World, history: History): Violation[] {
  const revived: Violation[] = [];
  for (const [client, { locks }] of parties.entries()) {
    locks.on("renewed", ({ id, name, remainingMs }) => {
      const since = broken.get(id);
      // An answer that was under way, or waited for a process that stood still.
      const old = since === undefined || beyondLimits.has(id) || clock.now() < since + STEP_MS;
      const paused = history.pauses.some((pause) => pause.client === client && pause.to >= (since ?? 0));
      if (!old && !paused && remainingMs > 0)
        revived.push({ rule: "lost is final", what: `"${name}" was renewed although a quorum had forgotten it` });
    });
  }
  return revived;
}

/** Where nothing is lost on any wire, each member that granted a claim is told of its end. */
function leftBehind(members: readonly SimulatedMember[]): Violation[] {
  return members.flatMap(({ stood, left }, n) =>
    [...stood]
      .filter((claim) => !left.has(claim))
      .map((claim) => ({ rule: "no orphan", what: `claim ${claim} was left behind at member ${n}` })),
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
    lostPush: some(0.3),
    duplicatePush: some(0.3),
  };
}

/** Clocks of members that somebody sets ahead: leases end there before their time. */
function jumpSome(world: World, history: History): void {
  const { clock, chance, members, parties, faults } = world;
  const note = (): void => noteBroken(world, history);
  for (const { locks } of parties) locks.on("granted", () => void clock.after(0, note));
  for (const member of members) {
    if (chance.chance(0.6)) continue;
    clock.after(chance.fraction() * FAULTS_MS * 0.7, () => {
      faults.jumps += 1;
      member.clock.jump(chance.fraction() * 2 * LEASE_MAX_MS);
      note();
    });
  }
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

/** Holds that fewer than a quorum know. Where a clock has jumped nothing else can be why, and no engine could help it. */
function noteBroken({ clock, members, broken, beyondLimits, faults }: World, history: History): void {
  for (const { name, id, ended, capacity, token, deadline } of history.holds) {
    if (ended !== "open" || broken.has(id)) continue;
    const counting = members.filter((member) => member.counts(name, id, token)).length;
    if (counting >= quorumSize(members.length, capacity)) continue;
    broken.set(id, clock.now());
    if (faults.jumps > 0 && clock.now() < deadline) beyondLimits.add(id);
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
