import type { EngineEvent } from "../core/engine.js";
import type { Unlisten } from "../core/unlisten.js";

/** Warnings kept for the first listener: the first ones, which tell what was found while connecting. */
const EARLY_MAX = 20;

/** Who listens to an engine. A warning that nobody could hear yet is kept for the first who listens. */
export class Listeners {
  readonly #listeners = new Set<(event: EngineEvent) => void>();
  readonly #early: EngineEvent[] = [];

  add(listener: (event: EngineEvent) => void): Unlisten {
    this.#listeners.add(listener);
    for (const event of this.#early.splice(0)) queueMicrotask(() => this.#listeners.has(listener) && listener(event));
    return () => this.#listeners.delete(listener);
  }

  tell(event: EngineEvent): void {
    const early = event.kind === "warning" && this.#listeners.size === 0;
    if (early && this.#early.length < EARLY_MAX) this.#early.push(event);
    for (const listener of this.#listeners) listener(event);
  }

  clear(): void {
    this.#listeners.clear();
    this.#early.length = 0;
  }
}
