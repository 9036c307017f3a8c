import { backoffMs } from "../../../../core/backoff.js";
import type { Chance } from "../../../../core/clock.js";
import type { Host } from "../../../../engine-kit/hosts.js";
import { isRefused } from "../../errors.js";

const RECONNECT_MIN_MS = 50;
export const RECONNECT_MAX_MS = 1_000;
/** Servers that refuse us are asked again less often: each time may cost them a session. */
const REFUSED_AGAIN_MS = 5_000;

/** Which server to try next, when, and what came of those that were tried since the last good connection. */
export class Hosts {
  readonly count: number;
  readonly #all: readonly Host[];
  readonly #chance: Chance;
  #next: Host[] = [];
  /** In a row: connections that were not made, or did not last. */
  #failures = 0;
  readonly #outcomes = new Map<Host, Error>();

  constructor(all: readonly Host[], chance: Chance) {
    this.#all = all;
    this.#chance = chance;
    this.count = all.length;
  }

  /** Each in turn, in an order of chance: not all clients go to the first one. */
  next(): Host | undefined {
    if (this.#next.length === 0) {
      const drawn = this.#all.map((host) => ({ host, at: this.#chance.fraction() }));
      this.#next = drawn.toSorted((a, b) => a.at - b.at).map(({ host }) => host);
    }
    return this.#next.pop();
  }

  /** This one is the next. */
  again(host: Host): void {
    this.#next.push(host);
  }

  /** One of them serves us. */
  good(): void {
    this.#outcomes.clear();
  }

  /** Set when none of them serves us, and one at least says that it never will. */
  get refusal(): Error | null {
    if (this.#outcomes.size < this.count) return null;
    return [...this.#outcomes.values()].find((cause) => isRefused(cause)) ?? null;
  }

  /** How long to wait before the next: not at all for another server; when all of them failed, a time that grows. */
  failed(host: Host, cause: Error, lasted: boolean): number {
    this.#outcomes.set(host, cause);
    this.#failures = lasted ? 1 : this.#failures + 1;
    const rounds = Math.floor(this.#failures / this.count);
    if (this.refusal !== null) return backoffMs(0, this.#chance, { minMs: REFUSED_AGAIN_MS, maxMs: REFUSED_AGAIN_MS });
    return rounds === 0 ? 0 : backoffMs(rounds, this.#chance, { minMs: RECONNECT_MIN_MS, maxMs: RECONNECT_MAX_MS });
  }
}
