import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import Database from "libsql";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Edit, writeBrokenCopy } from "../../scripts/broken-copy.js";
import type { ClaimRequest, EngineEvent } from "../../src/core/engine.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { type SqliteEngine, sqliteEngine } from "../../src/engines/sqlite/index.js";
import { ThisMachine } from "../../src/engines/sqlite/machine.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

const TABLES = "engines/sqlite/lock-tables.js";
const ROWS = "engines/sqlite/loaded-rows.js";
const TRANSACTIONS = "engines/sqlite/transactions.js";
const INDEX = "engines/sqlite/index.js";

const SELDOM = "leases are not read before the first of them can have ended";
const SHARED = "requests of one turn share a transaction";
const LAST_LETS_IN = "of several that leave together only the last lets somebody in";
const ALL = "all of them at once";

/**
 * Each fast path of the engine, and the edit that takes the plain path in its place. One is not here: a client's messages to itself are
 * not written to its mailbox, which only changes when they arrive.
 */
const FAST_PATHS: readonly (readonly [name: string, ...edits: Edit[]])[] = [
  ["the only claim of a name is kept in the name's row", [TABLES, "const sole = isIdle(name);", "const sole = false;"]],
  [
    SELDOM,
    [TABLES, "return this.now >= Math.min(name.soonestEnd, name.frontEnd);", "return true;"],
    [TABLES, "if (this.now >= name.soonestEnd)", ""],
  ],
  ["a holder alone is its own floor", [TABLES, "name.holders === 1 ? token :", ""]],
  ["a row that did not change is not written", [TABLES, "if (name.dirty)", ""]],
  ["a name without claims is not searched", [ROWS, "isIdle(name) ? undefined :", ""]],
  [
    "a claim that leaves is found and removed in one step",
    [TABLES, "own ? this.sql.claimTake.get(ref.name, ref.id) :", ""],
    [
      TABLES,
      "name.sole = null;\n        countRemoved(name, claim);",
      "name.sole = null;\n else this.sql.claimDelete.run(ref.name, ref.id);\n countRemoved(name, claim);",
    ],
  ],
  [
    "what was read in a transaction is not read again",
    [
      TABLES,
      "(name.firstHolder ??= this.sql.holdersFront.get(name.name, 1))",
      "this.sql.holdersFront.get(name.name, 1)",
    ],
    [TABLES, "name.sole ?? name.last ??", "name.sole ??"],
    [ROWS, "if (this.#searched.id !== ref.id || this.#searched.name !== ref.name)", ""],
    [TABLES, "if (name.checked)\n            return;", ""],
  ],
  [LAST_LETS_IN, [TABLES, "if (name.capacity === 1)", "if (false)"]],
  ["a claim that was written lately is not read again", [ROWS, "this.#soles.get(text)", "undefined"]],
  [SHARED, [TRANSACTIONS, "if (unit === null || unit === ALONE)", ""]],
];

