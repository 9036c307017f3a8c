// Beyond the fixed set of files: the verbs share where a lock's state lies.

/** The key of a name, and how long it outlives everything in it. */
export class LockKeys {
  readonly idleMsText: string;
  /** Before every lock's key, as this engine writes it; the client library may put more before that. */
  readonly #prefix: string;

  constructor(prefix: string, idleMs: number) {
    this.#prefix = `${prefix}lock:`;
    this.idleMsText = String(idleMs);
  }

  keyOf(name: string): string {
    return this.#prefix + name;
  }

  nameOf(key: string): string {
    return key.slice(this.#prefix.length);
  }
}
