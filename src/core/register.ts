type Entry<V> = { readonly key: string; value: V | undefined };

/**
 * A map whose entries come and go all the time, such as claims by their ids. V8 keeps every table that a Map has outgrown linked
 * to the next one, so an old table that is garbage already keeps all later ones, and all that they refer to, from being
 * collected young: a hot lock spent a third of its time on that. Here a table refers to an entry, which is emptied.
 */
export class Register<V> {
  /** While it has never had two entries: its only one, without a Map. */
  #only: Entry<V> | null = null;
  #entries: Map<string, Entry<V>> | null = null;

  get size(): number {
    return this.#entries?.size ?? (this.#only === null ? 0 : 1);
  }

  get(key: string): V | undefined {
    return this.#entry(key)?.value;
  }

  has(key: string): boolean {
    return this.#entry(key) !== undefined;
  }

  /** Under a key that is not in it. */
  add(key: string, value: V): void {
    const entry = { key, value };
    if (this.#entries !== null) this.#entries.set(key, entry);
    else if (this.#only === null) this.#only = entry;
    else {
      this.#entries = new Map([[this.#only.key, this.#only]]).set(key, entry);
      this.#only = null;
    }
  }

  set(key: string, value: V): void {
    const entry = this.#entry(key);
    if (entry === undefined) this.add(key, value);
    else entry.value = value;
  }

  /** Nothing when another value has taken its place. */
  delete(key: string, value: V): void {
    const entry = this.#entry(key);
    if (entry === undefined || entry.value !== value) return;
    entry.value = undefined;
    if (this.#entries === null) this.#only = null;
    else this.#entries.delete(key);
  }

  /** What is in it now: it may change while this is gone through. */
  values(): V[] {
    const entries = this.#entries?.values() ?? (this.#only === null ? [] : [this.#only]);
    return Array.from(entries, ({ value }) => value as V);
  }

  #entry(key: string): Entry<V> | undefined {
    if (this.#entries !== null) return this.#entries.get(key);
    return this.#only?.key === key ? this.#only : undefined;
  }
}
