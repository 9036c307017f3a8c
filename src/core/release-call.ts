import { Call, type Caller } from "./call.js";
import type { Engine, ReleaseAnswer, ReleaseRequest } from "./engine.js";
import type { Relay, Releaser } from "./local-hand-over.js";

/** What it needs of the client. */
type Releasing = Caller & { readonly engine: Engine; releaseEnded(confirmed: boolean): void };

/** Gives back or withdraws a claim, and is sent again until it is answered. */
export class ReleaseCall extends Call<ReleaseAnswer> {
  readonly #client: Releasing;
  readonly #request: ReleaseRequest;
  readonly #by: Releaser;
  readonly #relay: Relay | null;

  constructor(client: Releasing, request: ReleaseRequest, until: number, by: Releaser, relay: Relay | null) {
    super(client, until);
    this.#client = client;
    this.#request = request;
    this.#by = by;
    this.#relay = relay;
  }

  get doing(): string {
    return `releasing "${this.#request.name}"`;
  }

  protected send(): Promise<ReleaseAnswer> {
    return this.#client.engine.release(this.#request);
  }

  /** `gone` and `revoked` only when the first answer says so: a release that was sent before may have done it (`pitfalls.md` 66). */
  protected answered(answer: ReleaseAnswer): void {
    this.#ended(true);
    this.#by.released(this.tries === 1 ? answer : "released");
  }

  protected failed(error: unknown): void {
    this.#ended(false);
    this.#by.notReleased(error);
  }

  #ended(confirmed: boolean): void {
    this.#client.releaseEnded(confirmed);
    this.#relay?.released(this.#client.clock.now());
  }
}
