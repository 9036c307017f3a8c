// Beyond the fixed set of files: what the verbs of a quorum share.
import type { Clock } from "../../core/clock.js";
import type { Engine } from "../../core/engine.js";
import type { Member } from "./member.js";
import { quorumSize } from "./size.js";
import { type Asked, type Poll, poll, type Question } from "./vote.js";

/** All members of a quorum: how many must agree, and the way to ask them all at once. */
export class Members {
  readonly all: readonly Member[];
  /** How long one member may take before the vote goes on without it. */
  readonly timeoutMs: number;
  readonly #clock: Clock;
  /** All of them, by the index of the one that comes first. */
  readonly #startingWith: (readonly Member[])[] = [];

  constructor(all: readonly Member[], clock: Clock, timeoutMs: number) {
    this.all = all;
    this.timeoutMs = timeoutMs;
    this.#clock = clock;
  }

  get count(): number {
    return this.all.length;
  }

  /** Of the members that are here. */
  get engines(): readonly Engine[] {
    return this.all.flatMap(({ engine }) => (engine === null ? [] : [engine]));
  }

  /** How many must grant a claim at a name of this capacity. */
  quorum(capacity: number): number {
    return quorumSize(this.count, capacity);
  }

  /** The member that keeps the order: of those that answer and have a queue, the first by who they are. */
  keeperOfOrder(): Member | null {
    let first: Member | null = null;
    for (const member of this.all) {
      if (member.keepsOrder && (first === null || member.identity < first.identity)) first = member;
    }
    return first;
  }

  /** All of them, one before the others: where its answer is needed, nobody has to wait for all. */
  startingWith(first: Member): readonly Member[] {
    return (this.#startingWith[first.index] ??= [first, ...this.all.filter((member) => member !== first)]);
  }

  get majority(): number {
    return this.quorum(1);
  }

  /** Ask all of them, or some, within their time limit or another one. */
  ask<T, Result>(question: Partial<Asked> & Question<T, Result>): Poll<T, Result> {
    const { members = this.all, limitMs = this.timeoutMs } = question;
    return poll<T, Result>(this.#clock, { members, limitMs }, question);
  }
}
