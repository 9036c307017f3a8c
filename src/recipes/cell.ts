import type { Cells } from "../core/cells.js";
import type { Client } from "../core/client.js";
import { EngineUnavailableError, MisuseError, OutcomeUnknownError, UnsupportedError } from "../core/errors.js";
import { RETRY_MIN_MS, TOMBSTONE_MS } from "../core/limits.js";

/** A value with the version under which it stood; null where there is none. */
export type Seen<T> = { readonly version: number; readonly value: T | null };

/**
 * A small shared value of one recipe. What kind it is stands in the value, so that a latch and a counter of the same name
 * find out about each other. (Not in the name: that may have all the bytes a store allows.)
 */
export class SharedValue<T> {
  readonly name: string;
  readonly #client: Client;
  readonly #cells: Cells;
  readonly #kind: string;

  constructor(client: Client, kind: string, name: string) {
    const { engine } = client;
    const cells = (kind === "latch" ? engine.latches : undefined) ?? engine.cells;
    if (cells === null) {
      const advice = "Use a store that keeps cells: memory, SQLite, Redis, PostgreSQL, MySQL, etcd, ZooKeeper.";
      throw new UnsupportedError(engine.kind, `it keeps no small values, which a ${kind} is made of`, advice);
    }
    this.name = name;
    this.#client = client;
    this.#cells = cells;
    this.#kind = kind;
  }

  async read(): Promise<Seen<T>> {
    const { answer } = await this.#client.ask(`reading "${this.name}"`, () => this.#cells.read(this.name));
    return this.#seen(answer);
  }

  /** Takes effect when the version is still `expected`; at most once, whatever becomes of its answers. */
  async write(expected: number, value: T | null): Promise<{ readonly written: boolean; readonly seen: Seen<T> }> {
    const { name } = this;
    const { clock, chance } = this.#client;
    const text = value === null ? null : JSON.stringify({ [this.#kind]: value });
    const write = { name, operation: chance.id(), expected, value: text };
    const firstSentAt = clock.now();
    const { answer, tries } = await this.#client
      .ask(`writing "${name}"`, () => this.#cells.write(write))
      .catch((error: unknown) => {
        throw error instanceof EngineUnavailableError ? new OutcomeUnknownError(name, error) : error;
      });
    // The store remembers an operation for a minute. Sent again after that, it may have met what it wrote itself.
    if (answer.kind === "conflict" && tries > 1 && clock.now() - firstSentAt >= TOMBSTONE_MS) {
      throw new OutcomeUnknownError(name, new Error("this program stood still for longer than the store remembers"));
    }
    return { written: answer.kind === "written", seen: this.#seen(answer.cell) };
  }

  /** Read, change, write, until nobody came in between. `change` answers undefined to leave everything as it is. */
  async update(change: (value: T | null) => T | null | undefined): Promise<Seen<T>> {
    let seen = await this.read();
    for (let conflicts = 0; ; conflicts += 1) {
      const next = change(seen.value);
      if (next === undefined) return seen;
      const answer = await this.write(seen.version, next);
      if (answer.written) return answer.seen;
      seen = answer.seen;
      // Each conflict is somebody else's success; chance keeps the losers from meeting again.
      const { chance } = this.#client;
      if (conflicts > 0) await this.#client.sleep(chance.fraction() * RETRY_MIN_MS * Math.min(conflicts, 8));
    }
  }

  watch(changed: () => void): () => void {
    return this.#cells.watch(this.name, changed);
  }

  #seen({ version, value }: { readonly version: number; readonly value: string | null }): Seen<T> {
    if (value === null) return { version, value };
    const kinds = kindsOf<T>(value);
    const mine = kinds[this.#kind];
    if (mine !== undefined) return { version, value: mine };
    const [other = "value of another program"] = Object.keys(kinds);
    throw new MisuseError(`"${this.name}" is in use as a ${other}, not as a ${this.#kind}. Use another name.`);
  }
}

/** What others wrote past the recipes may be anything. */
function kindsOf<T>(value: string): Record<string, T> {
  try {
    const kinds: unknown = JSON.parse(value);
    return typeof kinds === "object" && kinds !== null && !Array.isArray(kinds) ? (kinds as Record<string, T>) : {};
  } catch {
    return {};
  }
}
