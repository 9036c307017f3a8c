import type { EngineEvent } from "../core/engine.js";

/** An event as the lock table's functions send it; undefined when it is not theirs: anybody may send on a channel. */
export function parseEvent(text: string): EngineEvent | undefined {
  try {
    const event = JSON.parse(text) as EngineEvent;
    return event.kind === "granted" || event.kind === "lost" ? event : undefined;
  } catch {
    return undefined;
  }
}
