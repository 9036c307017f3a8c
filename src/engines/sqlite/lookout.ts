import type { Clock, Timer } from "../../core/clock.js";
import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import { failureOf } from "./client.js";
import type { Gate } from "./gate.js";
import type { Machine } from "./machine.js";
import type { Mailbox } from "./mailbox.js";
import type { Statements } from "./prepared.js";

/** How often the first in a queue looks at the holders. */
const LOOK_EVERY_MS = 40;
/** How often the others look at the first: the longer the queue the more of them there are, and they share the machine. */
const LOOK_SELDOM_MS = 100;
const LOOK_SELDOM_MAX_MS = 2_000;
const LOOK_PER_WAITER_MS = 10;
/** How often mail is looked for where the file system does not tell, and how often it is asked to tell again. */
const POLL_EVERY_MS = 20;
const MEND_EVERY_MS = 1_000;
/** At most this share of the time is spent on looking, however many names are waited for. */
const LOOK_SHARE = 0.05;
const LOOK_MAX_MS = 4;
/** Holders that are looked at, per name. */
const HOLDERS_MAX = 64;

export type LookoutParts = {
  readonly clock: Clock;
  readonly machine: Machine;
  readonly mailbox: Mailbox;
  readonly gate: Gate;
  readonly sql: Statements;
  /** Does this client hold anything? */
  readonly holding: () => boolean;
  /** Take the claims of a process that is gone out of a name. Never rejects. */
  readonly clear: (name: string, guard: string) => void;
  readonly emit: (event: EngineEvent) => void;
};

type Act = () => void;

/**
 * Looks around for the claims of this client that wait: is there mail, was one of them granted by somebody who died
 * before it could write, and does the process ahead of it still live? Runs only while something waits; where the file
 * system does not tell of mail, also while something is held, which may be taken away by force. The first in a queue
 * looks after the holders; everybody else after the first.
 */
export class Lookout {
  readonly #parts: LookoutParts;
  /** Waiting claims of this client: name -> ids. */
  readonly #waiting = new Map<string, Set<string>>();
  #round = this.#waiting.keys();
  #timer: Timer | null = null;
  #lookAt = 0;
  #mendAt = 0;
  /** Said once, not at each look. */
  #said = "";
  #stopped = false;

  constructor(parts: LookoutParts) {
    this.#parts = parts;
  }

  waits({ name, id }: ClaimRef): void {
    const ids = this.#waiting.get(name);
    if (ids === undefined) this.#waiting.set(name, new Set([id]));
    else ids.add(id);
    this.adapt();
  }

  /** It does not wait any more. False when it did not wait. */
  settled({ name, id }: ClaimRef): boolean {
    const ids = this.#waiting.get(name);
    if (ids === undefined || !ids.delete(id)) return false;
    if (ids.size > 0) return true;
    this.#waiting.delete(name);
    this.adapt();
    return true;
  }

