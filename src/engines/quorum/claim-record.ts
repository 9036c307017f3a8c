import type { ClaimAnswer, ClaimRef, ClaimRequest, Engine, RenewAnswer } from "../../core/engine.js";
import { NotSentError } from "../../core/errors.js";

/** What became of a claim at one member, as far as this client knows. */
type Place = {
  /** Claims sent to it, the repairs among them. */
  sent: number;
  unanswered: number;
  /** What it said last; null while it has said nothing. */
  said: (ClaimAnswer | RenewAnswer)["kind"] | null;
  /** The token it last said; 0 when none. */
  token: number;
  /** It has not heard that the units became fewer. */
  unshrunk: boolean;
  /** It is known to have held the claim while a quorum did. */
  kept: boolean;
};

/** One claim of this client: what was asked, the token that counts, and where it stands with each member. */
export class Claimed {
  claim: ClaimRequest;
  /** The quorum's token; 0 until it is granted. Members may have stored a higher one, never a lower one that counts. */
  token = 0;
  /** Not given back yet. */
  wanted = true;
  /** A member that kept it has forgotten it since: a copy that came later could bring back what was lost. */
  forgotten = false;
  readonly #places: Place[];

  constructor(claim: ClaimRequest, members: number) {
    this.claim = claim;
    this.#places = Array.from({ length: members }, () => ({
      sent: 0,
      unanswered: 0,
      said: null,
      token: 0,
      unshrunk: false,
      kept: false,
    }));
  }

  /** Nobody else can stand beside it. */
  get exclusive(): boolean {
    return this.claim.units === this.claim.capacity;
  }

  /** Send the claim to a member, and note that. */
  send(member: number, engine: Engine, claim: ClaimRequest): Promise<ClaimAnswer> {
    const place = this.at(member);
    // What a client library sends again on its own may arrive after the answer (`pitfalls.md` 63).
    const copies = engine.resends ? 2 : 1;
    place.sent += copies;
    place.unanswered += 1;
    return engine.claim(claim).then(
      (answer) => {
        place.unanswered -= 1;
        this.hear(member, answer);
        return answer;
      },
      (cause: unknown) => {
        // Then there is nothing to give back, and nothing that could arrive.
        if (cause instanceof NotSentError) {
          place.sent -= copies;
          place.unanswered -= 1;
        }
        throw cause;
      },
    );
  }

  hear(member: number, answer: ClaimAnswer | RenewAnswer): void {
    const place = this.at(member);
    if (answer.kind === "unknown") return;
    place.said = answer.kind;
    place.token = answer.kind === "granted" ? answer.token : 0;
  }

  at(member: number): Place {
    const place = this.#places[member];
    if (place === undefined) throw new Error(`invariant: there is no member ${member}`);
    return place;
  }

  /** Its yes is one of those that hold the claim up. */
  countsAt(member: number): boolean {
    return !this.forgotten || this.at(member).kept;
  }

  sentOnceTo(member: number): boolean {
    return this.at(member).sent <= 1;
  }

  /** No copy of the claim can arrive there later. */
  settledAt(member: number): boolean {
    return this.sentOnceTo(member) && this.at(member).unanswered === 0;
  }

  /** Nothing of it is there, nor can arrive. */
  absentFrom(member: number): boolean {
    const { sent, said } = this.at(member);
    return sent === 0 || (this.settledAt(member) && (said === "busy" || said === "mismatch"));
  }
}

/** A program may hand over holds for ever, and those are never given back here. */
const CLAIMED_MAX = 100_000;

/** The claims of this client, by name and id. One that is not here can be found again by asking the members. */
export class ClaimedMap {
  readonly #claims = new Map<string, Claimed>();

  get(ref: ClaimRef): Claimed | undefined {
    return this.#claims.get(keyOf(ref));
  }

  set(claimed: Claimed): void {
    if (this.#claims.size >= CLAIMED_MAX) this.#claims.delete(this.#claims.keys().next().value ?? "");
    this.#claims.set(keyOf(claimed.claim), claimed);
  }

  take(ref: ClaimRef): Claimed | undefined {
    const claimed = this.get(ref);
    this.#claims.delete(keyOf(ref));
    if (claimed !== undefined) claimed.wanted = false;
    return claimed;
  }
}

export function keyOf({ name, id }: ClaimRef): string {
  return `${id} ${name}`;
}
