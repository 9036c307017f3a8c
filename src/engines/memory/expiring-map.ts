// Beside the usual files: tombstones and operations end by themselves.
/** Remembers for `keepMs` at least and twice that at most, in two generations: nothing is searched, nothing accumulates. */
export class ExpiringMap<T> {
  readonly #keepMs: number;
  #newer = new Map<string, T>();
  #older = new Map<string, T>();
  #nextGenerationAt = 0;

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  get(key: string, now: number): T | undefined {
    this.#startGeneration(now);
    return this.#newer.get(key) ?? this.#older.get(key);
  }

  set(key: string, value: T, now: number): void {
    this.#startGeneration(now);
    this.#newer.set(key, value);
  }

  get size(): number {
    return this.#newer.size + this.#older.size;
  }

  #startGeneration(now: number): void {
    if (now < this.#nextGenerationAt) return;
    this.#older = now < this.#nextGenerationAt + this.#keepMs ? this.#newer : new Map();
    this.#newer = new Map();
    this.#nextGenerationAt = now + this.#keepMs;
  }
}
