import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { allBlocks, ROOT } from "../docs/blocks.js";
import { type PostgresServer, query, startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { folderOf, toolModule } from "../servers/tools.js";

const { folderFor } = (await toolModule("orms", "programs.mjs")) as { folderFor: (name: string) => string };

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
}, 120_000);
/** What the tests, which run side by side, have started. */
const closers: (() => unknown)[] = [];
afterAll(async () => {
  for (const close of closers) await close();
  await server.running.stop();
});

const blocks = allBlocks().filter(({ page }) => page === "docs/migrate-once.md");
const commands = blocks[0]?.code ?? "";
const migrateProgram = blocks.find(({ language }) => language === "js")?.code ?? "";

/** Where a migration waits until the test lets it go on, in a session of its own that the test can count. */
const GATE = 4711;
/** Twice is wrong, and seen. */
const DOUBLE = "UPDATE account SET balance = balance * 2";
const WAIT = `SELECT pg_advisory_xact_lock_shared(${GATE})`;

const KNEXFILE = `export default { client: "pg", connection: process.env.DATABASE_URL };`;
const KNEX_MIGRATION = `export const up = async (db) => { await db.raw("${WAIT}"); await db.raw("${DOUBLE}"); };
  export const down = async () => {};`;

/** What each tool needs in its folder. */
const PROJECTS: Readonly<Record<string, { tool: string; files: Readonly<Record<string, string>> }>> = {
  Drizzle: {
    tool: "node migrate.js",
    files: {
      "migrate.js": migrateProgram,
      "drizzle/0000_first.sql": `${WAIT};--> statement-breakpoint\n${DOUBLE};`,
      "drizzle/meta/_journal.json": JSON.stringify({
        version: "7",
        dialect: "postgresql",
        entries: [{ idx: 0, version: "7", when: 1_700_000_000_000, tag: "0000_first", breakpoints: true }],
      }),
    },
  },
  TypeORM: {
    tool: "typeorm migration:run -d data-source.js",
    files: {
      "data-source.js": `import { DataSource } from "typeorm";
        class Double1700000000000 {
          async up(db) { await db.query("${WAIT}"); await db.query("${DOUBLE}"); }
          async down() {}
        }
        export default new DataSource({ type: "postgres", url: process.env.DATABASE_URL, migrations: [Double1700000000000] });`,
    },
  },
  Knex: {
    tool: "knex migrate:latest",
    files: {
      "knexfile.js": KNEXFILE,
      // As one with CREATE INDEX CONCURRENTLY has to be.
      "migrations/1_double.js": `${KNEX_MIGRATION} export const config = { transaction: false };`,
    },
  },
  "Knex in transactions": {
    tool: "knex migrate:latest",
    files: { "knexfile.js": KNEXFILE, "migrations/1_double.js": KNEX_MIGRATION },
  },
};

