import type { ClaimAnswer, ClaimRequest } from "../../core/engine.js";
import type { Owner } from "../../core/inspect.js";
import type { AckedGrants, MissingAckAnswer } from "./ack.js";
import { Batch } from "./batch.js";
import { claimRest, claimText, parseClaimAnswer } from "./codec.js";
import type { LockKeys } from "./keys.js";
import type { CallScript, MissingAcks } from "./scripts.js";

export type ClaimsOptions = {
  readonly call: CallScript;
  readonly keys: LockKeys;
  readonly idleMs: number;
  /** Where this engine is pushed to; empty when nothing is. */
  readonly channel: string;
  readonly cluster: boolean;
  /** Called when a claim waits, and so for a push. */
  readonly expectPush: () => void;
  /** Null: a grant counts when the primary has it. */
  readonly grants: AckedGrants | null;
};

/** Claims made in one turn of the event loop go to the server together. */
export class Claims {
  readonly #options: ClaimsOptions;
  readonly #batch: Batch<ClaimAnswer | MissingAckAnswer>;
  /** Mostly the same object from claim to claim: its client's. */
  #lastOwner: Owner | undefined;
  /** What the claims of that owner have in common. */
  #lastRest = "";

  constructor(options: ClaimsOptions) {
    const { call, cluster } = options;
    this.#options = options;
    this.#batch = new Batch({
      script: "claim",
      call,
      tail: cluster ? ["1"] : [],
      parse: (text, missingAcks) => this.#parse(text, missingAcks),
      cluster,
    });
  }

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    const { keys, idleMs, grants } = this.#options;
    const key = keys.keyOf(request.name);
    const rest = claimRest(this.#restOf(request.owner), request.data);
    const answer = this.#batch.add(key, `${claimText(request, idleMs)}\n${rest}`);
    // Without `ack` no acknowledgement can be missing, and there is one promise fewer: every lock pays for each.
    return grants === null ? (answer as Promise<ClaimAnswer>) : answer.then((one) => grants.confirmClaim(request, one));
  }

  #restOf(owner: Owner): string {
    if (owner !== this.#lastOwner) {
      this.#lastOwner = owner;
      this.#lastRest = `${this.#options.channel}\n${JSON.stringify(owner)}`;
    }
    return this.#lastRest;
  }

  /** Send what waits for this name. */
  flush(name: string): void {
    this.#batch.flush(this.#options.keys.keyOf(name));
  }

  #parse(text: string, missingAcks: MissingAcks | null): ClaimAnswer | MissingAckAnswer {
    const answer = parseClaimAnswer(text);
    if (answer.kind === "queued") this.#options.expectPush();
    return missingAcks !== null && answer.kind === "granted" ? { kind: "missing acks", ...missingAcks } : answer;
  }
}
