import type { Clock, Timer } from "../../core/clock.js";
import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import { failureOf } from "./client.js";
import type { Machine } from "./machine.js";
import type { Mailbox } from "./mailbox.js";
import type { Statements } from "./prepared.js";

/** How often a waiting client looks around, when the file system wakes it and when it does not. */
const LOOK_EVERY_MS = 40;
const POLL_EVERY_MS = 20;
/** At most this share of the time is spent on looking, however many names are waited for. */
const LOOK_SHARE = 0.05;
const LOOK_MAX_MS = 4;
/** Holders that are looked at, per name. */
const HOLDERS_MAX = 64;

export type LookoutParts = {
  readonly clock: Clock;
  readonly machine: Machine;
  readonly mailbox: Mailbox;
  readonly sql: Statements;
  /** Take the claims of a process that is gone out of a name. Never rejects. */
  readonly clear: (name: string, guard: string) => void;
  readonly emit: (event: EngineEvent) => void;
};

/**
 * Looks around for the claims of this client that wait: is there mail, was one of them granted by somebody who died
 * before it could write, and does the process ahead of it still live? Runs only while something waits. The first in a
 * queue looks after the holders; everybody else after the first.
 */
export class Lookout {
  readonly #parts: LookoutParts;
  /** Waiting claims of this client: name -> ids. */
  readonly #waiting = new Map<string, Set<string>>();
  #round = this.#waiting.keys();
  #timer: Timer | null = null;

  constructor(parts: LookoutParts) {
    this.#parts = parts;
  }

  waits({ name, id }: ClaimRef): void {
    const ids = this.#waiting.get(name);
    if (ids === undefined) this.#waiting.set(name, new Set([id]));
    else ids.add(id);
    if (this.#timer === null) this.#lookIn(0);
  }

  /** It does not wait any more. False when it did not wait. */
  settled({ name, id }: ClaimRef): boolean {
    const ids = this.#waiting.get(name);
    if (ids === undefined || !ids.delete(id)) return false;
    if (ids.size > 0) return true;
    this.#waiting.delete(name);
    if (this.#waiting.size === 0) this.stop();
    return true;
  }

  stop(): void {
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
    this.#timer = null;
    this.#waiting.clear();
  }

  #lookIn(leastMs: number): void {
    const everyMs = this.#parts.mailbox.watched ? LOOK_EVERY_MS : POLL_EVERY_MS;
    this.#timer = this.#parts.clock.after(Math.max(everyMs, leastMs), () => this.#look());
  }

  #look(): void {
    const { clock, mailbox, emit } = this.#parts;
    const startedAt = clock.now();
    const spentMs = (): number => clock.now() - startedAt;
    try {
      mailbox.read();
      for (let count = this.#waiting.size; count > 0 && spentMs() < LOOK_MAX_MS; count -= 1) this.#lookAtNext();
    } catch (error) {
      // A busy file can wait; what is worse will be told to whoever uses the store next, and is said here.
      if (failureOf(error) !== "busy") emit({ kind: "warning", message: `looking around: ${String(error)}` });
    }
    if (this.#waiting.size > 0) this.#lookIn(spentMs() / LOOK_SHARE);
    else this.#timer = null;
  }

  #lookAtNext(): void {
    let next = this.#round.next();
    if (next.done) {
      this.#round = this.#waiting.keys();
      next = this.#round.next();
    }
    const ids = next.done ? undefined : this.#waiting.get(next.value);
    if (next.done || ids === undefined) return;
    this.#lookAt(next.value, ids);
  }

  #lookAt(name: string, ids: ReadonlySet<string>): void {
    const { sql, machine, mailbox, clear, emit } = this.#parts;
    const holders = sql.holdersFront.all(name, HOLDERS_MAX);
    for (const { id, client } of holders) {
      // Granted, and nobody told us: it will ask.
      if (client === mailbox.address && ids.has(id)) emit({ kind: "wake", name, id });
    }
    const first = sql.waiterFirst.get(name);
    if (first === undefined) return;
    const ahead = ids.has(first.id) && first.client === mailbox.address ? holders : [first];
    for (const guard of new Set(ahead.map((entry) => entry.guard))) {
      if (machine.gone(guard, true)) clear(name, guard);
    }
  }
}
