import { connect } from "../connect.js";
import type { Engine } from "../core/engine.js";
import type { Locks } from "../locks.js";
import { contend } from "./contend.js";
import { FakeClock } from "./fake-clock.js";
import { type FaultProfile, faulty, NO_FAULTS, PausableClock } from "./faults.js";
import { checkHistory, type History, type Violation } from "./history.js";
import { intercept } from "./intercept.js";
import { SeededChance } from "./seeded-chance.js";

/** A store that runs by the fake clock, and opens any number of clients. */
export type SimulatedStore = { open(): Engine };

export type SimulationResult = {
  readonly seed: number;
  readonly violations: readonly Violation[];
  readonly history: History;
  /** How often a lock passed on inside a client, before the store knew. */
  readonly localHandOvers: number;
};

/** Leases in the simulation last from half of this to three times it. */
const STEP_MS = 400;
const FAULTS_MS = 40 * STEP_MS;
const LIMIT_MS = FAULTS_MS + 150 * STEP_MS;

/**
 * Several whole clients, the shipped code unchanged, on one store behind unreliable connections: delays, losses, copies, reordering,
 * hung calls, lost and late pushes, processes that stand still; then no faults, and everybody must come to an end
 * and nothing may be left behind. Everything follows from the seed.
 */
export async function simulate(
  seed: number,
  makeStore: (clock: FakeClock) => SimulatedStore,
): Promise<SimulationResult> {
  const chance = new SeededChance(seed);
  const clock = new FakeClock();
  const store = makeStore(clock);
  const violations: Violation[] = [];
  const seen: Seen = { claimed: new Map(), released: new Set(), rejoined: new Set(), served: new Set() };
  const atFirst = randomFaults(chance);
  let faults = atFirst;
  // Two clocks differ by half a percent at the most: the margin of a deadline is one percent.
  const drift = chance.chance(0.5) ? 0.005 : 0;
  const resends = chance.chance(0.3);
  const processes = Array.from(
    { length: chance.between(2, 4) },
    () => new PausableClock(clock, 1 + drift * (chance.fraction() - 0.5)),
  );
  const contenders: { locks: Locks; clock: PausableClock; rate: number }[] = [];
  for (const process of processes) {
    const wire = faulty(
      watching(store.open(), seen, violations),
      process,
      new SeededChance(chance.between(0, 2 ** 32 - 1)),
      () => faults,
      resends,
    );
    const own = new SeededChance(chance.between(0, 2 ** 32 - 1));
    const locks = await connect(wire, { clock: process, chance: own, callTimeoutMs: STEP_MS });
    contenders.push({ clock: process, rate: process.rate, locks });
  }

  const run = contend({
    contenders,
    observer: clock,
    chance,
    rounds: 3,
    stepMs: STEP_MS,
    stem: "simulated",
    bursts: true,
  });
  const { history } = run;
  const end: { finished: boolean; failure?: unknown } = { finished: false };
  run.done.then(
    () => (end.finished = true),
    (failure: unknown) => Object.assign(end, { finished: true, failure }),
  );
  pauseSome(clock, chance, processes, history);
  while (!end.finished && clock.now() < LIMIT_MS) {
    if (clock.now() >= FAULTS_MS && faults !== NO_FAULTS) faults = NO_FAULTS;
    await clock.advance(STEP_MS);
  }
  faults = NO_FAULTS;
  const closing = Promise.all(contenders.map(({ locks }) => locks.close()));
  await clock.advance(60 * STEP_MS);
  await closing;

  for (const hold of history.holds) if (seen.rejoined.has(hold.id)) hold.queuedAt = null;
  violations.push(...checkHistory(history, { order: "fifo", lateMs: 1 }));
  if (atFirst.lostRequest === 0 && atFirst.lostAnswer === 0) violations.push(...abandoned(seen));
  if ("failure" in end) violations.push({ rule: "no unexpected error", what: String(end.failure) });
  for await (const { name } of store.open().inspect())
    violations.push({ rule: "no orphan", what: `"${name}" is still in use` });
  if (clock.pending > 0) violations.push({ rule: "no timer left", what: `${clock.pending} timers` });
  return { seed, violations, history, localHandOvers: seen.served.size };
}

/** What reached the store, by id of the claim. */
type Seen = {
  readonly claimed: Map<string, string>;
  readonly released: Set<string>;
  /** Its position had ended by lease when a copy of the claim arrived and gave it a new one. */
  readonly rejoined: Set<string>;
  /** Who went on before its predecessor's release arrived. */
  readonly served: Set<string>;
};

/** Sits between wire and store: a claim must not come to life after its own release, in whatever order they arrive. */
function watching(engine: Engine, { claimed, released, rejoined, served }: Seen, violations: Violation[]): Engine {
  return intercept(engine, {
    async claim(call, { name, id }) {
      if (claimed.has(id) && !(await stands(engine, name, id))) rejoined.add(id);
      const dead = released.has(id);
      const answer = await call();
      if (answer.kind !== "granted" && answer.kind !== "queued") return answer;
      claimed.set(id, name);
      if (dead) violations.push({ rule: "no orphan", what: `claim ${id} of "${name}" was revived` });
      return answer;
    },
    release(call, { id, to }) {
      released.add(id);
      if (to !== undefined) served.add(to);
      return call();
    },
  });
}

async function stands(engine: Engine, name: string, id: string): Promise<boolean> {
  for await (const { holders, waiters } of engine.inspect({ name })) {
    return [...holders, ...waiters].some((claim) => claim.id === id);
  }
  return false;
}

/** Where nothing is lost on the wire, every claim is given back or withdrawn, and none is left to its lease. */
function abandoned({ claimed, released }: Seen): Violation[] {
  return [...claimed]
    .filter(([id]) => !released.has(id))
    .map(([id, name]) => ({ rule: "no orphan", what: `claim ${id} of "${name}" was left behind` }));
}

function randomFaults(chance: SeededChance): FaultProfile {
  const some = (most: number): number => (chance.chance(0.5) ? chance.fraction() * most : 0);
  return {
    delayMs: some(STEP_MS / 2),
    lostRequest: some(0.3),
    lostAnswer: some(0.3),
    hang: some(1),
    duplicate: some(0.5),
    lostPush: some(0.7),
    duplicatePush: some(0.5),
  };
}

/** In half of the runs processes stand still for a while, often past their leases. */
function pauseSome(
  clock: FakeClock,
  chance: SeededChance,
  processes: readonly PausableClock[],
  history: History,
): void {
  if (chance.chance(0.5)) return;
  for (const [client, process] of processes.entries()) {
    if (chance.chance(0.4)) continue;
    clock.after(chance.fraction() * FAULTS_MS * 0.5, () => {
      const pause = { client, from: clock.now(), to: Infinity };
      history.pauses.push(pause);
      process.pause();
      clock.after(chance.fraction() * 10 * STEP_MS, () => {
        pause.to = clock.now();
        process.resume();
      });
    });
  }
}
