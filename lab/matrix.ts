import { runCell } from "./cell.js";
import type { Blank, Expected, Fault, Outcome } from "./fault.js";
import { FAULTS } from "./faults.js";
import type { Findings, Recorded } from "./judge.js";
import { ENGINES, type EngineName, type EngineRow, type Need, type Rig } from "./rigs.js";

/** What is in a cell when it was run: `ok` when it came out as expected and nothing else was found. */
export type Cell = {
  readonly engine: EngineName;
  readonly fault: string;
  readonly expected: Outcome;
  readonly outcome: Outcome | "none" | "failed";
  readonly ok: boolean;
  /** Why not. */
  readonly wrong: readonly string[];
  readonly findings: Findings | null;
  readonly tookMs: number;
};

export type CellRun = {
  readonly cell: Cell;
  readonly recorded: Recorded | null;
  readonly faultAt: number;
  readonly stoppedAt: number | null;
};

export type Choice = {
  readonly engines: readonly EngineRow[];
  readonly faults: readonly Fault[];
};

/** By words: engines and faults by name; none of a kind means all of it. */
export function choose(words: readonly string[]): Choice {
  const engines = ENGINES.filter(({ name }) => words.includes(name));
  const faults = FAULTS.filter(({ name }) => words.includes(name));
  const unknown = words.filter((word) => ![...engines, ...faults].some(({ name }) => name === word));
  if (unknown.length > 0) {
    const known = [...ENGINES, ...FAULTS].map(({ name }) => name).join(", ");
    throw new Error(`there is no ${unknown.join(", ")}; choose from ${known}`);
  }
  return {
    engines: engines.length === 0 ? ENGINES : engines,
    faults: faults.length === 0 ? FAULTS : faults,
  };
}

export const isBlank = (expected: Expected): expected is Blank => typeof expected === "object";

export type MatrixOptions = Choice & {
  readonly library: string;
  readonly seed: number;
  readonly repeat: number;
  readonly started?: (engine: EngineRow, fault: Fault, round: number) => void;
  readonly ended?: (run: CellRun) => void;
};

/** Every chosen cell, engine by engine, as often as wanted. Servers are shared by the faults that leave them as they were. */
export async function runMatrix(options: MatrixOptions): Promise<readonly CellRun[]> {
  const runs: CellRun[] = [];
  for (const engine of options.engines) {
    const rigs = new Rigs(engine);
    try {
      for (const fault of options.faults) {
        const expected = fault.expected[engine.name];
        if (isBlank(expected)) continue;
        for (let round = 0; round < options.repeat; round += 1) {
          options.started?.(engine, fault, round);
          const { library, seed } = options;
          const setting = { library, seed: 100 * seed + 10 * round, name: `lab ${fault.name} ${seed} ${round}` };
          const one = await runOne(engine, fault, expected, rigs, setting);
          runs.push(one);
          options.ended?.(one);
        }
      }
    } finally {
      await rigs.stop();
    }
  }
  return runs;
}

async function runOne(
  engine: EngineRow,
  fault: Fault,
  expected: Outcome,
  rigs: Rigs,
  setting: Parameters<typeof runCell>[3],
): Promise<CellRun> {
  const about = { engine: engine.name, fault: fault.name, expected };
  const need = typeof fault.need === "function" ? fault.need(engine.name) : fault.need;
  try {
    const rig = await rigs.with(need);
    const { findings, recorded, faultAt, stoppedAt, leftBehind, tookMs } = await runCell(engine, fault, rig, setting);
    const { outcome, violations, fencedStale, fencedRefused } = findings;
    const accepted = fencedStale - fencedRefused;
    const wrong = [
      ...(outcome === expected ? [] : [`expected "${expected}", and it was "${outcome}"`]),
      ...violations.map(({ rule, what }) => `${rule}: ${what}`),
      ...(accepted > 0 ? [`${accepted} stale writes were accepted`] : []),
      ...(fencedStale === 0 ? ["nobody tried a stale write"] : []),
      ...(leftBehind === null ? [] : [`left behind: ${leftBehind}`]),
    ];
    const cell: Cell = { ...about, outcome, ok: wrong.length === 0, wrong, findings, tookMs };
    if (!cell.ok) await rigs.drop(need);
    return { cell, recorded, faultAt, stoppedAt };
  } catch (error) {
    await rigs.drop(need);
    const wrong = [error instanceof Error ? error.message : String(error)];
    const cell: Cell = { ...about, outcome: "failed", ok: false, wrong, findings: null, tookMs: 0 };
    return { cell, recorded: null, faultAt: 0, stoppedAt: null };
  } finally {
    // What moved, lost or replaced its servers is not for the next.
    if (need !== "plain" && need !== "cluster") await rigs.drop(need);
  }
}

/** One engine's servers, started when they are needed. */
class Rigs {
  readonly #engine: EngineRow;
  readonly #rigs = new Map<Need, Promise<Rig>>();

  constructor(engine: EngineRow) {
    this.#engine = engine;
  }

  async with(need: Need): Promise<Rig> {
    // Three servers of a kind at a time are enough for a small machine.
    if (need === "cluster" || need === "partition")
      for (const other of this.#rigs.keys()) if (other !== need) await this.drop(other);
    const known = this.#rigs.get(need) ?? this.#engine.start(need);
    this.#rigs.set(need, known);
    return known;
  }

  async drop(need: Need): Promise<void> {
    const rig = this.#rigs.get(need);
    this.#rigs.delete(need);
    await (await rig?.catch(() => undefined))?.stop();
  }

  async stop(): Promise<void> {
    for (const need of [...this.#rigs.keys()]) await this.drop(need);
  }
}
