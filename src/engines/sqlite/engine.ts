import { checkKnown } from "../../core/checks.js";
import { SystemChance, SystemClock } from "../../core/clock.js";
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
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { resize, setCapacity } from "./capacity.js";
import { SqliteCells } from "./cells.js";
import { claim } from "./claim.js";
import type { SqliteDatabase } from "./driver.js";
import { GUARANTEES } from "./guarantees.js";
import { inspect } from "./inspect.js";
import { LockFile, type LockFileParts } from "./lock-file.js";
import { ThisMachine } from "./machine.js";
import { OPTIONS, type SqliteOptions } from "./options.js";
import { release } from "./release.js";
import { renewAll } from "./renew.js";
import { Sweep, type Swept } from "./sweep.js";

/** What a clean-up did. */
export type Maintained = { readonly mailboxesRemoved: number };

export interface SqliteEngine extends Engine {
  /** Open the file now instead of at the first call: rejects when it cannot be used. */
  ready(): Promise<void>;
  /** Forget everything that is idle or has ended. Normal use does the same in small batches. */
  maintenance(): Promise<Maintained>;
}

/** Every so many claims a batch of rows is swept: as many as the claims can have left behind. */
const SWEEP_EVERY = 64;

/**
 * Locks in a file, for all processes of one machine. Give a path, or an open database (`node:sqlite`, `libsql`,
 * `better-sqlite3`) that is used for nothing else; a database of yours stays yours to close.
 */
export function sqliteEngine(target: string | SqliteDatabase, options: SqliteOptions = {}): SqliteEngine {
  checkKnown(options, OPTIONS);
  return new FileEngine(target, options);
}

class FileEngine implements SqliteEngine {
  readonly kind = "sqlite";
  readonly guarantees = GUARANTEES;
  readonly leaseMinMs = 1;
  readonly reserves = true;
  readonly cells: SqliteCells;
  readonly #target: string | SqliteDatabase;
  readonly #parts: LockFileParts;
  readonly #listeners = new Listeners();
  readonly #sweep = new Sweep();
  #file: Promise<LockFile> | null = null;
  /** Null while it is not open yet, and from closing on. */
  #opened: LockFile | null = null;
  #claims = 0;
  #closing: Promise<void> | null = null;

  constructor(target: string | SqliteDatabase, options: SqliteOptions) {
    const { clock = new SystemClock(), chance = new SystemChance(), machine = new ThisMachine() } = options;
    this.#target = target;
    this.#parts = { clock, chance, machine, emit: (event) => this.#listeners.tell(event) };
    this.cells = new SqliteCells(
      clock,
      () => this.#open(),
      (message) => this.#warn(message),
    );
  }

  async ready(): Promise<void> {
    await this.#open();
  }

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#use((file) =>
      file.write(
        `claiming "${request.name}"`,
        (tables) => claim(tables, request),
        ({ kind }, events) => {
          events.record(request, kind);
          this.#claims += 1;
          if (this.#claims % SWEEP_EVERY === 0) void this.#sweepBatch(file);
        },
      ),
    );
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#use((file) =>
      file.write(
        `releasing "${request.name}"`,
        (tables) => release(tables, request),
        (_, events) => events.record(request, "gone"),
      ),
    );
  }

  renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return this.#use((file) => renewAll(file, requests));
  }

  resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#use((file) => file.write(`resizing "${ref.name}"`, (tables) => resize(tables, ref, units)));
  }

  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#use((file) =>
      file.write(`changing the capacity of "${name}"`, (tables) => setCapacity(tables, name, from, to)),
    );
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    yield* inspect(await this.#open(), filter);
  }

  async serverInfo(): Promise<ServerInfo> {
    return { server: (await this.#open()).identity };
  }

  async maintenance(): Promise<Maintained> {
    const file = await this.#open();
    this.#sweep.restart();
    // All names twice: those whose leases have ended are idle only from the first time on.
    for (let ends = 0, more = true; ends < 2 || more; ) {
      const swept = await this.#sweepNext(file);
      if (swept.to === "") ends += 1;
      more = swept.more;
    }
    return { mailboxesRemoved: file.mailbox.sweep(this.#parts.clock.wallMs()) };
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#opened = null;
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    // One that could not be opened has nothing to close; whoever opened it was told.
    const file = await this.#file?.catch(() => null);
    await file?.detachHolds();
    this.cells.stop();
    file?.close();
    this.#listeners.clear();
  }

  /** In the order of the calls, and where the file is open without another promise, for which every lock would pay. */
  #use<T>(run: (file: LockFile) => Promise<T>): Promise<T> {
    return this.#opened === null ? this.#open().then(run) : run(this.#opened);
  }

  #open(): Promise<LockFile> {
    if (this.#closing !== null) return Promise.reject(new ClosedError("using the sqlite engine"));
    if (this.#file !== null) return this.#file;
    const file = LockFile.open(this.#target, this.#parts);
    this.#file = file;
    // The next call tries again: what was wrong may have been put right.
    file.then(
      (opened) => this.#closing === null && (this.#opened = opened),
      () => (this.#file = null),
    );
    return file;
  }

  #sweepNext(file: LockFile): Promise<Swept> {
    return file.write(
      "cleaning up",
      (tables) => this.#sweep.next(tables),
      (swept) => this.#sweep.committed(swept),
    );
  }

  /** After a claim that is not to wait for it. */
  async #sweepBatch(file: LockFile): Promise<void> {
    try {
      await this.#sweepNext(file);
    } catch (error) {
      if (this.#closing === null) this.#warn(`old rows are still there: ${String(error)}`);
    }
  }

  #warn(message: string): void {
    this.#listeners.tell({ kind: "warning", message });
  }
}
