import type { Clock, Timer } from "../core/clock.js";
import { ClosedError } from "../core/errors.js";
import { behindOthers } from "../core/turn.js";
import type { AnswerOf, BatchRequest, ParametersOf, Terms } from "./verbs.js";

/** How many requests one call carries. */
const REQUESTS_PER_CALL = 32;
/** How many calls are under way at once: while the server works on one, the program reads the answers to another. */
const LANES = 2;
/** A call that takes longer waits for something: another one may be under way beside it. */
const SLOW_MS = 250;

/** What may go into a batch. */
export type Batched = "claim" | "release";
type Batch = { readonly requests: readonly BatchRequest[]; readonly terms: readonly Terms[] };
type Parameters = ParametersOf<"claim"> | ParametersOf<"release">;

type Entry = {
  readonly verb: Batched;
  readonly parameters: Parameters;
  /** After this nobody waits for its answer. */
  readonly until: number;
  readonly resolve: (answer: AnswerOf<Batched>) => void;
  readonly reject: (cause: unknown) => void;
};

export type BatchesParts = {
  readonly clock: Clock;
  readonly limitMs: number;
  /** How many connections there are for calls. */
  readonly connections: () => number;
  /** One request by itself, tried again where nothing was done. */
  readonly alone: (verb: Batched, parameters: Parameters) => Promise<AnswerOf<Batched>>;
  readonly together: (batch: Batch) => Promise<readonly AnswerOf<Batched>[]>;
  /** What an error of `together` is for each of the requests; null when nothing was done. */
  readonly unknown: (cause: unknown) => Error | null;
};

/**
 * Claims and releases that are asked for while a call is under way go together when it returns: one transaction for all of
 * them. One alone costs what it costs, and nothing waits for a timer unless the calls under way do not return: what is asked
 * for in one turn of the event loop leaves at its end.
 *
 * The requests for one name keep their order, one call after the other. A batch that the server refused is sent again one by
 * one under the same ids, so that an error is nobody else's, and so that a row which somebody keeps locked delays its name
 * alone.
 */
export class Batches {
  readonly #parts: BatchesParts;
  #waiting: Entry[] = [];
  readonly #calls = new Set<{ readonly sentAt: number }>();
  /** Those with a request under way. */
  readonly #names = new Set<string>();
  #scheduled = false;
  #timer: Timer | null = null;
  #closed = false;

  constructor(parts: BatchesParts) {
    this.#parts = parts;
  }

  add<V extends Batched>(verb: V, parameters: ParametersOf<V>): Promise<AnswerOf<V>> {
    return new Promise<AnswerOf<V>>((resolve, reject) => {
      const until = this.#parts.clock.now() + this.#parts.limitMs;
      this.#waiting.push({ verb, parameters, until, resolve, reject } as Entry);
      this.#schedule();
    });
  }

