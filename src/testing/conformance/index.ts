import { claims } from "./claims.js";
import { client } from "./client.js";
import { handOver } from "./hand-over.js";
import { type Case, Kit, type Setting } from "./kit.js";
import { leases } from "./leases.js";
import { recipes } from "./recipes.js";
import { store } from "./store.js";
import { times } from "./times.js";
import { tokens } from "./tokens.js";

/** Every case, in the order in which they run. */
export const conformanceCases: readonly Case[] = [
  ...claims,
  ...leases,
  ...handOver,
  ...tokens,
  ...store,
  ...times,
  ...client,
  ...recipes,
];

/** Why an engine does not do what a case demands, and a test of what it does instead. */
export type Excuse = { readonly reason: string; readonly instead: (kit: Kit) => Promise<void> };

export type ConformanceOptions = Setting & {
  /** By name of the case. A deviation is tested as what it is; an excuse that names no case is an error. */
  readonly excused?: Readonly<Record<string, Excuse>>;
};

/** The runner's `test`, of vitest, node:test or any other: registers a named asynchronous test. */
export type TestFunction = (name: string, run: () => Promise<void>) => unknown;

/**
 * The conformance suite: what every engine must do, with two or more clients of one store.
 *
 * ```ts
 * import { test } from "vitest";
 * import { conformance } from "holdfast/testing";
 *
 * conformance(test, { engine: () => openMyEngine(url), leaseStepMs: 300 });
 * ```
 */
export function conformance(test: TestFunction, options: ConformanceOptions): void {
  const { excused = {}, ...setting } = options;
  const names = new Set(conformanceCases.map((one) => one.name));
  for (const name of Object.keys(excused)) {
    if (!names.has(name)) throw new Error(`the excuse "${name}" names no case of the suite`);
  }
  for (const { name, run } of conformanceCases) {
    const excuse = excused[name];
    if (excuse === undefined) test(name, () => runCase(run, setting));
    else test(`excused (${excuse.reason}): ${name}`, () => runCase(excuse.instead, setting));
  }
}

/** A machine on which no run of a case is undisturbed is too busy to judge anything. */
const TRIES_MAX = 5;

/** One case by itself, on engines of its own. In real time, one that fails while the machine stands still is run again. */
export async function runCase(run: Case["run"], setting: Setting): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    const kit = new Kit(setting);
    try {
      await run(kit);
      return;
    } catch (error) {
      if (!kit.stalled || tries >= TRIES_MAX) throw error;
    } finally {
      await kit.close();
    }
  }
}
