import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Clock, Timer } from "../../core/clock.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { Bell } from "./bell.js";
import { failureOf } from "./client.js";
import type { Gate } from "./gate.js";
import type { Ledger } from "./ledger.js";

const ABSENT: Cell = { version: 0, value: null };
/** How often watchers look by themselves, when the bell is heard and when it is not. */
const LOOK_EVERY_MS = 200;
const POLL_EVERY_MS = 20;
/** How often they try to hear it where it was not heard. */
const HEAR_EVERY_MS = 1_000;

type Watched = { version: number | null; readonly listeners: Set<(cell: Cell) => void> };

/** What cells need of an open store. */
export type CellParts = { readonly gate: Gate; readonly ledger: Ledger; readonly bell: Bell };

/** Cells as rows. All watchers of a store hear one bell; each then reads the cells that it watches. */
export class SqliteCells implements Cells {
  readonly #clock: Clock;
  readonly #opened: () => Promise<CellParts>;
  readonly #warn: (message: string) => void;
  readonly #watched = new Map<string, Watched>();
  #timer: Timer | null = null;
  #hearAt = 0;

  constructor(clock: Clock, opened: () => Promise<CellParts>, warn: (message: string) => void) {
    this.#clock = clock;
    this.#opened = opened;
    this.#warn = warn;
  }

  async read(name: string): Promise<Cell> {
    const { gate, ledger } = await this.#opened();
    return gate.read(`reading cell "${name}"`, () => readCell(ledger, name));
  }

  async write(write: CellWrite): Promise<CellAnswer> {
    const parts = await this.#opened();
    const { gate, ledger, bell } = parts;
    const rung = (answer: CellAnswer): void => {
      if (answer.kind === "conflict") return;
      bell.ring();
      this.#look(parts);
    };
    return gate.run(`writing cell "${write.name}"`, () => writeCell(ledger, write), rung);
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    const watched = this.#watched.get(name) ?? { version: null, listeners: new Set() };
    watched.listeners.add(listener);
    this.#watched.set(name, watched);
    this.#opened().then(
      (parts) => {
        this.#hear(parts);
        this.#look(parts);
        this.#again(parts);
      },
      (error: unknown) => this.#warn(`cell "${name}" cannot be watched: ${String(error)}`),
    );
    return () => {
      watched.listeners.delete(listener);
      if (watched.listeners.size === 0 && this.#watched.get(name) === watched) this.#watched.delete(name);
      if (this.#watched.size === 0) this.stop();
    };
  }

  stop(): void {
    this.#watched.clear();
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }

  #hear(parts: CellParts): void {
    this.#hearAt = this.#clock.now() + HEAR_EVERY_MS;
    parts.bell.hear(() => this.#look(parts));
  }

  #again(parts: CellParts): void {
    if (this.#timer !== null || this.#watched.size === 0) return;
    this.#timer = this.#clock.after(parts.bell.heard ? LOOK_EVERY_MS : POLL_EVERY_MS, () => {
      this.#timer = null;
      // The user's limit of watches may not be reached any more.
      if (this.#clock.now() >= this.#hearAt) this.#hear(parts);
      this.#look(parts);
      this.#again(parts);
    });
  }

  /** Tells of every cell whose version is not the one seen last. What was there when watching began is not a change. */
  #look({ gate, ledger }: CellParts): void {
    if (this.#watched.size === 0) return;
    try {
      const seen = gate.peek(() =>
        [...this.#watched].map(([name, watched]) => [readCell(ledger, name), watched] as const),
      );
      for (const [cell, watched] of seen) {
        const before = watched.version;
        watched.version = cell.version;
        if (before === null || before === cell.version) continue;
        // Later, as from any other store: who is told must not run inside the call that tells.
        for (const listener of watched.listeners)
          queueMicrotask(() => watched.listeners.has(listener) && listener(cell));
      }
    } catch (error) {
      if (failureOf(error) !== "busy") this.#warn(`looking at watched cells: ${String(error)}`);
    }
  }
}

function readCell(ledger: Ledger, name: string): Cell {
  const row = ledger.sql.cellRead.get(name);
  return row === undefined ? ABSENT : { version: row.version, value: row.value };
}

function writeCell(ledger: Ledger, write: CellWrite): CellAnswer {
  const { sql } = ledger;
  ledger.begin();
  ledger.look({ name: write.name, id: "" });
  const before = sql.operationGet.get(write.operation, ledger.now);
  if (before !== undefined) {
    return { kind: before.kind as CellAnswer["kind"], cell: { version: before.version, value: before.value } };
  }
  const answer = change(ledger, write);
  // A conflict is remembered too: its late copy must not take effect after a removal.
  const { version, value } = answer.cell;
  sql.operationPut.run(write.operation, answer.kind, version, value, ledger.now + TOMBSTONE_MS);
  return answer;
}

function change(ledger: Ledger, { name, expected, value }: CellWrite): CellAnswer {
  const { sql } = ledger;
  const current = readCell(ledger, name);
  if (current.version !== expected) return { kind: "conflict", cell: current };
  const version = sql.cellVersionNext.get()?.version;
  if (version === undefined) throw new Error("invariant: the store has its row");
  if (value === null) sql.cellDelete.run(name);
  else sql.cellPut.run(name, version, value);
  return { kind: "written", cell: value === null ? ABSENT : { version, value } };
}
