import type { ReleaseAnswer, ReleaseRequest } from "../../core/engine.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import { Batch } from "./batch.js";
import { parseWord } from "./codec.js";
import type { LockKeys } from "./keys.js";
import type { CallScript } from "./scripts.js";

/** As the release script reads them. */
const TOMBSTONE_CODES = { never: 0, always: 1, "if-missing": 2 } as const;

/** How many digits the script reads of a time: as many as the longest `idleMs`, a year, has. */
const DIGITS = 11;

export type ReleasesOptions = {
  readonly call: CallScript;
  readonly keys: LockKeys;
  /** Where this engine is pushed to; empty when nothing is. */
  readonly channel: string;
  readonly cluster: boolean;
  /** The client library may send a command again on its own. */
  readonly resends: boolean;
};

/** Releases made in one turn of the event loop go to the server together. */
export class Releases {
  readonly #options: ReleasesOptions;
  readonly #batch: Batch<ReleaseAnswer>;
  /** How long keys and tombstones are kept. */
  readonly #keptMs: string;

  constructor(options: ReleasesOptions) {
    const { call, keys, cluster } = options;
    this.#options = options;
    this.#keptMs = [keys.idleMsText, String(TOMBSTONE_MS)].map((ms) => ms.padStart(DIGITS, "0")).join("");
    this.#batch = new Batch({
      script: "release",
      call,
      tail: [],
      parse: (text) => parseWord(text, "released", "gone", "revoked"),
      cluster,
    });
  }

  release({ name, id, tombstone = "always", to = "" }: ReleaseRequest): Promise<ReleaseAnswer> {
    const { keys, channel, resends } = this.#options;
    // Where the library sends commands again on its own, "claimed exactly once" cannot be known (`pitfalls.md` 63).
    const code = TOMBSTONE_CODES[resends ? "always" : tombstone];
    return this.#batch.add(keys.keyOf(name), `${code}${this.#keptMs}${id}\n${channel}\n${to}`);
  }

  /** Send what waits for this name. */
  flush(name: string): void {
    this.#batch.flush(this.#options.keys.keyOf(name));
  }
}
