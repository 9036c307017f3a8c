/** Remembers for `keepMs` at least and twice that at most, in two generations: nothing is searched, nothing piles up. */
export class Recent<T> {
  readonly #keepMs: number;
  #young = new Map<string, T>();
  #old = new Map<string, T>();
  #turnAt = 0;

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  get(key: string, now: number): T | undefined {
    this.#turn(now);
    return this.#young.get(key) ?? this.#old.get(key);
  }

  set(key: string, value: T, now: number): void {
    this.#turn(now);
    this.#young.set(key, value);
  }

  get size(): number {
    return this.#young.size + this.#old.size;
  }

  #turn(now: number): void {
    if (now < this.#turnAt) return;
    this.#old = now < this.#turnAt + this.#keepMs ? this.#young : new Map();
    this.#young = new Map();
    this.#turnAt = now + this.#keepMs;
  }
}
