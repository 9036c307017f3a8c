import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { EngineRefusedError } from "../../src/core/errors.js";
import { LAYOUT_VERSIONS } from "../../src/engine-kit/layout-version.js";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { MIGRATIONS as MYSQL } from "../../src/engines/mysql/scripts.generated.js";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import { MIGRATIONS as POSTGRES } from "../../src/engines/postgres/scripts.generated.js";
import { versionMadeBy } from "../../src/sql/migrate.js";
import { stateOf } from "../../src/testing/conformance/kit.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";

/** A schema is updated by a migration that only this test knows, while programs of both versions use it. */

type Stand = {
  readonly open: (schema: string) => Promise<Engine>;
  readonly query: (sql: string) => Promise<Record<string, unknown>[]>;
  readonly stop: () => Promise<unknown>;
};

const STANDS: readonly {
  readonly kind: "postgres" | "mysql";
  readonly migrations: string[];
  readonly next: string;
  readonly start: () => Promise<Stand>;
}[] = [
  {
    kind: "postgres",
    migrations: POSTGRES as string[],
    next: "CREATE TABLE holdfast.added (number integer);\nALTER TABLE holdfast.store ADD COLUMN added integer;\n",
    async start() {
      const server = await postgres.startPostgres();
      const pool = postgres.poolOf(server.url);
      return {
        open: (schema) => postgresEngine(pool, { schema }),
        query: (sql) => postgres.query(server.url, sql),
        stop: () => pool.end().then(() => server.running.stop()),
      };
    },
  },
  {
    kind: "mysql",
    migrations: MYSQL as string[],
    next: "CREATE TABLE IF NOT EXISTS holdfast.added (number INT)\n//\nALTER TABLE holdfast.store ADD COLUMN added INT\n//\n",
    async start() {
      const server = await maria.startMariadb();
      const pool = maria.poolOf(server.url, { connectionLimit: 30 });
      return {
        open: (schema) => mysqlEngine(pool, { schema }),
        query: (sql) => maria.query(server.url, sql),
        stop: () => pool.end().then(() => server.running.stop()),
      };
    },
  },
];

const ask = { units: 1, capacity: 1, leaseMs: 30_000, wait: false, owner: { client: "c", host: "h", pid: 1 } };

describe.each(STANDS)("$kind", ({ kind, migrations, next, start }) => {
  let stand: Stand;
  beforeAll(async () => {
    stand = await start();
  }, 120_000);
  afterAll(() => stand.stop());

  const numbers = async (schema: string): Promise<number[]> =>
    (await stand.query(`SELECT number FROM ${schema}.migration ORDER BY number`)).map(({ number }) => Number(number));

  /** As the next version of this program would. */
  async function asNextVersion<T>(work: () => Promise<T>): Promise<T> {
    const versions = LAYOUT_VERSIONS[kind];
    migrations.push(next);
    versions.highest += 1;
    try {
      return await work();
    } finally {
      migrations.pop();
      versions.highest -= 1;
    }
  }

  test("several programs of the next version update the schema at once and once only, and claims outlive it", async () => {
    await using old = await stand.open("upgraded");
    const held = { ...ask, name: "held", id: "h".repeat(22) };
    expect((await old.claim(held)).kind).toBe("granted");
    const before = await numbers("upgraded");
    const newer = await asNextVersion(() => Promise.all(Array.from({ length: 4 }, () => stand.open("upgraded"))));
    expect(await numbers("upgraded")).toEqual([...before, LAYOUT_VERSIONS[kind].highest + 1]);
    expect(await stand.query("SELECT added FROM upgraded.store")).toEqual([{ added: null }]);
    expect((await newer[0]?.claim({ ...held, id: "n".repeat(22) }))?.kind).toBe("busy");
    expect(await old.release({ ...held, tombstone: "never" })).toBe("released");
    for (const engine of newer) await engine[Symbol.asyncDispose]();
    // A program of the old version may still come later.
    await using late = await stand.open("upgraded");
    expect((await late.claim(held)).kind).toBe("granted");
  }, 60_000);

  test("a claim of before its times were kept shows none, until it is granted", async () => {
    await using engine = await stand.open("older");
    const [holder, waiter] = ["h", "w"].map((one) => ({ ...ask, name: "held", id: one.repeat(22), wait: true }));
    if (holder === undefined || waiter === undefined) throw new Error("two claims");
    await engine.claim(holder);
    await engine.claim(waiter);
    const times = async (): Promise<unknown> => {
      const state = await stateOf(engine, "held");
      return [
        ...(state?.holders ?? []).map(({ heldMs }) => heldMs),
        ...(state?.waiters ?? []).map((one) => one.waitingMs),
      ];
    };
    expect(await times()).toEqual([expect.any(Number), expect.any(Number)]);
    await stand.query("UPDATE older.claim SET since = NULL");
    expect(await times()).toEqual([undefined, undefined]);
    expect(await engine.release(holder)).toBe("released");
    expect(await times()).toEqual([expect.any(Number)]);
    expect(await engine.release(waiter)).toBe("released");
  });

  test("a program that is too old for the schema is refused", async () => {
    await (await stand.open("newer"))[Symbol.asyncDispose]();
    await stand.query("UPDATE newer.migration SET number = 100, least = 99");
    const refused: unknown = await stand.open("newer").catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(EngineRefusedError);
    expect(String(refused)).toMatch(/layout version 99 or 100, .*too old, speaks 2\. Update Holdfast here/);
  });

  test("a schema of 0.1.0, which was never published, is refused with what to do, and not touched", async () => {
    await (await stand.open("unpublished"))[Symbol.asyncDispose]();
    await stand.query("UPDATE unpublished.migration SET number = 1, least = 1");
    const refused: unknown = await stand.open("unpublished").catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(EngineRefusedError);
    expect(String(refused)).toMatch(/layout version 1, .*too new, speaks 2\. It was made by 0\.1\.0.*remove it/);
    expect(await numbers("unpublished")).toEqual([1]);
  });

  test("the version of the layout is the number of the last migration", () => {
    const { number, least } = versionMadeBy(kind, migrations.length - 1);
    expect({ lowest: least, highest: number }).toEqual(LAYOUT_VERSIONS[kind]);
  });
});
