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
import type { LocalClaim } from "./local-claims.js";
import type { Seen, Standing, Turns } from "./turns.js";

/** An answer, or a claim that is in its queue and is answered by its position there. */
type Outcome<Answer, Claim, Found> = Answer | Standing<Claim, Found>;

/** The engine on an ordered list of nodes or keys: whoever fits beside all that came before it holds. */
export abstract class QueueEngine<Claim extends LocalClaim, Found extends Seen> implements Engine {
  abstract readonly kind: string;
  abstract readonly guarantees: Guarantees;
  abstract readonly leaseMinMs: number;
  abstract readonly cells: Cells;
  readonly #clock: Clock;
  readonly #turns: Turns<Claim, Found>;
  readonly #listeners: Listeners;
  #closed: Promise<void> | null = null;

  constructor(clock: Clock, turns: Turns<Claim, Found>, listeners: Listeners) {
    this.#clock = clock;
    this.#turns = turns;
    this.#listeners = listeners;
  }

  /** Puts a claim at the end of its queue, unless it is there already or is not to be there. */
  protected abstract append(request: ClaimRequest, calledAt: number): Promise<Outcome<ClaimAnswer, Claim, Found>>;
  /** Heartbeats: which of the claims are there, and for how long from the call on. One outcome for each request. */
  protected abstract confirm(
    requests: readonly RenewRequest[],
    calledAt: number,
  ): Promise<readonly Promise<Outcome<RenewAnswer, Claim, Found>>[]>;
  /** The ids of those that somebody released. */
  protected abstract buried(refs: readonly ClaimRef[]): Promise<ReadonlySet<string>>;
  protected abstract leave(request: ReleaseRequest): Promise<ReleaseAnswer>;
  protected abstract shrink(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone">;
  protected abstract changeCapacity(name: string, from: number, to: number): Promise<CapacityAnswer>;
  protected abstract states(filter: InspectFilter): AsyncIterable<NameState>;
  /** A refusal for good as such. `holds`: asked by somebody who gives something up, or keeps what it has. */
  protected abstract translated(cause: unknown, holds: boolean): unknown;
  protected abstract close(): Promise<void>;

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#do(async (calledAt) => {
      const outcome = await this.append(request, calledAt);
      return "kind" in outcome ? outcome : this.#turns.answer(outcome, calledAt);
    });
  }

  renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return this.#do((calledAt) => this.#renew(requests, calledAt), true);
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#do(() => this.leave(request), true);
  }

  resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#do(() => this.shrink(ref, units));
  }

  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#do(() => this.changeCapacity(name, from, to));
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#assertOpen();
    try {
      yield* this.states(filter);
    } catch (cause) {
      throw this.translated(cause, false);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed === null) this.#listeners.clear();
    return (this.#closed ??= this.close());
  }

  async #renew(requests: readonly RenewRequest[], calledAt: number): Promise<readonly RenewAnswer[]> {
    const outcomes = await this.confirm(requests, calledAt);
    const answering = outcomes.map(async (one): Promise<RenewAnswer> => {
      try {
        const outcome = await one;
        return "kind" in outcome ? outcome : await this.#turns.answer(outcome, calledAt);
      } catch (cause) {
        return { kind: "unknown", cause: this.translated(cause, true) };
      }
    });
    const answers = await Promise.all(answering);
    const gone = requests.filter((_, n) => answers[n]?.kind === "gone");
    if (gone.length === 0) return answers;
    // Without an answer it is gone all the same, and its holder is told now.
    const buried = await this.buried(gone).catch(() => new Set<string>());
    return answers.map((answer, n) =>
      answer.kind === "gone" && buried.has(requests[n]?.id ?? "") ? { kind: "gone", revoked: true } : answer,
    );
  }

  async #do<T>(call: (calledAt: number) => Promise<T>, holds = false): Promise<T> {
    this.#assertOpen();
    try {
      return await call(this.#clock.now());
    } catch (cause) {
      throw this.translated(cause, holds);
    }
  }

  #assertOpen(): void {
    if (this.#closed !== null) throw new ClosedError(`using the ${this.kind} engine`);
  }
}
