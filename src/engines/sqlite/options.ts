import type { Chance, Clock } from "../../core/clock.js";
import type { Machine } from "./machine.js";

export interface SqliteOptions {
  /** Time, chance and the machine, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
  readonly machine?: Machine;
}

export const OPTIONS: readonly string[] = ["clock", "chance", "machine"] satisfies (keyof SqliteOptions)[];
