import type { Cells } from "../core/cells.js";
import type { Clock } from "../core/clock.js";
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../core/engine.js";
import { ClosedError } from "../core/errors.js";
import type { Guarantees } from "../core/guarantees.js";
import type { InspectFilter, NameState } from "../core/inspect.js";
import type { Unlisten } from "../core/unlisten.js";
import type { Listeners } from "../engine-kit/listeners.js";
import type { LocalClaim, LocalClaims } from "./local-claims.js";
import type { QueueEntry } from "./queue.js";
import { type QueueExit, release } from "./release.js";
import type { Seen, Standing, Turns } from "./turns.js";

/** An answer, or a claim that is in its queue and is answered by its position there. */
type Outcome<Answer, Claim, Found> = Answer | Standing<Claim, Found>;

/** What a store does for its queues. */
export interface QueueStore<Claim extends LocalClaim, Found extends Seen, Entry extends QueueEntry> {
  readonly claims: LocalClaims<Claim>;
  readonly turns: Turns<Claim, Found>;
  readonly exit: QueueExit<Claim, Entry>;
  /** Puts a claim at the end of its queue, unless it is there already or is not to be there. */
  append(request: ClaimRequest, calledAt: number): Promise<Outcome<ClaimAnswer, Claim, Found>>;
  /** Heartbeats: which of the claims are there, and for how long from the call on. One outcome for each request. */
  confirm(
    requests: readonly RenewRequest[],
    calledAt: number,
  ): Promise<readonly Promise<Outcome<RenewAnswer, Claim, Found>>[]>;
  shrink(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone">;
  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer>;
  inspect(filter: InspectFilter): AsyncIterable<NameState>;
  /** A refusal for good as such. `holds`: asked by somebody who gives something up, or keeps what it has. */
  translated(cause: unknown, holds: boolean): unknown;
}

/** The engine on an ordered list of nodes or keys: whoever fits beside all that came before it holds. */
export abstract class QueueEngine<Claim extends LocalClaim, Found extends Seen, Entry extends QueueEntry = QueueEntry>
  implements Engine
{
  abstract readonly kind: string;
  abstract readonly guarantees: Guarantees;
  abstract readonly leaseMinMs: number;
  abstract readonly cells: Cells;
  readonly #clock: Clock;
  readonly #store: QueueStore<Claim, Found, Entry>;
  readonly #listeners: Listeners;
  #closed: Promise<void> | null = null;

  constructor(clock: Clock, store: QueueStore<Claim, Found, Entry>, listeners: Listeners) {
    this.#clock = clock;
    this.#store = store;
    this.#listeners = listeners;
  }

  protected abstract close(): Promise<void>;

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#do(async (calledAt) => {
      const outcome = await this.#store.append(request, calledAt);
      return "kind" in outcome ? outcome : this.#store.turns.answer(outcome, calledAt);
    });
  }

  renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return this.#do((calledAt) => this.#renew(requests, calledAt), true);
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    const { name, id, to } = request;
    const next = to === undefined ? undefined : this.#store.claims.get({ name, id: to });
    if (next !== undefined) this.#store.turns.follow(next, id);
    return this.#do(() => release(this.#store.exit, this.#store.claims, request), true);
  }

  resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#do(() => this.#store.shrink(ref, units));
  }

  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#do(() => this.#store.setCapacity(name, from, to));
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#assertOpen();
    try {
      yield* this.#store.inspect(filter);
    } catch (cause) {
      throw this.#store.translated(cause, false);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed === null) this.#listeners.clear();
    return (this.#closed ??= this.close());
  }

  async #renew(requests: readonly RenewRequest[], calledAt: number): Promise<readonly RenewAnswer[]> {
    const outcomes = await this.#store.confirm(requests, calledAt);
    const answering = outcomes.map(async (one): Promise<RenewAnswer> => {
      try {
        const outcome = await one;
        return "kind" in outcome ? outcome : await this.#store.turns.answer(outcome, calledAt);
      } catch (cause) {
        return { kind: "unknown", cause: this.#store.translated(cause, true) };
      }
    });
    const answers = await Promise.all(answering);
    const gone = requests.filter((_, n) => answers[n]?.kind === "gone");
    if (gone.length === 0) return answers;
    // Without an answer it is gone all the same, and its holder is told now.
    const buried = await this.#store.exit.buried(gone).catch(() => new Set<string>());
    return answers.map((answer, n) =>
      answer.kind === "gone" && buried.has(requests[n]?.id ?? "") ? { kind: "gone", revoked: true } : answer,
    );
  }

  async #do<T>(call: (calledAt: number) => Promise<T>, holds = false): Promise<T> {
    this.#assertOpen();
    try {
      return await call(this.#clock.now());
    } catch (cause) {
      throw this.#store.translated(cause, holds);
    }
  }

  #assertOpen(): void {
    if (this.#closed !== null) throw new ClosedError(`using the ${this.kind} engine`);
  }
}
