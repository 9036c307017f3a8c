import { Call, type Caller } from "./call.js";
import type { ClaimAnswer, ClaimRequest, Engine } from "./engine.js";

/** What it needs of the client. */
type Claiming = Caller & { readonly engine: Engine };

/** Whose claim it is. */
type Claimant = {
  readonly claim: ClaimRequest;
  /** Why the last try was not answered. */
  failure: unknown;
  claimAnswered(answer: ClaimAnswer, sentAt: number): void;
  claimFailed(error: unknown): void;
};

/** The claim's first call: it creates the claim, and is sent again until it is answered. */
export class ClaimCall extends Call<ClaimAnswer> {
  readonly #client: Claiming;
  readonly #attempt: Claimant;

  constructor(client: Claiming, attempt: Claimant, until: number) {
    super(client, until);
    this.#client = client;
    this.#attempt = attempt;
  }

  get doing(): string {
    return `acquiring "${this.#attempt.claim.name}"`;
  }

  protected send(): Promise<ClaimAnswer> {
    return this.#client.engine.claim(this.#attempt.claim);
  }

  protected override get unwanted(): boolean {
    return !this.#attempt.claim.wait;
  }

  protected override unknown(cause: unknown): void {
    this.#attempt.failure = cause;
  }

  protected answered(answer: ClaimAnswer): void {
    this.#attempt.claimAnswered(answer, this.sentAt);
  }

  protected failed(error: unknown): void {
    this.#attempt.claimFailed(error);
  }
}
