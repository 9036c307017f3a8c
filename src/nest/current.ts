import { AsyncLocalStorage } from "node:async_hooks";
import { MisuseError } from "../core/errors.js";
import type { Hold } from "../core/hold.js";
import type { Tick } from "../recipes/ticks.js";

const holds = new AsyncLocalStorage<Hold>();
const ticks = new AsyncLocalStorage<Tick>();

export const runWithHold = <T>(hold: Hold, run: () => T): T => holds.run(hold, run);
export const runWithTick = <T>(tick: Tick, run: () => T): T => ticks.run(tick, run);

/** The hold of the innermost method with `@Lock` that is running: its token, its signals. */
export function currentHold(): Hold {
  return found(holds.getStore(), "currentHold() is for methods with @Lock, and what they call.");
}

/** The tick of the method with `@RunOnce` that is running. */
export function currentTick(): Tick {
  return found(ticks.getStore(), "currentTick() is for methods with @RunOnce, and what they call.");
}

function found<T>(value: T | undefined, advice: string): T {
  if (value === undefined) throw new MisuseError(advice);
  return value;
}
