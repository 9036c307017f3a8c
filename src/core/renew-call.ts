import { type Deadlines, Moment, type Timed } from "./deadlines.js";

/** After so many time limits a call without an answer counts as lost, and its place is free. */
const LIMITS_UNTIL_LOST = 2;

/** Who made the call. */
export type RenewCaller<Claim> = {
  /** Not answered within the time limit. It keeps its place: what was sent is in a connection or a server, and may be answered. */
  late(call: RenewCall<Claim>, cause: Error): void;
  /** Not answered for so long that nobody waits for it any more. Should it be answered after all, that counts. */
  lost(call: RenewCall<Claim>): void;
};

/** One call with heartbeats, while it is under way. It is not sent again: the loop sends new ones. */
export class RenewCall<Claim> implements Timed {
  readonly claims: readonly Claim[];
  readonly sentAt: number;
  isLate = false;
  isLost = false;
  readonly #limitMs: number;
  readonly #deadlines: Deadlines;
  readonly #caller: RenewCaller<Claim>;
  readonly #moment = new Moment();

  constructor(
    claims: readonly Claim[],
    sentAt: number,
    limitMs: number,
    deadlines: Deadlines,
    caller: RenewCaller<Claim>,
  ) {
    this.claims = claims;
    this.sentAt = sentAt;
    this.#limitMs = limitMs;
    this.#deadlines = deadlines;
    this.#caller = caller;
    deadlines.set(this.#moment, this, sentAt + limitMs, sentAt);
  }

  due(now: number): void {
    if (this.isLate) {
      this.isLost = true;
      this.#caller.lost(this);
      return;
    }
    this.isLate = true;
    this.#deadlines.set(this.#moment, this, this.sentAt + LIMITS_UNTIL_LOST * this.#limitMs, now);
    this.#caller.late(this, new Error(`no answer within ${this.#limitMs} ms`));
  }

  /** It was answered, or failed. */
  end(): void {
    this.#deadlines.clear(this.#moment);
  }
}
