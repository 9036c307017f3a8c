import { Burst, type BurstOptions } from "../core/burst.js";
import type { NotAcquired } from "../core/cancellation.js";
import { checkCount, checkKnown, checkNumber } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { InvalidOptionError, UnsupportedError } from "../core/errors.js";
import type { Grant } from "../core/grant.js";
import { BURST_HOLDS_MAX, LEASE_MAX_MS } from "../core/limits.js";
import type { AcquireOptions, Ask, Terms } from "../core/options.js";
import { defaultTerms } from "./lock.js";
import { Mutex } from "./mutex.js";

export interface MutexOptions {
  /**
   * Let the tasks of this program take turns under one claim of the store, for at most `holds` holds or `ms` milliseconds; then
   * whoever waits elsewhere comes first. More holds a second, less fair: a task of another program waits for a whole burst.
   * Each hold has a token of its own. The holds share the claim's lease: their options are `waitMs`, `signal` and `within`.
   */
  readonly burst?: BurstOptions;
}

/** A mutex, or one that is taken in bursts. */
export function mutexOf(client: Client, name: string, options: MutexOptions): Mutex {
  checkKnown(options, ["burst"]);
  return options.burst === undefined ? new Mutex(client, name) : new BurstMutex(client, name, options.burst);
}

/** Its tasks in this program take turns under one claim. */
class BurstMutex extends Mutex {
  readonly #options: BurstOptions;

  constructor(client: Client, name: string, options: BurstOptions) {
    super(client, name);
    this.#options = checkBurst(client, options);
  }

  protected override shared(options: AcquireOptions): AcquireOptions {
    const own = Object.keys(options).find((key) => !BURST_TERMS.includes(key));
    if (own === undefined) return options;
    throw new InvalidOptionError(own, "the holds of a burst share one claim", BURST_TERMS.join(", "));
  }

  protected override start(
    ask: Ask,
    terms: Terms,
    done: (taken: Grant | NotAcquired) => void,
    failed: (error: unknown) => void,
  ): void {
    burstOf(this.client, ask, this.#options).take(terms, done, failed);
  }
}

const BURST_TERMS: readonly string[] = ["waitMs", "signal", "within"] satisfies (keyof AcquireOptions)[];

/** By client and by what was asked for: tasks that ask for the same take turns, through whatever object they ask. */
const BURSTS = new WeakMap<Client, Map<string, Burst>>();

/** Those that a client remembers, the longest unused first. @internal */
export function burstsOf(client: Client): Map<string, Burst> {
  const bursts = BURSTS.get(client) ?? new Map<string, Burst>();
  BURSTS.set(client, bursts);
  return bursts;
}

function burstOf(client: Client, ask: Ask, options: BurstOptions): Burst {
  const bursts = burstsOf(client);
  const key = `${options.holds} ${options.ms} ${ask.name}`;
  const known = bursts.get(key);
  if (known !== undefined) return known;
  let looked = 0;
  for (const [other, burst] of bursts) {
    // The two oldest are looked at, and stay if they are in use: what nobody uses does not add up.
    if (looked === 2) break;
    looked += 1;
    bursts.delete(other);
    if (!burst.idle) bursts.set(other, burst);
  }
  const burst = new Burst(client, ask, options, defaultTerms(client, undefined));
  bursts.set(key, burst);
  return burst;
}

function checkBurst(client: Client, options: BurstOptions): BurstOptions {
  checkKnown(options, ["holds", "ms"]);
  const holds = checkCount("burst.holds", options.holds, 1, BURST_HOLDS_MAX);
  const ms = checkNumber("burst.ms", options.ms, 1, LEASE_MAX_MS, "milliseconds");
  if (client.engine.reserves) return { holds, ms };
  const missing = "it mints its tokens itself and cannot keep some for a burst";
  throw new UnsupportedError(client.engine.kind, missing, "Leave the option burst out.");
}
