import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { Lane, RedisLike } from "./client.js";
import { grouped } from "./grouped.js";
import { isNoScript, translated } from "./refusals.js";
import { commandOf, type ScriptName } from "./scripts.js";

/** How many replicas had an answer when the time was up, and how many should have. */
export type Unmet = { readonly acked: number; readonly needed: number };
export type Acked = { readonly reply: unknown; readonly unmet: Unmet | null };

type Entry = {
  readonly name: ScriptName;
  readonly keys: readonly string[];
  readonly args: readonly string[];
  resolve(acked: Acked): void;
  reject(cause: unknown): void;
};

/** A lane that is made in time; one that is not is given up, and leaves no connection. */
export async function laneWithin(deadlines: CallTimeouts, client: RedisLike): Promise<Lane> {
  const unwanted = new AbortController();
  try {
    return await deadlines.limit(client.lane(unwanted.signal), (late) => late.close());
  } catch (error) {
    unwanted.abort();
    throw error;
  }
}

/**
 * Scripts whose answers count only when replicas have them. WAIT blocks everything behind it on its connection, so this
 * one has its own; what comes while a WAIT is under way goes together with the next one.
 */
export class AckLane {
  readonly #client: RedisLike;
  #lane: Lane;
  readonly #deadlines: CallTimeouts;
  readonly #needed: () => number;
  readonly #waitMs: number;
  readonly #queue: Entry[] = [];
  #busy = false;
  #closed = false;

  constructor(client: RedisLike, lane: Lane, deadlines: CallTimeouts, needed: () => number, waitMs: number) {
    this.#client = client;
    this.#lane = lane;
    this.#deadlines = deadlines;
    this.#needed = needed;
    this.#waitMs = waitMs;
  }

  run(name: ScriptName, keys: readonly string[], args: readonly string[]): Promise<Acked> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ name, keys, args, resolve, reject });
      if (!this.#busy) void this.#drain();
    });
  }

  /** Another connection, when this one has gone silent. */
  async replace(): Promise<void> {
    const next = await laneWithin(this.#deadlines, this.#client);
    this.#lane.close();
    this.#lane = next;
    if (this.#closed) next.close();
  }

  close(): void {
    this.#closed = true;
    this.#deadlines.close();
    this.#lane.close();
  }

  async #drain(): Promise<void> {
    this.#busy = true;
    // After this turn of the event loop: claims asked for together share one WAIT.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const entries = this.#queue.splice(0);
      await Promise.all(this.#groups(entries).map((group) => this.#send(group)));
    }
    this.#busy = false;
  }

  /** A WAIT is about one server: in a Cluster each name goes by itself. */
  #groups(entries: readonly Entry[]): (readonly Entry[])[] {
    if (this.#client.topology !== "cluster") return [entries];
    return [...grouped(entries, (entry) => entry.keys[0] ?? "").values()];
  }

  async #send(entries: readonly Entry[], whole = false): Promise<void> {
    const needed = this.#needed();
    const commands = entries.map(({ name, keys, args }) => commandOf(name, keys, args, whole));
    commands.push(["wait", String(needed), String(this.#waitMs)]);
    let replies: readonly unknown[];
    try {
      replies = await this.#deadlines.limit(this.#lane.pipeline(entries[0]?.keys[0] ?? "", commands));
    } catch (cause) {
      for (const entry of entries) entry.reject(translated(cause));
      return;
    }
    const acked = replies[entries.length];
    const unknown: Entry[] = [];
    entries.forEach((entry, n) => {
      const reply = replies[n];
      if (isNoScript(reply) && !whole) unknown.push(entry);
      else if (reply instanceof Error) entry.reject(translated(reply));
      else if (acked instanceof Error || acked === undefined) entry.reject(translated(acked));
      else entry.resolve({ reply, unmet: Number(acked) < needed ? { acked: Number(acked), needed } : null });
    });
    if (unknown.length > 0) await this.#send(unknown, true);
  }
}
