import { onAbort } from "../core/abort.js";
import type { NotAcquired } from "../core/cancellation.js";
import type { Client } from "../core/client.js";
import { heldHere } from "../core/context.js";
import { DeadlockError, UnsupportedError } from "../core/errors.js";
import type { Grant } from "../core/grant.js";
import type { NameState } from "../core/inspect.js";
import { RETRY_MIN_MS } from "../core/limits.js";
import type { Ask, Terms } from "../core/options.js";
import { acquire } from "../core/wait.js";
import { type Deadlock, findDeadlock, type Stake, stakeOf } from "./deadlock-graph.js";

/** A picture of more names than this is not worth its price. */
const NAMES_MAX = 1_000;
/** Who holds more than fits into this takes no part: it would be sent with every claim. */
const STAKE_MAX_BYTES = 16_384;

/**
 * Take, and if that lasts, look whether it can ever succeed. The claim carries what its own flow of control holds
 * meanwhile, and nothing else counts as held by it: other tasks of the same process go on by themselves
 * (`pitfalls.md` 57).
 */
export async function takeUnlessDeadlocked(
  client: Client,
  ask: Ask,
  terms: Terms,
  afterMs: number,
): Promise<Grant | NotAcquired> {
  const { signal, waitMs } = terms;
  if (client.engine.guarantees.order === "none") {
    const missing = "it does not know who waits, so that nobody can see a deadlock (detectDeadlockAfterMs)";
    throw new UnsupportedError(client.engine.kind, missing, "Limit the wait with waitMs, or use a store with a queue.");
  }
  const holds = waitMs === 0 ? [] : heldHere(client).map(({ claim }) => claim);
  // Whoever holds nothing keeps nobody waiting, and is part of no cycle.
  if (holds.length === 0) return acquire(client, ask, terms);
  const stake: Stake = {
    flow: client.chance.id(),
    since: client.clock.wallMs(),
    holds: holds.map(({ name, id }) => ({ name, id })),
  };
  const data = JSON.stringify({ stake });
  if (Buffer.byteLength(data) > STAKE_MAX_BYTES) {
    const { name } = ask;
    const message = `"${name}" is waited for without looking for deadlocks: what is held around it takes more than ${STAKE_MAX_BYTES} bytes`;
    client.events.emit("warning", () => ({ name, message }));
    return acquire(client, ask, terms);
  }
  const giveUp = new AbortController();
  signal?.throwIfAborted();
  const unlisten = signal && onAbort(signal, () => giveUp.abort(signal.reason));
  const detector = new Detector(client, stake, afterMs, (deadlock) =>
    giveUp.abort(new DeadlockError(ask.name, deadlock.cycle)),
  );
  try {
    return await acquire(client, { ...ask, data }, { ...terms, signal: giveUp.signal });
  } finally {
    detector.stop();
    unlisten?.();
  }
}

class Detector {
  readonly #client: Client;
  readonly #stake: Stake;
  readonly #afterMs: number;
  readonly #found: (deadlock: Deadlock) => void;
  #timer: object;
  #stopped = false;

  constructor(client: Client, stake: Stake, afterMs: number, found: (deadlock: Deadlock) => void) {
    this.#client = client;
    this.#stake = stake;
    this.#afterMs = afterMs;
    this.#found = found;
    this.#timer = this.#arm();
  }

  stop(): void {
    this.#stopped = true;
    this.#client.clock.cancel(this.#timer);
  }

  #arm(): object {
    return this.#client.clock.after(this.#afterMs, () => void this.#look());
  }

  async #look(): Promise<void> {
    try {
      const first = await this.#picture();
      if (first !== null && !this.#stopped) {
        await this.#client.sleep(RETRY_MIN_MS);
        // A claim neither waits nor holds twice: what stands in both pictures stood all the time between them.
        const second = this.#stopped ? null : await this.#picture();
        if (!this.#stopped && second?.signature === first.signature && second.victim === this.#stake.flow) {
          return this.#found(second);
        }
      }
    } catch {
      // The store is away, or the client closes: the wait itself will tell.
    }
    if (!this.#stopped && !this.#client.closed) this.#timer = this.#arm();
  }

  /**
   * Backwards from what this flow holds: who waits for it, what those hold, who waits for that. Whoever is in one cycle
   * with it is found that way, by few names and without a search of the whole store.
   */
  async #picture(): Promise<Deadlock | null> {
    const states = new Map<string, NameState | null>();
    const names = this.#stake.holds.map(({ name }) => name);
    for (let name = names.pop(); name !== undefined; name = names.pop()) {
      if (states.has(name)) continue;
      if (states.size >= NAMES_MAX) return null;
      const state = (await this.#client.state(name)) ?? null;
      states.set(name, state);
      for (const waiter of state?.waiters ?? []) names.push(...(stakeOf(waiter)?.holds ?? []).map((hold) => hold.name));
    }
    return findDeadlock(
      [...states.values()].filter((state) => state !== null),
      this.#stake.flow,
    );
  }
}
