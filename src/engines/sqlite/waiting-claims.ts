// Beside the usual files: a file has no server that notices when the process of a holder ends, so its waiters check.
import type { Clock, Timer } from "../../core/clock.js";
import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import { failureOf } from "./errors.js";
import type { Machine } from "./machine.js";
import type { Mailbox } from "./mailbox.js";
import type { Statements } from "./statements.js";
import type { Transactions } from "./transactions.js";

/** How often the first waiter of a queue checks the holders. */
const CHECK_FIRST_MS = 40;
/** How often the other waiters check the first: less often in a long queue, because they share the machine. */
const CHECK_OTHERS_MS = 100;
const CHECK_OTHERS_MAX_MS = 2_000;
const CHECK_PER_WAITER_MS = 10;
/** How often the mailbox is read where the file system does not tell of messages, and how often it is tried to watch it again. */
const POLL_EVERY_MS = 20;
const REPAIR_EVERY_MS = 1_000;
/** At most this share of the time is spent on checks, however many names are waited for. */
const CHECK_SHARE = 0.05;
const CHECK_MAX_MS = 4;
/** Holders that are checked, per name. */
const HOLDERS_MAX = 64;

export type WaitingClaimsParts = {
  readonly clock: Clock;
  readonly machine: Machine;
  readonly mailbox: Mailbox;
  readonly transactions: Transactions;
  readonly sql: Statements;
  /** Does this client hold anything? */
  readonly holding: () => boolean;
  /** Remove the claims of an ended process from a name. Never throws. */
  readonly removeProcess: (name: string, process: string) => void;
  readonly emit: (event: EngineEvent) => void;
};

type Action = () => void;

/**
 * The claims of this client that wait, and a periodic check of them: is there a message, was one of them granted by a
 * process that died before it could send a message, and does the process ahead of it still live? Runs only while something
 * waits; where the file system does not tell of messages, also while something is held, which may be released by force. The
 * first waiter of a queue checks the holders; the others check the first.
 */
export class WaitingClaims {
  readonly #parts: WaitingClaimsParts;
  /** Waiting claims of this client: name -> ids. */
  readonly #waiting = new Map<string, Set<string>>();
  #nextNames = this.#waiting.keys();
  #timer: Timer | null = null;
  #checkAt = 0;
  #repairAt = 0;
  /** Emitted once, not at each check. */
  #lastWarning = "";
  #stopped = false;

  constructor(parts: WaitingClaimsParts) {
    this.#parts = parts;
  }

  add({ name, id }: ClaimRef): void {
    const ids = this.#waiting.get(name);
    if (ids === undefined) this.#waiting.set(name, new Set([id]));
    else ids.add(id);
    this.startOrStop();
  }

  /** It does not wait any more. False when it did not wait. */
  remove({ name, id }: ClaimRef): boolean {
    const ids = this.#waiting.get(name);
    if (ids === undefined || !ids.delete(id)) return false;
    if (ids.size > 0) return true;
    this.#waiting.delete(name);
    this.startOrStop();
    return true;
  }

