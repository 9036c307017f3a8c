// Beyond the fixed set of files: what claim, renew and release know of one claim.
import type { ClaimAnswer, ClaimRef, ClaimRequest, Engine, RenewAnswer } from "../../core/engine.js";
import { NotSentError } from "../../core/errors.js";
import { keyOf, type Turn } from "./turn.js";

/** What became of a claim at one member, as far as this client knows. */
type MemberRecord = {
  /** Copies of the claim sent to it, the repairs among them. */
  sent: number;
  unanswered: number;
  /** The kind of its last answer; null before the first. */
  answered: (ClaimAnswer | RenewAnswer)["kind"] | null;
  /** The token in its last answer; 0 when none. */
  token: number;
  /** It does not know yet that the units became fewer. */
  missedResize: boolean;
  /** It is known to have held the claim while a quorum did. */
  kept: boolean;
};

/** One claim of this client: what was asked, the token that counts, and what became of it at each member. */
export class ClaimRecord {
  claim: ClaimRequest;
  /** The quorum's token; 0 until it is granted. Members may have stored a higher one, never a lower one that counts. */
  token = 0;
  /** The token that was last written back. It may still arrive at any member, so none below it may count. */
  writtenBack = 0;
  /** It was given back, or is being given back. */
  released = false;
  /** A member that kept it has forgotten it since: a copy that came later could bring back what was lost. */
  forgotten = false;
  /** Since when it stands on a bare majority; null: it does not. */
  bareSince: number | null = null;
  /** Its place in the queue of one member; null where no member keeps one. */
  turn: Turn | null = null;
  /** It stands there and is not granted yet. */
  waiting = false;
  /** When it first voted with its turn; null before. */
  votedAt: number | null = null;
  /** Since when the lock is free although others stand ahead, as far as it has looked; null: it is not. */
  freeSince: number | null = null;
  /** What its votes are under way for. */
  voting: { readonly since: number; readonly outcome: Promise<RenewAnswer> } | null = null;
  /** The token that its votes suggest; 0: a new one. */
  suggestion = 0;
  /** Made when the first is needed: whoever only waits has asked none of them. */
  #members: (MemberRecord | undefined)[] | null = null;

  constructor(claim: ClaimRequest) {
    this.claim = claim;
  }

  /** No other claim fits beside it. */
  get exclusive(): boolean {
    return this.claim.units === this.claim.capacity;
  }

  /** Send the claim to a member, and note that. */
  send(member: number, engine: Engine, claim: ClaimRequest): Promise<ClaimAnswer> {
    const record = this.at(member);
    // What a client library sends again on its own may arrive after the answer (`pitfalls.md` 63).
    const copies = engine.resends ? 2 : 1;
    // Nothing of an earlier one is there or can arrive: this is the first.
    if (this.absentFrom(member)) record.sent = 0;
    record.sent += copies;
    record.unanswered += 1;
    return engine.claim(claim).then(
      (answer) => {
        record.unanswered -= 1;
        this.note(member, answer);
        return answer;
      },
      (cause: unknown) => {
        // Then there is nothing to give back, and nothing that could arrive.
        if (cause instanceof NotSentError) {
          record.sent -= copies;
          record.unanswered -= 1;
        }
        throw cause;
      },
    );
  }

  note(member: number, answer: ClaimAnswer | RenewAnswer): void {
    const record = this.at(member);
    if (answer.kind === "unknown") return;
    record.answered = answer.kind;
    record.token = answer.kind === "granted" ? answer.token : 0;
  }

  at(member: number): MemberRecord {
    const members = (this.#members ??= []);
    return (members[member] ??= {
      sent: 0,
      unanswered: 0,
      answered: null,
      token: 0,
      missedResize: false,
      kept: false,
    });
  }

  /** Beside others the hold does not rest on a member with a higher token: that one tells them a floor which shuts this holder out. */
  isTooHigh(token: number): boolean {
    return this.token > 0 && token > this.token && !this.exclusive;
  }

  /** It has a higher token than the one that counts, or may have. */
  mayBeHigherAt(member: number): boolean {
    const { sent, unanswered, answered, token } = this.at(member);
    const unknown = unanswered > 0 || (sent > 0 && answered === null);
    return token > this.token || (token === 0 && unknown);
  }

  /** Whether its grant is one of those that the claim rests on. */
  countsAt(member: number): boolean {
    return !this.forgotten || this.at(member).kept;
  }

  sentOnceTo(member: number): boolean {
    return this.at(member).sent <= 1;
  }

  /** No copy of the claim can arrive there later. */
  allArrivedAt(member: number): boolean {
    return this.sentOnceTo(member) && this.at(member).unanswered === 0;
  }

  /** Nothing of it is there, nor can arrive. */
  absentFrom(member: number): boolean {
    if (this.#members === null) return true;
    const { sent, answered } = this.at(member);
    return sent === 0 || (this.allArrivedAt(member) && (answered === "busy" || answered === "mismatch"));
  }
}

/** A program may hand over holds for ever, and those are never given back here. */
const RECORDS_MAX = 100_000;

/** The claims of this client, by name and id. One that is not here can be found again by asking the members. */
export class ClaimRecords {
  readonly #records = new Map<string, ClaimRecord>();

  get(ref: ClaimRef): ClaimRecord | undefined {
    return this.#records.get(keyOf(ref));
  }

  set(record: ClaimRecord): void {
    if (this.#records.size >= RECORDS_MAX) this.#records.delete(this.#records.keys().next().value ?? "");
    this.#records.set(keyOf(record.claim), record);
  }

  remove(ref: ClaimRef): ClaimRecord | undefined {
    const key = keyOf(ref);
    const record = this.#records.get(key);
    if (record === undefined) return undefined;
    this.#records.delete(key);
    record.released = true;
    return record;
  }
}
