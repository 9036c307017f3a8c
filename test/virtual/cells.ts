import assert from "node:assert/strict";
import type { Cell, CellAnswer, Cells, CellWrite } from "../../src/core/cells.js";
import type { Engine } from "../../src/core/engine.js";
import { TOMBSTONE_MS } from "../../src/core/limits.js";
import type { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

const ABSENT: Cell = { version: 0, value: null };
const VALUES = ["", "1", "two words", "a\nb\n", "ü '\" \\ %d", "\u{10000}"];
const PASSES_MS = [
  1,
  250,
  10_000,
  TOMBSTONE_MS / 2,
  TOMBSTONE_MS - 1,
  TOMBSTONE_MS,
  TOMBSTONE_MS + 1,
  3 * TOMBSTONE_MS,
];
const NAMES = ["one", "two"];

type Done = { readonly write: CellWrite; readonly answer: CellAnswer; readonly at: number };

export type CellsOptions = {
  readonly engine: () => Promise<Engine>;
  readonly clock: FakeClock;
  readonly seed: number;
  readonly runs: number;
  readonly commands: number;
};

/**
 * Random writes and reads of cells by two clients, while time passes, each answered as the rules of `core/cells.ts` say:
 * copies of a write answer as it did for as long as they may come, a version never comes twice, and what was read is there.
 */
export async function compareCells({ engine, clock, seed, runs, commands }: CellsOptions): Promise<number> {
  const engines = [await engine(), await engine()] as const;
  try {
    for (let run = 0; run < runs; run += 1) {
      const model = new Model(engines.map(cellsOf), clock, new SeededChance(seed + run), `cells ${seed} ${run}`);
      try {
        for (let n = 0; n < commands; n += 1) await model.command();
      } catch (error) {
        const { message } = error as Error;
        throw new Error(`seed ${seed + run}:\n${model.said.slice(-24).join("\n")}\n${message}`, { cause: error });
      }
    }
    return runs * commands;
  } finally {
    for (const one of engines) await one[Symbol.asyncDispose]();
  }
}

function cellsOf({ cells }: Engine): Cells {
  assert.ok(cells);
  return cells;
}

class Model {
  readonly said: string[] = [];
  readonly #clients: readonly Cells[];
  readonly #clock: FakeClock;
  readonly #chance: SeededChance;
  readonly #prefix: string;
  readonly #current = new Map<string, Cell>();
  /** The versions that a name ever had, the last of them at the end. */
  readonly #versions = new Map<string, number[]>();
  readonly #done: Done[] = [];

  constructor(clients: readonly Cells[], clock: FakeClock, chance: SeededChance, prefix: string) {
    this.#clients = clients;
    this.#clock = clock;
    this.#chance = chance;
    this.#prefix = prefix;
  }

  async command(): Promise<void> {
    const which = this.#chance.fraction();
    if (which < 0.45) await this.#write();
    else if (which < 0.7) await this.#copy();
    else if (which < 0.85) await this.#read();
    else await this.#pass();
  }

  async #write(): Promise<void> {
    const name = `${this.#prefix} ${this.#of(NAMES)}`;
    const now = this.#current.get(name) ?? ABSENT;
    const expected =
      this.#chance.fraction() < 0.7 ? now.version : this.#of([0, 1, ...(this.#versions.get(name) ?? [])]);
    const value = this.#chance.fraction() < 0.3 ? null : this.#of(VALUES);
    const write = { name, operation: this.#chance.id(), expected, value };
    const answer = await this.#send(write);
    if (expected !== now.version) assert.deepEqual(answer, { kind: "conflict", cell: now });
    else {
      assert.equal(answer.kind, "written");
      this.#written(name, value, answer.cell);
    }
    this.#done.push({ write, answer, at: this.#clock.now() });
  }

  #written(name: string, value: string | null, cell: Cell): void {
    if (value === null) assert.deepEqual(cell, ABSENT);
    else {
      const versions = this.#versions.get(name) ?? [];
      assert.equal(cell.value, value);
      assert.ok(Number.isSafeInteger(cell.version) && cell.version > (versions.at(-1) ?? 0), "versions grow");
      this.#versions.set(name, [...versions, cell.version]);
    }
    this.#current.set(name, cell);
  }

  /** A late copy: as long as it may come, nothing happens twice. */
  async #copy(): Promise<void> {
    const recent = this.#done.filter(({ at }) => this.#clock.now() - at < TOMBSTONE_MS);
    if (recent.length === 0) return;
    const { write, answer } = this.#of(recent);
    assert.deepEqual(await this.#send(write), answer);
    await this.#read(write.name);
  }

  async #read(name = `${this.#prefix} ${this.#of(NAMES)}`): Promise<void> {
    const cell = await this.#of(this.#clients).read(name);
    this.said.push(`read ${name}: ${JSON.stringify(cell)}`);
    assert.deepEqual(cell, this.#current.get(name) ?? ABSENT);
  }

  async #pass(): Promise<void> {
    const ms = this.#of(PASSES_MS);
    this.said.push(`${ms} ms pass`);
    await this.#clock.advance(ms);
  }

  async #send(write: CellWrite): Promise<CellAnswer> {
    const answer = await this.#of(this.#clients).write(write);
    this.said.push(`write ${JSON.stringify(write)}: ${JSON.stringify(answer)}`);
    return answer;
  }

  #of<T>(list: readonly T[]): T {
    const one = list[Math.floor(this.#chance.fraction() * list.length)];
    assert.ok(one !== undefined);
    return one;
  }
}
