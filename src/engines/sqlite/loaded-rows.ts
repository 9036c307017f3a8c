// Beside the usual files: requests share a transaction, and what one of them has read of the tables is not read again.
import type { ClaimRef } from "../../core/engine.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import { otherMachine } from "./errors.js";
import type { Machine } from "./machine.js";
import { type ClaimRow, isIdle, type NameRow, nameRowOf, type SoleClaim } from "./rows.js";
import type { Statements } from "./statements.js";

const NOBODY: ClaimRef = { name: "", id: "" };

/** As many as a busy program holds at a time; to read one again takes a twelfth of a pair. */
const SOLES_MAX = 64;

/** The rows that one transaction works on. */
export class LoadedRows {
  readonly #sql: Statements;
  readonly #machine: Machine;
  readonly #names = new Map<string, NameRow>();
  /** The claim that was searched for last, and whether it has a tombstone. */
  #searched: ClaimRef = NOBODY;
  #hasTombstone = false;
  /** Claims that were written lately, by their text: most are read again when they leave. */
  readonly #soles = new Map<string, SoleClaim>();
  now = 0;

  constructor(sql: Statements, machine: Machine) {
    this.#sql = sql;
    this.#machine = machine;
  }

  /** The time is read inside the transaction that uses it (`docs/internals/pitfalls.md` 36). */
  begin(): void {
    this.#names.clear();
    this.#searched = NOBODY;
    this.now = this.#machine.now();
  }

  get names(): Iterable<NameRow> {
    return this.#names.values();
  }

  nameOf(ref: ClaimRef): NameRow {
    return this.#names.get(ref.name) ?? this.#loadName(ref);
  }

  /** The first request for a name in this transaction reads its row. */
  #loadName(ref: ClaimRef): NameRow {
    const row = this.#sql.load.get(ref.name, ref.id, this.now);
    if (row === undefined) throw new Error("invariant: the store has its row");
    if (row.boot !== this.#machine.boot) throw otherMachine();
    this.#searched = ref;
    this.#hasTombstone = row.hasTombstone !== 0;
    const name = nameRowOf(ref.name, row, row.sole ? this.#soleOf(row.sole) : null);
    this.#names.set(ref.name, name);
    return name;
  }

  /** It is this transaction's from now on: one that fails leaves nothing of it behind. */
  #soleOf(text: string): SoleClaim {
    const known = this.#soles.get(text);
    if (known === undefined) return JSON.parse(text) as SoleClaim;
    this.#soles.delete(text);
    return known;
  }

  /** The claim as it is stored. */
  find(name: NameRow, ref: ClaimRef): ClaimRow | undefined {
    if (name.sole !== null) return name.sole.id === ref.id ? name.sole : undefined;
    return isIdle(name) ? undefined : this.#search(ref);
  }

  #search(ref: ClaimRef): ClaimRow | undefined {
    const row = this.#sql.claimFind.get(ref.name, ref.id, this.now);
    this.#searched = ref;
    this.#hasTombstone = row?.hasTombstone === 1;
    return row === undefined || row.id === null ? undefined : (row as ClaimRow);
  }

  /** Whether the claim was released before, in an earlier transaction or in this one. */
  hasTombstone(ref: ClaimRef): boolean {
    if (this.#searched.id !== ref.id || this.#searched.name !== ref.name) this.#search(ref);
    return this.#hasTombstone;
  }

  addTombstone({ name, id }: ClaimRef): void {
    this.#sql.tombstonePut.run(id, name, this.now + TOMBSTONE_MS);
    this.#searched = NOBODY;
  }

  save(n: NameRow): void {
    const { name, capacity, taken, holders, waiters, lastToken, soonestEnd, frontToken, frontEnd } = n;
    const sole = n.sole === null ? "" : JSON.stringify(n.sole);
    if (n.sole !== null) this.#remember(sole, n.sole);
    const numbers = [capacity, taken, holders, waiters, lastToken, soonestEnd, frontToken, frontEnd] as const;
    this.#sql.namePut.run(name, ...numbers, sole);
  }

  #remember(text: string, sole: SoleClaim): void {
    this.#soles.set(text, sole);
    if (this.#soles.size <= SOLES_MAX) return;
    const [oldest] = this.#soles.keys();
    if (oldest !== undefined) this.#soles.delete(oldest);
  }
}
