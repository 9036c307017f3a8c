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
import type { ServerInfo } from "../core/server-info.js";
import type { Unlisten } from "../core/unlisten.js";
import { Listeners } from "../engine-kit/listeners.js";
import { LockTableCells } from "./cells.js";
import {
  claimArgs,
  parseAnswer,
  parsePage,
  parseRenewals,
  parseSwept,
  parseWord,
  releaseArgs,
  renewArgs,
} from "./codec.js";
import type { LockTable } from "./lock-table.js";

/** Heartbeats that go into one call; others may work on the same names between two of them. */
const RENEW_BATCH = 200;
const INSPECT_BATCH = 100;
/** Every so many claims a batch of rows is swept: as many as the claims can have left behind. */
const SWEEP_EVERY = 64;
const SWEEP_ROWS = 128;
/** A name that was used a moment ago is likely to be used again: its row stays for a while. */
const IDLE_MS = 10_000;

/** What a clean-up removed. */
export type Maintained = { readonly rowsRemoved: number };

/** The engine on a lock table: the functions decide, this class asks them. */
export class LockTableEngine implements Engine {
  readonly kind: string;
  readonly leaseMinMs = 1;
  readonly cells: LockTableCells;
  readonly #table: LockTable;
  readonly #listeners = new Listeners();
  #claims = 0;
  #sweptTo = "";
  #sweeping: Promise<void> | null = null;
  #closing: Promise<void> | null = null;

  constructor(table: LockTable, clock: Clock) {
    this.kind = table.kind;
    this.#table = table;
    this.cells = new LockTableCells(
      () => this.#open(),
      clock,
      (message) => this.tell({ kind: "warning", message }),
    );
  }

  get guarantees(): Guarantees {
    return this.#table.guarantees;
  }

  async claim(claim: ClaimRequest): Promise<ClaimAnswer> {
    const table = this.#open();
    const answer = parseAnswer(await table.call("claim", claimArgs(claim, table.client, table.hears)));
    this.#claims += 1;
    if (this.#claims % SWEEP_EVERY === 0) this.#sweeping ??= this.#sweep().finally(() => (this.#sweeping = null));
    return answer;
  }

  async release({ name, id, tombstone }: ReleaseRequest): Promise<ReleaseAnswer> {
    const table = this.#open();
    const answer = await table.call("release", releaseArgs(name, id, tombstone === "never", table.client));
    return parseWord(answer, "released", "gone", "revoked");
  }

  /** By name in one order that all clients share: two renewals cannot wait for each other. */
  async renew(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const answers: RenewAnswer[] = Array.from({ length: signs.length });
    const sorted = [...signs.entries()].toSorted(([, one], [, two]) =>
      one.name < two.name ? -1 : Number(one.name > two.name),
    );
    for (let at = 0; at < sorted.length; at += RENEW_BATCH) {
      const batch = sorted.slice(at, at + RENEW_BATCH);
      try {
        const renewals = parseRenewals(await this.#open().call("renew", renewArgs(batch.map(([, sign]) => sign))));
        for (const [n, [place]] of batch.entries()) answers[place] = renewals[n] ?? leftOut();
      } catch (cause) {
        // Nothing is known of any of them, or of none of the rest.
        if (at === 0) throw cause;
        for (const [place] of sorted.slice(at)) answers[place] = { kind: "unknown", cause };
        break;
      }
    }
    return answers;
  }

  async resize({ name, id }: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return parseWord(await this.#open().call("resize", [name, id, units]), "resized", "refused", "gone");
  }

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return JSON.parse(await this.#open().call("set_capacity", [name, from, to])) as CapacityAnswer;
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect({ name, prefix = "" }: InspectFilter = {}): AsyncGenerator<NameState> {
    if (name !== undefined && !name.startsWith(prefix)) return;
    for (let after: string | null = ""; after !== null; ) {
      const page = parsePage(await this.#open().call("inspect", [name ?? null, prefix, after, INSPECT_BATCH]));
      yield* page.states;
      after = page.next;
    }
  }

  async serverInfo(): Promise<ServerInfo> {
    return this.#open().about();
  }

  /** Forget everything that is idle or has ended. Normal use does the same in small batches. */
  async maintenance(): Promise<Maintained> {
    let rowsRemoved = 0;
    for (let after: string | null = ""; after !== null; ) {
      const swept = parseSwept(await this.#open().call("sweep", [after, SWEEP_ROWS, 0]));
      rowsRemoved += swept.rows;
      // Marks and operations know no order of names: as long as there were many, look again.
      after = swept.next ?? (swept.full ? after : null);
    }
    return { rowsRemoved };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  tell(event: EngineEvent): void {
    this.#listeners.tell(event);
  }

  async #close(): Promise<void> {
    this.#listeners.clear();
    this.cells.stop();
    await this.#sweeping;
    await this.#table.close();
  }

  #open(): LockTable {
    if (this.#closing !== null) throw new ClosedError(`using the ${this.kind} engine`);
    return this.#table;
  }

  /** A batch of rows that nobody needs, behind somebody's claim, who is not to wait for it. */
  async #sweep(): Promise<void> {
    try {
      const swept = parseSwept(await this.#table.call("sweep", [this.#sweptTo, SWEEP_ROWS, IDLE_MS]));
      this.#sweptTo = swept.next ?? "";
    } catch (error) {
      this.tell({ kind: "warning", message: `old rows are still there: ${String(error)}` });
    }
  }
}

function leftOut(): RenewAnswer {
  return { kind: "unknown", cause: new Error("the lock table left an answer out") };
}