const folder = mkdtempSync(join(tmpdir(), "holdfast-sqlite-plain-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Make = typeof sqliteEngine;
const plains = new Map<string, Make>();

beforeAll(async () => {
  const all = [ALL, ...FAST_PATHS.flatMap(([, ...edits]) => edits)] as const;
  for (const [n, [name, ...edits]] of [...FAST_PATHS, all].entries()) {
    const copy = join(folder, "node_modules", `plain-${n}`);
    writeBrokenCopy(copy, edits);
    const { sqliteEngine: make } = await import(pathToFileURL(join(copy, INDEX)).href);
    plains.set(name, make);
  }
});

const SEEDS = Number(process.env.HOLDFAST_SEEDS ?? 3);
const FIRST = Number(process.env.HOLDFAST_FIRST_SEED ?? 1);
const COMMANDS = 60;
const NAMES = [
  ["mutex", 1, [1]],
  ["semaphore", 3, [1, 2, 3]],
  ["rw", READERS_MAX, [1, READERS_MAX]],
] as const;

/** One file, two clients on it, their events, and what the file says in the end. */
async function side(make: Make, path: string, seed: number, clock: FakeClock) {
  const dead = new Set<string>();
  const events: EngineEvent[][] = [[], []];
  const database = new Database(path);
  const engines: SqliteEngine[] = [];
  const raw = new Database(path);
  for (const [client, told] of events.entries()) {
    const machine = Object.assign(new ThisMachine(), {
      now: () => clock.now(),
      process: `1 ${client + 1} 1`,
      hasEnded: (process: string) => dead.has(process),
      // Mailboxes are polled.
      watch: () => {
        throw new Error("no more watches");
      },
    });
    const engine = make(client === 0 ? database : new Database(path), {
      clock,
      machine,
      chance: new SeededChance(seed * 2 + client),
    });
    engine.listen((event) => told.push(event));
    await engine.ready();
    engines.push(engine);
  }
  /** Claims wherever they stand, names that are in use, and the rest row by row. */
  const rows = () => {
    const all = (sql: string) => raw.prepare(sql).all() as Record<string, unknown>[];
    const names = all("SELECT * FROM name WHERE holders + waiters > 0 ORDER BY name");
    const counts = names.map(({ name, capacity, taken, holders, waiters, last_token }) => [
      ...[name, capacity, taken, holders, waiters, last_token],
    ]);
    const claims = all("SELECT * FROM claim").map((row) => [
      row.name,
      row.id,
      row.units,
      row.token,
      row.holds,
      row.ends_at,
    ]);
    for (const { name, sole } of names) {
      if (sole === "") continue;
      const { id, units, token, holds, endsAt } = JSON.parse(String(sole));
      claims.push([name, id, units, token, holds, endsAt]);
    }
    return {
      counts,
      claims: claims.toSorted((one, two) => (JSON.stringify(one) < JSON.stringify(two) ? -1 : 1)),
      tombstones: all("SELECT * FROM tombstone ORDER BY id"),
    };
  };
  /**
   * What each client was told since the last time, by claim: requests that share a transaction are told together. Who was let
   * in and taken out in one turn may be told the second alone.
   */
  const told = () =>
    events.map((all) => {
      const some = all.splice(0) as (EngineEvent & { name: string; id: string })[];
      const lost = new Set(some.filter(({ kind }) => kind === "lost").map(({ id }) => id));
      const known = some.filter(({ kind, id }) => kind !== "granted" || !lost.has(id));
      return known.toSorted((one, two) => (`${one.name} ${one.id}` < `${two.name} ${two.id}` ? -1 : 1));
    });
  return { engines, told, rows, dead };
}

/** A waiter may be told an earlier time than the one at which the lease ahead of it ends, never a later one: it asks then, and is told anew. */
function known(exact: unknown, told: unknown): unknown {
  if (Array.isArray(exact) && Array.isArray(told)) return exact.map((one, n) => known(one, told[n]));
  const [later, earlier] = [exact, told].map((answer) => (answer as { nextMs?: number | null } | undefined)?.nextMs);
  if (typeof later !== "number" || typeof earlier !== "number" || earlier > later) return exact;
  return { ...(exact as object), nextMs: earlier };
}

/** The same random commands on both; every answer, every event and the rows are the same. Tokens too: the clock is one. */
async function compare(make: Make, path: string, seed: number, dying: boolean): Promise<void> {
  const clock = new FakeClock();
  const chance = new SeededChance(seed);
  const [fast, plain] = [
    await side(sqliteEngine, `${path}-fast`, seed, clock),
    await side(make, `${path}-plain`, seed, clock),
  ];
  const claims: ClaimRequest[] = [];
  const trace: string[] = [];
  const both = async (
    what: string,
    client: number,
    call: (engine: SqliteEngine) => Promise<unknown>,
  ): Promise<void> => {
    trace.push(`client ${client}: ${what}`);
    const answers = [];
    for (const { engines } of [fast, plain]) answers.push(await call(engines[client] as SqliteEngine));
    const said = `seed ${seed}\n${trace.join("\n")}`;
    expect(answers[0], said).toEqual(known(answers[1], answers[0]));
    await clock.advance(25);
    expect(fast.told(), said).toEqual(plain.told());
    expect(fast.rows(), said).toEqual(plain.rows());
  };
  const some = (): ClaimRequest => claims[chance.between(0, Math.max(0, claims.length - 1))] ?? newClaim();
  const newClaim = (): ClaimRequest => {
    const [name, capacity, units] = NAMES[chance.between(0, 2)] ?? NAMES[0];
    const claim: ClaimRequest = {
      name,
      id: chance.id(),
      units: units[chance.between(0, units.length - 1)] ?? 1,
      capacity,
      leaseMs: chance.chance(0.5) ? 1_000 : 20_000,
      wait: chance.chance(0.7),
      owner: { client: "c", host: "h", pid: 1 },
      ...(chance.chance(0.3) ? { exact: true } : {}),
      ...(chance.chance(0.2) ? { reserve: chance.between(1, 9) } : {}),
      ...(chance.chance(0.2) ? { tokenAtLeast: Math.floor(clock.wallMs() * 1000) + chance.between(0, 1_000_000) } : {}),
    };
    claims.push(claim);
    return claim;
  };
  /** One request, of those that a program can make several of in one turn. */
  const request = (draw: number): readonly [string, (engine: SqliteEngine) => Promise<unknown>] => {
    const claim = draw < 5 ? newClaim() : some();
    const { name, id } = claim;
    const tombstone = chance.chance(0.5) ? "never" : "always";
    const to = chance.chance(0.5) ? { to: some().id } : {};
    const heartbeat = { name, id, ...(chance.chance(0.1) ? { tokenAtLeast: 2 ** 52 + draw } : {}) };
    if (draw < 7) return [`claim ${name} ${id}`, (engine) => engine.claim(claim)];
    if (draw < 12) return [`release ${name} ${id}`, (engine) => engine.release({ name, id, tombstone, ...to })];
    if (draw < 14) return [`renew ${name} ${id}`, (engine) => engine.renew([heartbeat])];
    if (draw < 15) return [`resize ${name} ${id}`, (engine) => engine.resize(claim, 1)];
    const capacity = chance.between(1, 4);
    return [`capacity ${capacity}`, (engine) => engine.setCapacity("semaphore", 3, capacity)];
  };
  for (let n = 0; n < COMMANDS; n += 1) {
    // A process that has died asks for nothing.
    const client = fast.dead.size > 0 ? 0 : chance.between(0, 1);
    const draw = chance.between(0, 23);
    if (draw > 19) {
      const requests = Array.from({ length: chance.between(2, 7) }, () => request(chance.between(0, 15)));
      const what = `together: ${requests.map(([one]) => one).join(", ")}`;
      await both(what, client, (engine) => Promise.all(requests.map(([, call]) => call(engine))));
      continue;
    }
    const claim = draw < 7 ? newClaim() : some();
    const { name, id } = claim;
    const heartbeat = {
      name,
      id,
      ...(chance.chance(0.3) ? { leaseMs: 5_000 } : {}),
      ...(chance.chance(0.1) ? { tokenAtLeast: 2 ** 52 + n } : {}),
    };
    const tombstone = chance.chance(0.3) ? "never" : "always";
    const to = chance.chance(0.3) ? { to: some().id } : {};
    if (draw < 8) await both(`claim ${name} ${id}`, client, (engine) => engine.claim(claim));
    else if (draw < 11)
      await both(`release ${name} ${id}`, client, (engine) => engine.release({ name, id, tombstone, ...to }));
    else if (draw < 14) await both(`renew ${name} ${id}`, client, (engine) => engine.renew([heartbeat]));
    else if (draw < 15) await both(`resize ${name} ${id}`, client, (engine) => engine.resize(claim, 1));
    else if (draw < 16) {
      const capacity = chance.between(1, 4);
      await both(`capacity ${capacity}`, client, (engine) => engine.setCapacity("semaphore", 3, capacity));
    } else if (draw < 17) await both("maintenance", client, (engine) => engine.maintenance());
    else if (draw < 18 && dying) {
      for (const { dead } of [fast, plain]) if (!dead.delete("1 2 1")) dead.add("1 2 1");
    } else await clock.advance(chance.between(0, 3_000));
  }
  for (const { engines } of [fast, plain]) for (const engine of engines) await engine[Symbol.asyncDispose]();
}

test.each([...FAST_PATHS.map(([name]) => name), ALL])(
  "with and without the fast path answers, events and rows are the same: %s",
  { timeout: 3_600_000 },
  async (name) => {
    const make = plains.get(name) as Make;
    // Whoever looks at the leases, or at who is next, also finds first waiters whose process has died: the others find them later.
    const dying = ![SELDOM, LAST_LETS_IN, SHARED, ALL].includes(name);
    for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1)
      await compare(make, join(folder, `${name.length}-${seed}`), seed, dying);
  },
);
