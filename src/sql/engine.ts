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
import type { ServerInfo } from "../core/server-info.js";
import type { Unlisten } from "../core/unlisten.js";
import type { Listeners } from "../engine-kit/listeners.js";
import { LockTableCells } from "./cells.js";
import type { Database } from "./database.js";
import { LockTable, type LockTableTimes } from "./lock-table.js";
import type { Page, Swept } from "./verbs.js";

/**
 * Heartbeats that go into one call; others may work on the same names between two of them. As many as the core sends at once: on a
 * slow network each call more is a round trip more.
 */
const RENEW_BATCH = 500;
const INSPECT_NAMES = 100;
/** Every so many claims a batch of rows is swept: as many as the claims can have left behind. */
const SWEEP_EVERY = 64;
const SWEEP_ROWS = 128;
/** A name that was used a moment ago is likely to be used again: its row stays for a while. */
const IDLE_MS = 10_000;

/** What a clean-up removed. */
export type Maintained = { readonly rowsRemoved: number };

/** The engine on a lock table: the functions in the database decide, this class asks them. */
export class LockTableEngine implements Engine {
  readonly kind: string;
  readonly leaseMinMs = 1;
  readonly reserves = true;
  readonly cells: LockTableCells;
  readonly #database: Database;
  readonly #table: LockTable;
  readonly #listeners: Listeners;
  #claims = 0;
  #sweptTo = "";
  #sweeping: Promise<void> | null = null;
  #closing: Promise<void> | null = null;

  constructor(database: Database, times: LockTableTimes, listeners: Listeners) {
    this.kind = database.kind;
    this.#database = database;
    this.#table = new LockTable(database, times);
    this.#listeners = listeners;
    const warn = (message: string): void => listeners.tell({ kind: "warning", message });
    this.cells = new LockTableCells(() => this.#open(), database, times.clock, warn);
  }

  get guarantees(): Guarantees {
    return this.#database.guarantees;
  }

  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    const answer = await this.#open().claim(request);
    this.#claims += 1;
    if (this.#claims % SWEEP_EVERY === 0) this.#sweeping ??= this.#sweep().finally(() => (this.#sweeping = null));
    return answer;
  }

  async release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#open().release(request);
  }

  /** By name in one order that all clients share: two renewals cannot wait for each other. */
  async renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const answers: RenewAnswer[] = Array.from({ length: requests.length });
    const sorted = [...requests.entries()].toSorted(([, one], [, two]) =>
      one.name < two.name ? -1 : Number(one.name > two.name),
    );
    for (let at = 0; at < sorted.length; at += RENEW_BATCH) {
      const batch = sorted.slice(at, at + RENEW_BATCH);
      try {
        const renewals = await this.#open().renew(batch.map(([, request]) => request));
        for (const [n, [index]] of batch.entries()) answers[index] = renewals[n] ?? leftOut();
      } catch (cause) {
        // The first batch failed: every outcome is unknown. A later batch failed: the outcomes from there on are unknown.
        if (at === 0) throw cause;
        for (const [index] of sorted.slice(at)) answers[index] = { kind: "unknown", cause };
        break;
      }
    }
    return answers;
  }

  async resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#open().resize(ref, units);
  }

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#open().setCapacity(name, from, to);
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect({ name, prefix = "" }: InspectFilter = {}): AsyncGenerator<NameState> {
    if (name !== undefined && !name.startsWith(prefix)) return;
    for (let after: string | null = ""; after !== null; ) {
      const page: Page = await this.#open().inspect({ name: name ?? null, prefix, after, limit: INSPECT_NAMES });
      yield* page.states;
      after = page.next;
    }
  }

  async serverInfo(): Promise<ServerInfo> {
    this.#open();
    return this.#database.serverInfo().catch((cause: unknown) => {
      throw this.#database.errors.translated(cause);
    });
  }

  /** Forget everything that is idle or has ended. Normal use does the same in small batches. */
  async maintenance(): Promise<Maintained> {
    let rowsRemoved = 0;
    for (let after: string | null = ""; after !== null; ) {
      const swept: Swept = await this.#open().sweep({ after, limit: SWEEP_ROWS, idleMs: 0 });
      rowsRemoved += swept.rows;
      // Tombstones and operations have no order of names: as long as a batch was full, there may be more.
      after = swept.next ?? (swept.full ? after : null);
    }
    return { rowsRemoved };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#listeners.clear();
    this.cells.stop();
    this.#table.close();
    await this.#sweeping;
    await this.#database.close();
  }

  #open(): LockTable {
    if (this.#closing !== null) throw new ClosedError(`using the ${this.kind} engine`);
    return this.#table;
  }

  /** A batch of rows that nobody needs, behind somebody's claim, who is not to wait for it. */
  async #sweep(): Promise<void> {
    try {
      const swept = await this.#table.sweep({ after: this.#sweptTo, limit: SWEEP_ROWS, idleMs: IDLE_MS });
      this.#sweptTo = swept.next ?? "";
    } catch (error) {
      this.#listeners.tell({ kind: "warning", message: `old rows are still there: ${String(error)}` });
    }
  }
}

function leftOut(): RenewAnswer {
  return { kind: "unknown", cause: new Error("the lock table left an answer out") };
}
