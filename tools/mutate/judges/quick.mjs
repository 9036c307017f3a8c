// Judges mutants one after the other in one process, by the comparison in virtual time alone, on one server:
//   node quick.mjs <root of a scratch copy> <redis | postgres | mysql>
// A line on stdin is the number of a mutant whose text is in place by now. The answer is a line too: `<number> killed <why>`,
// or `<number> passed`. What starts vitest and a server for each mutant takes ten times as long.
import { register } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [root, engine] = process.argv.slice(2);
register("./quick-hooks.mjs", import.meta.url);
const load = (path, mutant) => import(`${pathToFileURL(join(root, path)).href}${mutant ? `?mutant=${mutant}` : ""}`);

let server;
globalThis.sharedServer = async (start, ...args) => {
  server ??= await start(...args);
  return { ...server, running: { stop: async () => {} } };
};

const RESETS = {
  redis: async () => {
    const { Redis } = await import("ioredis");
    const client = new Redis(server.port);
    await client.flushall();
    client.disconnect();
  },
  postgres: async () => {
    const { default: pg } = await import("pg");
    const client = new pg.Client(server.url);
    await client.connect();
    for (const schema of ["holdfast", "fast", "plain"]) await client.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    await client.end();
  },
  mysql: async () => {
    const { createConnection } = await import("mysql2/promise");
    const client = await createConnection(server.url);
    for (const schema of ["holdfast", "fast", "plain"]) await client.query(`DROP DATABASE IF EXISTS ${schema}`);
    await client.end();
  },
};

const { compareWithReference } = await load("src/testing/compare.ts");

async function redis(mutant) {
  const { virtual, FAST_PATHS } = await load("test/virtual/redis.ts", mutant);
  const { setting, close } = await virtual();
  try {
    await compareWithReference({ ...setting, runs: 40, shrink: false });
  } finally {
    await close();
  }
  const { compareFastPaths } = await load("test/virtual/redis/paths.ts", mutant);
  const seed = Date.now() % 1_000_000;
  await compareFastPaths({ without: FAST_PATHS, seed, runs: 20, commands: 60 });
  const { comparePlainLayout } = await load("test/virtual/redis/plain.ts", mutant);
  await comparePlainLayout({ seed, runs: 20, commands: 100 });
}

async function sql(mutant) {
  const made = await load(`test/virtual/${engine}.ts`, mutant);
  const { bothWays } = await load("test/virtual/sql/ways.ts", mutant);
  const store = await made.virtual();
  try {
    await compareWithReference({ ...store.setting, runs: 15, shrink: false });
    const way = (table) => ({ engine: table.engine, stored: (name) => made.storedIn(table, name, store.clock) });
    const both = bothWays(way(store.table("fast", (text) => text)), way(store.table("plain", made.PLAIN)));
    await compareWithReference({ ...store.setting, engine: both, runs: 5, shrink: false });
  } finally {
    await store.close();
  }
}

// What a mutant leaves behind must not end the judge: the next one has a server and modules of its own.
process.on("unhandledRejection", () => {});
process.on("uncaughtException", () => {});

for await (const line of createInterface({ input: process.stdin })) {
  let answer = "passed";
  try {
    await (engine === "redis" ? redis : sql)(line);
  } catch (error) {
    const [first = ""] = String(error?.message ?? error).split("\n");
    answer = `killed ${/SYNTAX|syntax|compiling script/.test(String(error?.stack)) ? "syntax " : ""}${first.slice(0, 200)}`;
  }
  console.log(`${line} ${answer}`);
  await RESETS[engine]().catch(() => {});
}
await server?.running.stop();
process.exit(0);
