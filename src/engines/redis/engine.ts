import type { Cells } from "../../core/cells.js";
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
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { Listeners } from "../../engine-kit/listeners.js";
import type { AckedGrants } from "./ack.js";
import type { Claims } from "./claim.js";
import { parseCapacityAnswer, parseWord } from "./codec.js";
import type { Subscription } from "./events.js";
import type { ServerFacts } from "./guarantees.js";
import type { Inspection } from "./inspect.js";
import type { LockKeys } from "./keys.js";
import type { Releases } from "./release.js";
import type { Renewals } from "./renew.js";
import type { Scripts } from "./scripts.js";

/** What the engine is made of: a file each. */
export type RedisEngineParts = {
  readonly resends: boolean;
  readonly claims: Claims;
  readonly releases: Releases;
  readonly renewals: Renewals;
  readonly inspection: Inspection;
  readonly cells: Cells;
  readonly scripts: Scripts;
  readonly keys: LockKeys;
  readonly listeners: Listeners;
  readonly server: ServerFacts;
  /** Null: nothing is pushed, and whoever waits polls. */
  readonly subscription: Subscription | null;
  /** Null: a grant counts when the primary has it. */
  readonly grants: AckedGrants | null;
  readonly close: () => Promise<void>;
};

/** The fair layout: the reference algorithm as scripts, one key for each name. */
export class RedisEngine implements Engine {
  readonly kind = "redis";
  readonly leaseMinMs = 1;
  readonly reserves = true;
  readonly resends: boolean;
  readonly cells: Cells;
  readonly #parts: RedisEngineParts;
  #closed = false;

  constructor(parts: RedisEngineParts) {
    this.#parts = parts;
    this.resends = parts.resends;
    this.cells = parts.cells;
  }

  get guarantees(): Guarantees {
    const { server, subscription } = this.#parts;
    return server.guarantees(subscription?.live ? "push" : "poll");
  }

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    if (this.#closed) return Promise.reject(closedError());
    const { claims, releases } = this.#parts;
    // What was asked of this name before reaches the server before.
    releases.flush(request.name);
    return claims.claim(request);
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    if (this.#closed) return Promise.reject(closedError());
    const { claims, releases, grants } = this.#parts;
    grants?.forget(request.id);
    claims.flush(request.name);
    return releases.release(request);
  }

  async renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    this.#throwIfClosed();
    return this.#parts.renewals.renew(requests);
  }

  async resize({ name, id }: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    this.#throwIfClosed();
    const { scripts, keys } = this.#parts;
    const text = await scripts.text("resize", [keys.keyOf(name)], [id, String(units), keys.idleMsText]);
    return parseWord(text, "resized", "refused", "gone");
  }

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    this.#throwIfClosed();
    const { scripts, keys } = this.#parts;
    const text = await scripts.text("capacity", [keys.keyOf(name)], [String(from), String(to), keys.idleMsText]);
    return parseCapacityAnswer(text);
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#parts.listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#throwIfClosed();
    yield* this.#parts.inspection.inspect(filter);
  }

  async serverInfo(): Promise<ServerInfo> {
    this.#throwIfClosed();
    return this.#parts.server.serverInfo();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#parts.listeners.clear();
    await this.#parts.close();
  }

  #throwIfClosed(): void {
    if (this.#closed) throw closedError();
  }
}

function closedError(): ClosedError {
  return new ClosedError("using the redis engine");
}
