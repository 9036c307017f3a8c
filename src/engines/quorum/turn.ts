// Beyond the fixed set of files: the votes alone exclude; one member gives order and wakes whoever is next.
import { createHash } from "node:crypto";
import { backoffMs } from "../../core/backoff.js";
import type {
  Busy,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  Queued,
  ReleaseAnswer,
  RenewAnswer,
  Tombstone,
} from "../../core/engine.js";
import { NotSentError } from "../../core/errors.js";
import type { Owner } from "../../core/inspect.js";
import { NAME_MAX_BYTES } from "../../core/limits.js";
import { type ClaimRecord, keyOf } from "./claim-record.js";
import type { Member } from "./member.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";

/** Behind the name of a lock: the name of its queue. Nobody waits at the lock's own name, so that its tokens can be raised. */
export const TURN_SUFFIX = "#holdfast-turn";

/** Names of which this client remembers that others want them too. */
const CONTENDED_MAX = 10_000;

/**
 * A claim's place in the queue at one member: an ordinary claim there, with the units and the capacity of the lock. It is
 * kept while the lock is held, so that giving it back wakes the next one. It decides nothing but who votes first.
 */
export class Turn {
  readonly member: Member;
  readonly ref: ClaimRef;
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

  constructor(member: Member, { name, id }: ClaimRef) {
    this.member = member;
    this.ref = { name: turnNameOf(name), id };
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
      const answer = await engine.claim({
        ...this.ref,
        units,
        capacity,
        leaseMs,
        wait,
        owner,
        ...(data === undefined ? {} : { data }),
        ...(leaseOnly === undefined ? {} : { leaseOnly }),
        ...(fixed === undefined ? {} : { fixed }),
      });
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
    if (answer.kind === "granted" || answer.kind === "queued") this.token = answer.token;
  }

  /** Pushed by the member: the next heartbeat votes. */
  reached(): void {
    this.#isReached = true;
    this.state = "granted";
  }

  get isQueued(): boolean {
    return this.state === "queued";
  }

  /** It may have a place there, or get one by what is under way. */
  get mayStand(): boolean {
    return this.#sent > 0 && (this.state !== "none" || this.#unanswered > 0 || this.#sent > 1);
  }

  release(engine: Engine, claimedOnce: boolean): Promise<ReleaseAnswer> {
    const once = claimedOnce && this.#sent <= 1;
    const tombstone: Tombstone = once ? (this.#unanswered === 0 ? "never" : "if-missing") : "always";
    return engine.release({ ...this.ref, tombstone });
  }
}

/** Which member keeps the order, and who of this client waits there. */
export class Turns {
  readonly #members: Members;
  readonly #settings: Settings;
  readonly #emit: (event: EngineEvent) => void;
  /** By the turn's own name and the claim's id. */
  readonly #waiting = new Map<string, ClaimRecord>();
  /** Names at which a claim of this client last had to wait: votes without the turn would only be in the way there. */
  readonly #contended = new Set<string>();

  constructor(members: Members, settings: Settings, emit: (event: EngineEvent) => void) {
    this.#members = members;
    this.#settings = settings;
    this.#emit = emit;
  }

  /** At the first member that answers, in an order that all clients share; null where no member keeps a queue. */
  of(ref: ClaimRef): Turn | null {
    const member = this.#members.keeperOfOrder();
    return member === null ? null : new Turn(member, ref);
  }

  /** What a process made that handed the claim over to this one, or is to be released by it. */
  handedOver(ref: ClaimRef): Turn | null {
    const member = this.#members.keeperOfOrder();
    return member === null ? null : Turn.handedOver(member, ref);
  }

  isContended(name: string): boolean {
    return this.#contended.has(name);
  }

  /** Whether the last claim at this name had to wait. */
  noteContended(name: string, contended: boolean): void {
    if (!contended) {
      if (this.#contended.size > 0) this.#contended.delete(name);
      return;
    }
    if (this.#contended.size >= CONTENDED_MAX) this.#contended.delete(this.#contended.values().next().value ?? "");
    this.#contended.add(name);
  }

  /** Ask for the turn alone: where others wait, only who has it votes. */
  async ask(turn: Turn, request: ClaimRequest, limitMs: number): Promise<void> {
    const { decided } = this.#members.ask<void, true>({
      members: [turn.member],
      limitMs,
      ask: (engine) => turn.ask(engine, request),
      decide: () => true,
    });
    await decided;
    if (turn.state === "unasked") turn.state = "none";
  }

  /** For so long whoever has its turn may vote, and keep what it has of the votes. */
  get votingMs(): number {
    return 2 * this.#settings.memberTimeoutMs;
  }

  /** Before it is asked for: a push may overtake the answer. */
  expect(record: ClaimRecord, turn: Turn): void {
    this.#waiting.set(keyOf(turn.ref), record);
  }

  /** The claim waits. Who has its turn and no votes yet asks again soon: a release may be on its way to the others. */
  queued(record: ClaimRecord, { state, token, nextMs, holder }: Turn): Queued {
    record.waiting = true;
    const isVoting = state === "granted" || record.votedAt !== null;
    const lookMs = record.freeSince === null ? nextMs : this.votingMs;
    const soonestMs = isVoting ? backoffMs(1, this.#settings.chance) : lookMs;
    return { kind: "queued", token, nextMs: soonestMs, ...(holder === undefined ? {} : { holder }) };
  }

  /** It is held, or given back. */
  leave(record: ClaimRecord): void {
    record.waiting = false;
    if (record.turn !== null) this.#waiting.delete(keyOf(record.turn.ref));
  }

  /** An event about a turn: whoever it concerns asks. False: it is about something else. */
  handle(event: EngineEvent): boolean {
    if (event.kind === "warning" || event.name?.endsWith(TURN_SUFFIX) !== true) return false;
    const record = event.id === undefined ? undefined : this.#waiting.get(keyOf({ name: event.name, id: event.id }));
    if (record?.turn) {
      if (event.kind === "granted") record.turn.reached();
      this.#wake(record);
    }
    return true;
  }

  /** Whoever waits there finds out by itself whether it is. */
  memberWentAway(member: Member): void {
    for (const record of this.#waiting.values()) if (record.turn?.member === member) this.#wake(record);
  }

  #wake({ claim: { name, id } }: ClaimRecord): void {
    this.#emit({ kind: "wake", name, id });
  }
}

/** Names have a longest length, also with what is added here. */
export function turnNameOf(name: string): string {
  const whole = name + TURN_SUFFIX;
  if (3 * whole.length <= NAME_MAX_BYTES || Buffer.byteLength(whole) <= NAME_MAX_BYTES) return whole;
  return createHash("sha256").update(name).digest("base64url") + TURN_SUFFIX;
}
