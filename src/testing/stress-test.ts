import { connect } from "../connect.js";
import { type Clock, SystemChance, SystemClock } from "../core/clock.js";
import type { Engine } from "../core/engine.js";
import { Kit, type Setting } from "./conformance/kit.js";
import { contend } from "./contend.js";
import { type FaultProfile, faulty, NO_FAULTS, PausableClock } from "./faults.js";
import { checkHistory, type History, type Violation } from "./history.js";
import { SeededChance } from "./seeded-chance.js";

export type StressTestOptions = Setting & {
  readonly clients?: number;
  readonly rounds?: number;
  /** What happens on the wire between each client and its engine; nothing bad unless said otherwise. */
  readonly faults?: FaultProfile;
  /** The same seed makes the same choices; on a real store their timing still varies. */
  readonly seed?: number;
  /** How late a timer may be on a busy machine before a loss counts as told late. */
  readonly lateMs?: number;
};

const BEAT_MS = 5;

/** On a busy machine the event loop stands still at times: for the clients, all in this process, that is a pause. */
function noteStalls(clock: Clock, clients: number, history: History): () => void {
  let last = clock.now();
  let timer = clock.after(BEAT_MS, beat);
  function beat(): void {
    const now = clock.now();
    if (now > last + 2 * BEAT_MS) {
      for (let client = 0; client < clients; client += 1) history.pauses.push({ client, from: last, to: now });
    }
    last = now;
    timer = clock.after(BEAT_MS, beat);
  }
  return () => clock.cancel(timer);
}

const LISTING_TRIES = 20;

/** Listing changes nothing: on an unreliable connection, where each answer may be lost, it is asked for again. */
async function namesInUse(kit: Kit, engine: Engine, prefix: string): Promise<string[]> {
  for (let tries = 1; ; tries += 1) {
    const names: string[] = [];
    try {
      for await (const { name } of engine.inspect({ prefix })) names.push(name);
      return names;
    } catch (error) {
      if (tries === LISTING_TRIES) throw error;
      await kit.pass(0.25);
    }
  }
}

export type StressTestResult = {
  readonly seed: number;
  readonly violations: readonly Violation[];
  readonly history: History;
};

/**
 * Several whole clients at once on any engine: mutex, read-write lock and semaphore, random leases, waits and work.
 * Nobody knows beforehand what should happen; the history is judged afterwards, and nothing may be left in the store.
 */
export async function stressTest(options: StressTestOptions): Promise<StressTestResult> {
  const { clients = 4, rounds = 10, faults = NO_FAULTS, lateMs = 250 } = options;
  const seed = options.seed ?? Math.floor(new SystemChance().fraction() * 2 ** 32);
  const chance = new SeededChance(seed);
  const kit = new Kit(options);
  const clock: Clock = options.clock ?? new SystemClock();
  const stem = kit.name("stress test");
  try {
    const contenders = [];
    let bursts = false;
    for (let n = 0; n < clients; n += 1) {
      const own = new PausableClock(clock);
      const engine = await kit.open();
      bursts = engine.reserves === true;
      const wired = faulty(engine, own, new SeededChance(seed + n + 1), () => faults);
      const locks = await connect(wired, { clock: own, callTimeoutMs: Math.max(1000, 2 * kit.step) });
      contenders.push({ locks, clock: own });
    }
    const { history, done } = contend({ contenders, observer: clock, chance, rounds, stepMs: kit.step, stem, bursts });
    const stop = options.clock ? () => {} : noteStalls(clock, clients, history);
    await kit.settled(done, 2000).finally(stop);
    await kit.settled(Promise.all(contenders.map(({ locks }) => locks.close())));
    const engine = await kit.open();
    const violations = checkHistory(history, { order: engine.guarantees.order, lateMs });
    // What could not be withdrawn on an unreliable connection ends with its lease, of at most three steps.
    await kit.pass(faults === NO_FAULTS ? 0.1 : 4);
    for (const name of await namesInUse(kit, engine, stem)) {
      violations.push({ rule: "no orphan", what: `"${name}" is still in use` });
    }
    return { seed, violations, history };
  } finally {
    await kit.close();
  }
}
