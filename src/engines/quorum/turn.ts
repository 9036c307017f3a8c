// Beyond the fixed set of files: the votes alone exclude; one member gives order and wakes whoever is next.
import { createHash } from "node:crypto";
import type { Writable } from "../../core/claim-request.js";
import type {
  Busy,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  ReleaseAnswer,
  RenewAnswer,
  Tombstone,
} from "../../core/engine.js";
import { NotSentError } from "../../core/errors.js";
import type { Owner } from "../../core/inspect.js";
import { NAME_MAX_BYTES } from "../../core/limits.js";
import type { Member } from "./member.js";

/** Behind the name of a lock: the name of its queue. Nobody waits at the lock's own name, so that its tokens can be raised. */
export const TURN_SUFFIX = "#holdfast-turn";

/**
 * A claim's place in the queue at one member: an ordinary claim there, with the units and the capacity of the lock. It is
 * kept while the lock is held, so that giving it back wakes the next one. It decides nothing but who votes first.
 */
export class Turn {
  readonly member: Member;
  readonly ref: ClaimRef;
  /** Of `ref`. */
  readonly key: string;
  /** `none`: the member did not answer, or keeps no place for it. */
  state: "unasked" | "granted" | "queued" | "none" = "unasked";
  token = 0;
  /** For the first of those who wait. */
  nextMs: number | null = null;
  holder: Owner | undefined;
  /** What the member said to a claim that does not wait: others hold it or wait for it. */
  refusal: Busy | null = null;
  #sent = 0;
  #unanswered = 0;
  /** A push said that it is granted. */
  #isReached = false;
  /** It was told of a place: whatever is answered later (`gone`, or nothing), it is released once. */
  #stood = false;

  constructor(member: Member, { name, id }: ClaimRef) {
    this.member = member;
    this.ref = { name: turnNameOf(name), id };
    this.key = keyOf(this.ref);
  }

  /** Another process made it. */
  static handedOver(member: Member, ref: ClaimRef): Turn {
    const turn = new Turn(member, ref);
    turn.#sent = 2;
    return turn;
  }

  /** Ask for it, in the same call as the member's vote. Never rejects: whoever gets no turn goes on without. */
  async ask(engine: Engine, { units, capacity, leaseMs, wait, owner, data, leaseOnly, fixed }: ClaimRequest) {
    const copies = engine.resends ? 2 : 1;
    this.#sent += copies;
    this.#unanswered += 1;
    try {
      const { name, id } = this.ref;
      const claim: Writable<ClaimRequest> = { name, id, units, capacity, leaseMs, wait, owner };
      if (data !== undefined) claim.data = data;
      if (leaseOnly !== undefined) claim.leaseOnly = leaseOnly;
      if (fixed !== undefined) claim.fixed = fixed;
      const answer = await engine.claim(claim);
      this.#unanswered -= 1;
      // A push may overtake the answer (`pitfalls.md` 59).
      if (this.#isReached && answer.kind === "queued") this.token = answer.token;
      else this.note(answer);
    } catch (error) {
      if (error instanceof NotSentError) {
        this.#sent -= copies;
        this.#unanswered -= 1;
      }
      this.state = "none";
    }
  }

  note(answer: ClaimAnswer | RenewAnswer): void {
    if (answer.kind === "unknown") return;
    this.state = answer.kind === "granted" || answer.kind === "queued" ? answer.kind : "none";
    this.refusal = answer.kind === "busy" ? answer : null;
    this.nextMs = answer.kind === "queued" ? answer.nextMs : null;
    if (answer.kind === "queued" || answer.kind === "busy") this.holder = answer.holder ?? this.holder;
    if (answer.kind !== "granted" && answer.kind !== "queued") return;
    this.token = answer.token;
    this.#stood = true;
  }

  /** Pushed by the member: the next heartbeat votes. */
  reached(): void {
    this.#isReached = true;
    this.#stood = true;
    this.state = "granted";
  }

  get isQueued(): boolean {
    return this.state === "queued";
  }

  /** It may have a place there, or get one by what is under way. */
  get mayStand(): boolean {
    return this.#sent > 0 && (this.#stood || this.#unanswered > 0 || this.#sent > 1);
  }

  release(engine: Engine, claimedOnce: boolean): Promise<ReleaseAnswer> {
    const once = claimedOnce && this.#sent <= 1;
    const tombstone: Tombstone = once ? (this.#unanswered === 0 ? "never" : "if-missing") : "always";
    return engine.release({ name: this.ref.name, id: this.ref.id, tombstone });
  }
}

/** By which claims and turns are found: one id may be used for several names. */
export function keyOf({ name, id }: ClaimRef): string {
  return `${id} ${name}`;
}

/** Names have a longest length, also with what is added here. */
export function turnNameOf(name: string): string {
  const whole = name + TURN_SUFFIX;
  if (3 * whole.length <= NAME_MAX_BYTES || Buffer.byteLength(whole) <= NAME_MAX_BYTES) return whole;
  return createHash("sha256").update(name).digest("base64url") + TURN_SUFFIX;
}