  /** What was not sent yet is not sent any more. */
  close(): void {
    this.#closed = true;
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
    for (const { verb, reject } of this.#waiting.splice(0)) reject(new ClosedError(`the ${verb}`));
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    behindOthers(this.#flush);
  }

  readonly #flush = (): void => {
    this.#scheduled = false;
    const now = this.#parts.clock.now();
    this.#dropLate(now);
    for (let free = this.#free(now); free > 0; free -= 1) {
      const entries = this.#take();
      if (entries.length === 0) break;
      void this.#send(entries, now);
    }
    // The calls under way may be slow ones, and nobody may ask again.
    if (this.#waiting.length > 0) this.#timer ??= this.#parts.clock.after(SLOW_MS, this.#lookAgain);
  };

  readonly #lookAgain = (): void => {
    this.#timer = null;
    this.#flush();
  };

  /** How many calls may be made now. One connection is left to heartbeats. */
  #free(now: number): number {
    let quick = 0;
    for (const { sentAt } of this.#calls) if (now - sentAt < SLOW_MS) quick += 1;
    return Math.min(LANES - quick, Math.max(1, this.#parts.connections() - 1) - this.#calls.size);
  }

  /** What has waited for too long is not sent any more. The oldest is the first. */
  #dropLate(now: number): void {
    const first = this.#waiting.findIndex(({ until }) => now < until);
    const late = this.#waiting.splice(0, first === -1 ? this.#waiting.length : first);
    for (const { reject } of late) reject(new Error("the calls before it took too long"));
  }

  /** The next ones whose names have nothing under way. */
  #take(): readonly Entry[] {
    const taken: Entry[] = [];
    const passed: Entry[] = [];
    let at = 0;
    for (; at < this.#waiting.length && taken.length < REQUESTS_PER_CALL; at += 1) {
      const entry = this.#waiting[at] as Entry;
      if (this.#names.has(entry.parameters.name)) passed.push(entry);
      else taken.push(entry);
    }
    this.#waiting = passed.concat(this.#waiting.slice(at));
    for (const { parameters } of taken) this.#names.add(parameters.name);
    return taken;
  }

  async #send(entries: readonly Entry[], sentAt: number): Promise<void> {
    const call = { sentAt };
    this.#calls.add(call);
    if (entries.length === 1) await this.#oneByOne(entries);
    else await this.#together(entries);
    this.#calls.delete(call);
    this.#schedule();
  }

  async #together(entries: readonly Entry[]): Promise<void> {
    // In an order that all clients share: two batches that make the same new names cannot wait for each other.
    const sorted = entries.toSorted((one, two) => compare(one.parameters.name, two.parameters.name));
    try {
      const answers = await this.#parts.together(batchOf(sorted));
      for (const [at, { resolve, reject }] of sorted.entries()) {
        const answer = answers[at];
        if (answer === undefined) reject(new Error("the lock table left an answer out"));
        else resolve(answer);
      }
    } catch (cause) {
      // Not awaited: one of them may wait for somebody who keeps its row locked.
      if (this.#parts.unknown(cause) === null) {
        this.#apart(sorted);
        return;
      }
      for (const { reject } of sorted) reject(this.#parts.unknown(cause));
    }
    for (const { parameters } of sorted) this.#names.delete(parameters.name);
  }

  /** Each by itself, the names side by side. */
  #apart(sorted: readonly Entry[]): void {
    for (let at = 0; at < sorted.length; ) {
      const { name } = (sorted[at] as Entry).parameters;
      const next = sorted.findLastIndex(({ parameters }) => parameters.name === name) + 1;
      void this.#oneByOne(sorted.slice(at, next)).then(() => this.#schedule());
      at = next;
    }
  }

  /** All of one name. */
  async #oneByOne(entries: readonly Entry[]): Promise<void> {
    for (const { verb, parameters, resolve, reject } of entries) {
      if (this.#closed) reject(new ClosedError(`the ${verb}`));
      else await this.#parts.alone(verb, parameters).then(resolve, reject);
    }
    for (const { parameters } of entries) this.#names.delete(parameters.name);
  }
}

/** What claims have in common is said once. */
function batchOf(entries: readonly Entry[]): Batch {
  const terms: Terms[] = [];
  const numbers = new Map<string, number>();
  const requests = entries.map(({ parameters }, at): BatchRequest => {
    const { name, id } = parameters;
    if (!("capacity" in parameters)) return [name, id, kindOfRelease(parameters, entries[at + 1]), parameters.to];
    const { units, capacity, leaseMs, waiterMs, wait, owner, data, exact, atLeast, reserve } = parameters;
    const key = `${units} ${capacity} ${leaseMs} ${waiterMs} ${wait} ${exact} ${atLeast} ${reserve} ${owner} ${data}`;
    const number =
      numbers.get(key) ?? terms.push([units, capacity, leaseMs, waiterMs, wait, owner, data, exact, atLeast, reserve]);
    numbers.set(key, number);
    return [name, id, number, null];
  });
  return { requests, terms };
}

function kindOfRelease({ name, tombstone, to }: ParametersOf<"release">, next: Entry | undefined): number {
  if (tombstone) return -1;
  const follows = next?.verb === "release" && next.parameters.name === name && next.parameters.id === to;
  return follows ? -2 : 0;
}

function compare(one: string, two: string): number {
  return one < two ? -1 : Number(one > two);
}