  /** What waits, what is held, or whether the mailbox is watched has changed. */
  startOrStop(): void {
    const { clock } = this.#parts;
    if (this.#needed === (this.#timer !== null)) return;
    if (!this.#needed) return this.#cancelTimer();
    this.#checkAt = clock.now() + CHECK_FIRST_MS;
    this.#schedule();
  }

  /** The file system does not tell of messages any more: a check that is scheduled for later would be too late. */
  poll(): void {
    if (this.#timer === null) return this.startOrStop();
    this.#cancelTimer();
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
    this.#cancelTimer();
  }

  #cancelTimer(): void {
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
    this.#timer = null;
  }

  #schedule(): void {
    const { clock, mailbox } = this.#parts;
    const checkMs = Math.max(0, this.#checkAt - clock.now());
    this.#timer = clock.after(mailbox.watched ? checkMs : Math.min(POLL_EVERY_MS, checkMs), () => this.#check());
    // Whoever holds has timers of its own; whoever has handed its hold over may end.
    if (this.#waiting.size === 0) clock.keepAlive?.(this.#timer, false);
  }

  #check(): void {
    const { clock, mailbox, transactions } = this.#parts;
    const fired = this.#timer;
    try {
      this.#repairMailbox();
      mailbox.read();
      if (clock.now() >= this.#checkAt) {
        mailbox.checkThere();
        this.#checkAt = clock.now() + CHECK_OTHERS_MS;
        if (this.#waiting.size > 0) for (const action of transactions.readNow(() => this.#checkNames())) action();
        this.#lastWarning = "";
      }
    } catch (error) {
      // A busy file is checked again. Any other error will also reject the next call, and is a warning here.
      if (failureOf(error) !== "busy") this.#warn(`checking waiting claims: ${String(error)}`);
      this.#checkAt = Math.max(this.#checkAt, clock.now() + CHECK_OTHERS_MS);
    }
    // Stopped and started again by what was found.
    if (this.#timer !== null && this.#timer !== fired) return;
    this.#timer = null;
    if (this.#needed) this.#schedule();
  }

  #repairMailbox(): void {
    const { clock, mailbox } = this.#parts;
    if (mailbox.watched || clock.now() < this.#repairAt) return;
    this.#repairAt = clock.now() + REPAIR_EVERY_MS;
    mailbox.repair();
  }

  #warn(message: string): void {
    if (message !== this.#lastWarning) this.#parts.emit({ kind: "warning", message });
    this.#lastWarning = message;
  }

  /** What has to be done once the transaction that reads has ended. */
  #checkNames(): Action[] {
    const { clock } = this.#parts;
    const found: Action[] = [];
    const startedAt = clock.now();
    const spentMs = (): number => clock.now() - startedAt;
    let everyMs = CHECK_OTHERS_MAX_MS;
    for (let count = this.#waiting.size; count > 0 && spentMs() < CHECK_MAX_MS; count -= 1) {
      everyMs = Math.min(everyMs, this.#checkName(this.#next(), found));
    }
    this.#checkAt = startedAt + Math.max(everyMs, spentMs() / CHECK_SHARE);
    return found;
  }

  #next(): string {
    let next = this.#nextNames.next();
    if (next.done) {
      this.#nextNames = this.#waiting.keys();
      next = this.#nextNames.next();
    }
    return next.value ?? "";
  }

  /** Returns after how many milliseconds to check this name again. */
  #checkName(name: string, found: Action[]): number {
    const { sql, machine, mailbox, removeProcess } = this.#parts;
    const ids = this.#waiting.get(name);
    if (ids === undefined) return CHECK_OTHERS_MAX_MS;
    this.#checkOneClaim(name, ids, found);
    const holders = sql.holdersFront.all(name, HOLDERS_MAX);
    for (const { id, client } of holders) {
      // Granted, and no message came.
      if (client === mailbox.address && ids.has(id)) found.push(() => this.#emitWake(name, id));
    }
    const first = sql.waiterFirst.get(name);
    const ours = first !== undefined && first.client === mailbox.address && ids.has(first.id);
    const ahead = ours || first === undefined ? holders : [first];
    for (const process of new Set(ahead.map((claim) => claim.process))) {
      if (machine.hasEnded(process, true)) found.push(() => removeProcess(name, process));
    }
    if (ours) return CHECK_FIRST_MS;
    const queue = sql.nameWaiters.get(name)?.waiters ?? 0;
    return Math.min(CHECK_OTHERS_MAX_MS, Math.max(CHECK_OTHERS_MS, queue * CHECK_PER_WAITER_MS));
  }

  /** A claim that is not in the store any more (its release was lost, its lease ended) is not waited for for ever: one at each check, in turn. */
  #checkOneClaim(name: string, ids: Set<string>, found: Action[]): void {
    const [id] = ids;
    if (id === undefined) return;
    ids.delete(id);
    ids.add(id);
    if (this.#parts.sql.claimGet.get(name, id) !== undefined) return;
    found.push(() => {
      this.remove({ name, id });
      this.#emitWake(name, id);
    });
  }

  #emitWake(name: string, id: string): void {
    this.#parts.emit({ kind: "wake", name, id });
  }
}
