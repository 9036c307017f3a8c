// Beside the usual files: an open lock file is a database, its tables, and the small files by which processes wake each other.
import { realpathSync, statSync } from "node:fs";
import type { Chance, Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { CellChangeFile } from "./cell-change-file.js";
import type { SqliteDatabase } from "./driver.js";
import { databasePath, openDatabase } from "./drivers/open-database.js";
import { ClaimEvents } from "./events.js";
import { LockTables, type Push } from "./lock-tables.js";
import type { Machine } from "./machine.js";
import { Mailbox } from "./mailbox.js";
import { checkPath } from "./path.js";
import { prepareFile } from "./schema.js";
import type { Statements } from "./statements.js";
import { Transactions, type Unit } from "./transactions.js";
import { WaitingClaims } from "./waiting-claims.js";

export type LockFileParts = {
  readonly clock: Clock;
  readonly chance: Chance;
  readonly machine: Machine;
  readonly emit: (event: EngineEvent) => void;
};

type Opened = {
  readonly path: string;
  readonly transactions: Transactions;
  readonly sql: Statements;
  readonly close: () => void;
};

export class LockFile {
  /** The same for everybody who has this file open. */
  readonly identity: string;
  readonly transactions: Transactions;
  readonly tables: LockTables;
  readonly mailbox: Mailbox;
  readonly cellChanges: CellChangeFile;
  readonly events: ClaimEvents;
  readonly #waiting: WaitingClaims;
  readonly #unit: Unit;
  readonly #emit: (event: EngineEvent) => void;
  readonly #closeDatabase: () => void;

  /** Creates the file, or migrates it, where it has to be. */
  static async open(target: string | SqliteDatabase, parts: LockFileParts): Promise<LockFile> {
    const { clock, chance, machine } = parts;
    const path = checkPath(typeof target === "string" ? target : databasePath(target), machine);
    const { database, close: closeDatabase } = await openDatabase(target, path);
    const transactions = new Transactions(database, path, clock, chance);
    const close = (): void => {
      transactions.close();
      closeDatabase();
    };
    try {
      const sql = await transactions.opening(() => prepareFile(database, path, transactions, machine));
      return new LockFile({ path, transactions, sql, close }, parts);
    } catch (error) {
      close();
      throw error;
    }
  }

  private constructor({ path, transactions, sql, close }: Opened, { clock, chance, machine, emit }: LockFileParts) {
    this.transactions = transactions;
    this.#emit = emit;
    this.#closeDatabase = close;
    // One folder for all names of the file: who opened it by another name has to find our mailbox.
    const real = realpathSync(path);
    this.mailbox = new Mailbox(real, machine, chance, {
      message: (message) => this.events.receive(message),
      missed: () => emit({ kind: "wake" }),
      unwatched: () => this.#waiting.poll(),
      warning: (message) => emit({ kind: "warning", message }),
    });
    this.#waiting = new WaitingClaims({
      ...{ clock, machine, mailbox: this.mailbox, transactions, sql, emit },
      holding: () => this.events.holding,
      removeProcess: (name, process) => void this.#removeProcess(name, process),
    });
    this.events = new ClaimEvents({ mailbox: this.mailbox, waiting: this.#waiting, emit });
    const { dev, ino, mode } = statSync(path);
    this.identity = `sqlite ${dev}:${ino}`;
    this.mailbox.sweep(clock.wallMs());
    this.mailbox.open();
    this.cellChanges = new CellChangeFile(`${real}-mail/cells`, mode & 0o666, machine);
    const tables = new LockTables(sql, machine, clock, this.mailbox.address);
    this.tables = tables;
    this.#unit = {
      begin: () => tables.begin(),
      finish: () => tables.finish(),
      committed: () => this.events.send(tables.takePushes()),
    };
  }

  /**
   * One request on the tables, in a transaction with others. Its pushes are sent after the commit, before anything else
   * happens here.
   */
  write<T>(
    doing: string,
    step: (tables: LockTables) => T,
    committed: (answer: T, events: ClaimEvents) => void = () => {},
  ): Promise<T> {
    const { tables, events } = this;
    let pushes: readonly Push[] = [];
    const run = (): T => {
      const answer = step(tables);
      pushes = tables.takePushes();
      return answer;
    };
    const after = (answer: T): void => {
      committed(answer, events);
      events.send(pushes);
    };
    return this.transactions.write(doing, run, after, this.#unit);
  }

  /** For the check of waiting claims, which cannot wait: whatever fails here is found again at the next check. */
  async #removeProcess(name: string, process: string): Promise<void> {
    try {
      await this.write(`removing claims of an ended process from "${name}"`, (tables) =>
        tables.removeProcess(tables.load({ name, id: "" }).name, process),
      );
    } catch (error) {
      const message = `claims of an ended process could not be removed from "${name}": ${String(error)}`;
      this.#emit({ kind: "warning", message });
    }
  }

  /** Holds that nobody released were handed over to another process: they must not end with this one. */
  async detachHolds(): Promise<void> {
    const { holds } = this.events;
    if (holds.length === 0) return;
    try {
      await this.write("closing", (tables) => {
        for (const ref of holds) tables.detach(ref);
      });
    } catch (error) {
      const message = `${holds.length} claims that were not released may end with this process: ${String(error)}`;
      this.#emit({ kind: "warning", message });
    }
  }

  close(): void {
    this.#waiting.stop();
    this.mailbox.close();
    this.cellChanges.close();
    this.#closeDatabase();
  }
}
