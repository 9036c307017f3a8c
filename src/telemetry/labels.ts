import type { TracedLock } from "../core/tracing.js";

/** More different names than this in one process, and the rest share one label: a metric's series cost memory in every store of them. */
const NAMES_MAX = 100;
const NAME_MAX_LENGTH = 100;
const OTHER = "(other)";

/** What stands for a lock's name in metrics. Undefined: nothing does. */
export type NameOf = (lock: TracedLock) => string | undefined;

/** Names are data, and anybody may have chosen them: however many there are, the labels are few and short. */
export class Labels {
  readonly #nameOf: NameOf | undefined;
  readonly #seen = new Set<string>();

  constructor(nameOf: NameOf | undefined) {
    this.#nameOf = nameOf;
  }

  of(lock: TracedLock): string | undefined {
    const name = this.#nameOf?.(lock);
    if (typeof name !== "string" || name === "") return undefined;
    const label = name.slice(0, NAME_MAX_LENGTH).toWellFormed();
    if (!this.#seen.has(label) && this.#seen.size >= NAMES_MAX) return OTHER;
    this.#seen.add(label);
    return label;
  }
}