  /** Begins to look, or ends it: what waits, what is held, or who tells of mail has changed. */
  adapt(): void {
    const { clock } = this.#parts;
    if (this.#needed === (this.#timer !== null)) return;
    if (!this.#needed) return this.#rest();
    this.#lookAt = clock.now() + LOOK_EVERY_MS;
    this.#schedule();
  }

  /** The file system does not tell of mail any more: a look that is planned for later would be too late. */
  unwatched(): void {
    if (this.#timer === null) return this.adapt();
    this.#rest();
    this.#schedule();
  }

  get #needed(): boolean {
    const { mailbox, holding } = this.#parts;
    return !this.#stopped && (this.#waiting.size > 0 || (!mailbox.watched && holding()));
  }

  /** For good. */
  stop(): void {
    this.#stopped = true;
    this.#waiting.clear();
    this.#rest();
  }

  #rest(): void {
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
    this.#timer = null;
  }

  #schedule(): void {
    const { clock, mailbox } = this.#parts;
    const lookMs = Math.max(0, this.#lookAt - clock.now());
    this.#timer = clock.after(mailbox.watched ? lookMs : Math.min(POLL_EVERY_MS, lookMs), () => this.#wake());
    // Whoever holds has timers of its own; whoever has handed its hold over may end.
    if (this.#waiting.size === 0) clock.background?.(this.#timer);
  }

  #wake(): void {
    const { clock, mailbox, gate } = this.#parts;
    const fired = this.#timer;
    try {
      this.#mend();
      mailbox.read();
      if (clock.now() >= this.#lookAt) {
        mailbox.checkThere();
        this.#lookAt = clock.now() + LOOK_SELDOM_MS;
        if (this.#waiting.size > 0) for (const act of gate.peek(() => this.#look())) act();
        this.#said = "";
      }
    } catch (error) {
      // A busy file can wait; what is worse will be told to whoever uses the store next, and is said here.
      if (failureOf(error) !== "busy") this.#warn(`looking around: ${String(error)}`);
      this.#lookAt = Math.max(this.#lookAt, clock.now() + LOOK_SELDOM_MS);
    }
    // Ended and begun anew by what was found.
    if (this.#timer !== null && this.#timer !== fired) return;
    this.#timer = null;
    if (this.#needed) this.#schedule();
  }

  #mend(): void {
    const { clock, mailbox } = this.#parts;
    if (mailbox.watched || clock.now() < this.#mendAt) return;
    this.#mendAt = clock.now() + MEND_EVERY_MS;
    mailbox.mend();
  }

  #warn(message: string): void {
    if (message !== this.#said) this.#parts.emit({ kind: "warning", message });
    this.#said = message;
  }

  /** What there is to do, when the transaction that looks has ended. */
  #look(): Act[] {
    const { clock } = this.#parts;
    const found: Act[] = [];
    const startedAt = clock.now();
    const spentMs = (): number => clock.now() - startedAt;
    let everyMs = LOOK_SELDOM_MAX_MS;
    for (let count = this.#waiting.size; count > 0 && spentMs() < LOOK_MAX_MS; count -= 1) {
      everyMs = Math.min(everyMs, this.#lookInto(this.#next(), found));
    }
    this.#lookAt = startedAt + Math.max(everyMs, spentMs() / LOOK_SHARE);
    return found;
  }

  #next(): string {
    let next = this.#round.next();
    if (next.done) {
      this.#round = this.#waiting.keys();
      next = this.#round.next();
    }
    return next.value ?? "";
  }

  /** Looks at one name. Answers when to look again. */
  #lookInto(name: string, found: Act[]): number {
    const { sql, machine, mailbox, clear } = this.#parts;
    const ids = this.#waiting.get(name);
    if (ids === undefined) return LOOK_SELDOM_MAX_MS;
    this.#checkOne(name, ids, found);
    const holders = sql.holdersFront.all(name, HOLDERS_MAX);
    for (const { id, client } of holders) {
      // Granted, and nobody told us.
      if (client === mailbox.address && ids.has(id)) found.push(() => this.#askFor(name, id));
    }
    const first = sql.waiterFirst.get(name);
    const ours = first !== undefined && first.client === mailbox.address && ids.has(first.id);
    const ahead = ours || first === undefined ? holders : [first];
    for (const guard of new Set(ahead.map((entry) => entry.guard))) {
      if (machine.gone(guard, true)) found.push(() => clear(name, guard));
    }
    if (ours) return LOOK_EVERY_MS;
    const queue = sql.nameWaiters.get(name)?.waiters ?? 0;
    return Math.min(LOOK_SELDOM_MAX_MS, Math.max(LOOK_SELDOM_MS, queue * LOOK_PER_WAITER_MS));
  }

  /** A claim whose end nobody told us of (its release was lost, its lease ended) is not waited for for ever: one each time, in turn. */
  #checkOne(name: string, ids: Set<string>, found: Act[]): void {
    const [id] = ids;
    if (id === undefined) return;
    ids.delete(id);
    ids.add(id);
    if (this.#parts.sql.claimGet.get(name, id) !== undefined) return;
    found.push(() => {
      this.settled({ name, id });
      this.#askFor(name, id);
    });
  }

  #askFor(name: string, id: string): void {
    this.#parts.emit({ kind: "wake", name, id });
  }
}