/** The line of the page for a tool, without npx, which would look for the package on the network. */
function commandOf(name: string): string {
  const line = commands.split("\n").find((one) => one.endsWith(`# ${name}`)) ?? "";
  return line.replace(/ +# .*/, "").replaceAll("npx ", "");
}

type Ended = { readonly code: number | null; readonly output: string };

class Project {
  readonly url: string;
  readonly #folder: string;
  readonly #path: string;

  constructor(name: string, database: string) {
    this.url = server.url.replace(/postgres$/, database);
    this.#folder = folderFor(`migrate-${database}`);
    const bin = join(this.#folder, "bin");
    for (const folder of ["bin", "drizzle/meta", "migrations"])
      mkdirSync(join(this.#folder, folder), { recursive: true });
    for (const [file, text] of Object.entries(PROJECTS[name]?.files ?? {}))
      writeFileSync(join(this.#folder, file), text);
    const program = join(ROOT, "dist/cli/main.js");
    chmodSync(program, 0o755);
    try {
      symlinkSync(program, join(bin, "holdfast"));
    } catch {
      // From an earlier run.
    }
    this.#path = [bin, join(folderOf("orms"), "node_modules/.bin"), process.env.PATH].join(delimiter);
  }

  start(command: string): { child: ChildProcess; ended: Promise<Ended> } {
    const env = { ...process.env, PATH: this.#path, DATABASE_URL: this.url, HOLDFAST_URL: this.url };
    const child = spawn("bash", ["-c", `exec ${command}`], { cwd: this.#folder, env, timeout: 100_000 });
    closers.push(() => child.kill("SIGKILL"));
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text: Buffer) => (output += text.toString()));
    return { child, ended: once(child, "close").then(([code]) => ({ code: code as number | null, output })) };
  }

  async balance(): Promise<number> {
    return Number((await query(this.url, "SELECT balance FROM account"))[0]?.balance);
  }

  /** Closes the gate; answers how to open it. */
  async close(): Promise<() => Promise<void>> {
    const client = new Client({ connectionString: this.url });
    await client.connect();
    closers.push(() => client.end());
    await client.query(`SELECT pg_advisory_lock(${GATE})`);
    return async () => void (await client.query(`SELECT pg_advisory_unlock(${GATE})`));
  }

  async atGate(count: number): Promise<void> {
    const waiting = `SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND objid = ${GATE} AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
    await until(`${count} at the gate`, async () => (await query(this.url, waiting))[0]?.n === count, 60_000);
  }
}

async function project(name: string, suffix: string): Promise<Project> {
  const database = `${name}_${suffix}`.toLowerCase().replaceAll(" ", "_");
  await query(server.url, `CREATE DATABASE ${database}`);
  const made = new Project(name, database);
  await query(made.url, "CREATE TABLE account AS SELECT 100 AS balance");
  // Tables of its own that a tool makes on first use are not what is raced for here.
  if (name === "Drizzle")
    await query(
      made.url,
      "CREATE SCHEMA drizzle; CREATE TABLE drizzle.__drizzle_migrations (id SERIAL PRIMARY KEY, hash text NOT NULL, created_at bigint)",
    );
  if (name === "TypeORM")
    await query(
      made.url,
      "CREATE TABLE migrations (id SERIAL PRIMARY KEY, timestamp bigint NOT NULL, name varchar NOT NULL)",
    );
  if (name.startsWith("Knex")) {
    const { code, output } = await made.start("knex migrate:list").ended;
    expect({ code, output }).toMatchObject({ code: 0 });
  }
  return made;
}

describe("three processes at once", { timeout: 240_000 }, () => {
  test.concurrent.each(["Drizzle", "TypeORM", "Knex"])(
    "%s: with holdfast run one migrates, the others wait and find it done",
    async (name) => {
      const made = await project(name, "with");
      const command = commandOf(name);
      expect(command).toMatch(/^holdfast run migrate -/);
      const open = await made.close();
      const runs = [1, 2, 3].map(() => made.start(command).ended);
      await made.atGate(1);
      await open();
      for (const { code, output } of await Promise.all(runs)) expect({ code, output }).toMatchObject({ code: 0 });
      expect(await made.balance()).toBe(200);
    },
  );

  test.concurrent.each(["Drizzle", "TypeORM"])(
    "%s: without it the migration runs three times, and nobody is told",
    async (name) => {
      const made = await project(name, "without");
      const open = await made.close();
      const runs = [1, 2, 3].map(() => made.start(PROJECTS[name]?.tool ?? "").ended);
      await made.atGate(3);
      await open();
      for (const { code, output } of await Promise.all(runs)) expect({ code, output }).toMatchObject({ code: 0 });
      expect(await made.balance()).toBe(800);
    },
  );

  test.concurrent("Knex: in a transaction its own lock is enough, without holdfast run too", async () => {
    const made = await project("Knex in transactions", "without");
    const open = await made.close();
    const runs = [1, 2, 3].map(() => made.start(PROJECTS.Knex?.tool ?? "").ended);
    await made.atGate(1);
    await open();
    for (const { code, output } of await Promise.all(runs)) expect({ code, output }).toMatchObject({ code: 0 });
    expect(await made.balance()).toBe(200);
  });

  test.concurrent("Knex: without a transaction two fail, and after a kill every start, until it is holdfast run", async () => {
    const made = await project("Knex", "without");
    const open = await made.close();
    const tool = PROJECTS.Knex?.tool ?? "";
    const first = made.start(tool);
    await made.atGate(1);
    for (const { code, output } of await Promise.all([made.start(tool).ended, made.start(tool).ended])) {
      expect({ code, output }).toMatchObject({ code: 1, output: expect.stringContaining("already locked") as string });
    }
    first.child.kill("SIGKILL");
    await first.ended;
    await open();
    expect((await made.start(tool).ended).output).toContain("already locked");
    expect(await made.balance()).toBe(100);
    const { code, output } = await made.start(commandOf("Knex")).ended;
    expect({ code, output }).toMatchObject({ code: 0 });
    expect(await made.balance()).toBe(200);
  });
});
