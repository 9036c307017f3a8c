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
} from "../../core/engine.js";
import { ClosedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { Listeners } from "../../engine-kit/listeners.js";
import { Claims } from "./claim.js";
import { ClaimRecords } from "./claim-record.js";
import { Tokens } from "./fence.js";
import { guaranteesOf } from "./guarantees.js";
import { inspect } from "./inspect.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import { Releases } from "./release.js";
import { Renewals } from "./renew.js";
import { type ResizeAnswer, resize, setCapacity } from "./resize.js";
import { Rounds } from "./round.js";
import { Standings } from "./standing.js";
import type { Turns } from "./turns.js";
import { Waiters } from "./waiters.js";

/** Many engines as one: a question is put to all of them, and a quorum decides. */
export class QuorumEngine implements Engine {
  readonly kind = "quorum";
  readonly cells = null;
  readonly #members: Members;
  readonly #listeners: Listeners;
  readonly #records = new ClaimRecords();
  readonly #claims: Claims;
  readonly #releases: Releases;
  readonly #renewals: Renewals;
  readonly #turns: Turns;
  readonly #standings: Standings;
  #closing: Promise<void> | null = null;

  constructor(members: Members, settings: Settings, listeners: Listeners, turns: Turns) {
    const tokens = new Tokens(members, settings.clock);
    const standings = new Standings(members, settings.clock, (event) => listeners.tell(event));
    const rounds = new Rounds(members, settings, tokens, standings);
    const waiters = new Waiters(members, settings, rounds, turns);
    this.#members = members;
    this.#listeners = listeners;
    this.#turns = turns;
    this.#releases = new Releases(members, settings, this.#records, turns);
    this.#claims = new Claims(members, settings, this.#records, this.#releases, rounds, turns);
    this.#renewals = new Renewals(members, settings, this.#records, tokens, turns, waiters, standings);
    this.#standings = standings;
  }

  get guarantees(): Guarantees {
    return guaranteesOf(this.#members.engines, this.#members.count);
  }

  get leaseMinMs(): number {
    return this.#members.all.reduce((most, { engine }) => Math.max(most, engine?.leaseMinMs ?? 1), 1);
  }

  get resends(): boolean {
    return this.#members.all.some(({ engine }) => engine?.resends === true);
  }

  // Claim and release without a promise of their own: every lock pays for each of them.
  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    if (this.#closing !== null) return Promise.reject(closedError());
    return this.#claims.claim(request);
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    if (this.#closing !== null) return Promise.reject(closedError());
    const record = this.#records.get(request);
    if (record !== undefined) this.#standings.ended(record, 0);
    return this.#releases.release(request);
  }

  async renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    this.#throwIfClosed();
    return this.#renewals.renew(requests);
  }

  async resize(ref: ClaimRef, units: number): Promise<ResizeAnswer> {
    this.#throwIfClosed();
    return resize(this.#members, this.#records, this.#turns, ref, units);
  }

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    this.#throwIfClosed();
    return setCapacity(this.#members, name, from, to);
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#throwIfClosed();
    yield* await inspect(this.#members, filter);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#listeners.clear();
    await this.#releases.stop();
    await Promise.all(this.#members.all.map((member) => member.close()));
  }

  #throwIfClosed(): void {
    if (this.#closing !== null) throw closedError();
  }
}

function closedError(): ClosedError {
  return new ClosedError("using the quorum engine");
}
