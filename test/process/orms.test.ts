import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { allBlocks } from "../docs/blocks.js";
import { type PostgresServer, query, startPostgres } from "../servers/postgres.js";
import { toolModule } from "../servers/tools.js";

const run = promisify(execFile);

const { folderFor } = (await toolModule("orms", "programs.mjs")) as { folderFor: (name: string) => string };
const programs = allBlocks().filter(({ page, language }) => page === "docs/orms.md" && language === "js");
const folder = folderFor("page");

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
}, 120_000);
afterAll(() => server.running.stop());

test("the page has a program for each of the six", () => {
  const named = programs.map(
    ({ code }) => /"(drizzle-orm|kysely|typeorm|@prisma\/adapter-pg|knex|sequelize)"/.exec(code)?.[1],
  );
  expect(named).toEqual(["drizzle-orm", "kysely", "typeorm", "@prisma/adapter-pg", "knex", "sequelize"]);
});

test.concurrent.each(programs.map((block, at) => ({ ...block, at })))(
  "the program at $place runs",
  {
    timeout: 120_000,
  },
  async ({ code, at }) => {
    const database = `orm_${at}`;
    await query(server.url, `CREATE DATABASE ${database}`);
    const url = server.url.replace(/postgres$/, database);
    await query(url, "CREATE TABLE invoice (id int, paid boolean, token bigint)");
    await query(url, "INSERT INTO invoice VALUES (42, false, 0)");
    const path = join(folder, `program-${at}.js`);
    writeFileSync(path, code.replaceAll("postgres://app:secret@db.example.com/shop", url));
    const { stderr } = await run(process.execPath, [path], { timeout: 100_000, cwd: folder });
    expect(stderr).toBe("");
    const [invoice] = await query(url, "SELECT paid, token > 0 AS fenced FROM invoice");
    expect(invoice).toEqual({ paid: true, fenced: true });
    const [locks] = await query(url, "SELECT count(*)::int AS held FROM holdfast.claim");
    expect(locks).toEqual({ held: 0 });
  },
);
