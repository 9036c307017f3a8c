import type { EngineEvent } from "../core/engine.js";

/** The name of a cell as the lock table's functions send it; null when it is not theirs: any cell may have changed. */
export function parseCellName(text: string): string | null {
  try {
    const name = JSON.parse(text) as unknown;
    return typeof name === "string" ? name : null;
  } catch {
    return null;
  }
}

/** An event as the lock table's functions send it; undefined when it is not theirs: anybody may send on a channel. */
export function parseEvent(text: string): EngineEvent | undefined {
  try {
    const event = JSON.parse(text) as EngineEvent;
    return event.kind === "granted" || event.kind === "lost" ? event : undefined;
  } catch {
    return undefined;
  }
}
