// Beyond the fixed set of files: which member keeps the order, and who stands there.
import { backoffMs } from "../../core/backoff.js";
import type { ClaimRef, ClaimRequest, EngineEvent, Queued } from "../../core/engine.js";
import type { ClaimRecord } from "./claim-record.js";
import type { Member } from "./member.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import { keyOf, TURN_SUFFIX, Turn } from "./turn.js";

/** Names of which this client remembers that others want them too. */
const CONTENDED_MAX = 10_000;

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
    this.#waiting.set(turn.key, record);
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
    if (record.turn !== null) this.#waiting.delete(record.turn.key);
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
