import { createHash } from "node:crypto";
import { checkCount, optionsAndCallback, shown } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { InvalidOptionError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import { MultiLock, type MultiOptions } from "./multi.js";
import { Mutex } from "./mutex.js";

const STRIPES_MAX = 10_000;

/** The part of the stripe with this index. */
type PartOf = (index: number) => number | PromiseLike<number>;

/**
 * One lock cut into stripes: work on different keys goes on side by side, unless chance puts the keys on one stripe.
 * All programs must say the same number of stripes, or they lock different things.
 */
export class Striped {
  readonly name: string;
  readonly stripes: number;
  readonly #locks: readonly Mutex[];

  /** @internal */
  constructor(client: Client, name: string, stripes: number) {
    this.name = name;
    this.stripes = checkCount("stripes", stripes, 1, STRIPES_MAX);
    this.#locks = Array.from({ length: stripes }, (_, index) => new Mutex(client, checkName(`${name}/${index}`)));
  }

  /**
   * The stripe of a key, from 0: the first six bytes of the SHA-256 of its UTF-8, as one big-endian number, modulo the
   * number of stripes. The same in every process, language and version.
   */
  indexOf(key: string): number {
    if (typeof key !== "string" || !key.isWellFormed())
      throw new InvalidOptionError("key", shown(key), "well-formed text");
    return createHash("sha256").update(key).digest().readUIntBE(0, 6) % this.stripes;
  }

  /** The lock of a key. */
  for(key: string): Mutex {
    return this.at(this.indexOf(key));
  }

  /** The lock of a stripe, `name/index`. */
  at(index: number): Mutex {
    return this.#locks[checkCount("index", index, 0, this.stripes - 1)] as Mutex;
  }

  /** Every stripe as one lock. */
  all(): MultiLock {
    return new MultiLock(this.#locks);
  }

  /** Every stripe once, the key's own first: where that one has nothing left, walk on. */
  *walk(key: string): Generator<{ readonly index: number; readonly lock: Mutex }> {
    const first = this.indexOf(key);
    for (let step = 0; step < this.stripes; step += 1) {
      const index = (first + step) % this.stripes;
      yield { index, lock: this.at(index) };
    }
  }

  /** A total in whole parts, one for each stripe, that differ by one at most. */
  split(total: number): number[] {
    checkCount("total", total, 0, Number.MAX_SAFE_INTEGER);
    const least = Math.floor(total / this.stripes);
    return this.#locks.map((_, index) => least + (index < total % this.stripes ? 1 : 0));
  }

  /** The sum of all parts, read while every stripe is held, so that nothing moves meanwhile. */
  sum(partOf: PartOf): Promise<number>;
  sum(options: MultiOptions | undefined, partOf: PartOf): Promise<number>;
  async sum(first: MultiOptions | undefined | PartOf, second?: PartOf): Promise<number> {
    const [options, partOf] = optionsAndCallback<MultiOptions, PartOf>("partOf", first, second);
    return this.all().using(options, async () => {
      const parts = await Promise.all(this.#locks.map(async (_, index) => partOf(index)));
      return parts.reduce((sum, part) => sum + part, 0);
    });
  }
}
