// Judges mutants one after the other in one process, by the comparison in virtual time alone, on one server:
//   node quick.mjs <root of a scratch copy> <redis | postgres | mysql>
// A line on stdin is the number and the file of a mutant whose text is in place by now. The answer is a line too: `<number> killed <why>`,
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

const seed = () => Date.now() % 1_000_000;

/** What a file has to do with decides which comparisons can tell. */
async function redis(mutant, file) {
  const { virtual, virtualRedis, FAST_PATHS } = await load("test/virtual/redis.ts", mutant);
  const shared = /\/(plain|redisson)[-.]/.exec(file)?.[1];
  if (shared !== undefined) {
    const { compareSharedLayout } = await load("test/virtual/redis/shared-layouts.ts", mutant);
    for (const layout of shared === "plain" ? ["plain"] : ["redisson", "redisson-fenced"])
      await compareSharedLayout({ layout, seed: seed(), runs: 20, commands: 100 });
    return;
  }
  if (file.includes("/cell-")) {
    const { compareCells } = await load("test/virtual/cells.ts", mutant);
    const { redisEngine } = await load("src/engines/redis/index.ts", mutant);
    const { cellsAreForgotten } = await load("test/virtual/redis/forgotten.ts", mutant);
    const world = await virtualRedis();
    const shared = await world.client();
    const engine = () => redisEngine(shared, { idleMs: 600_000 });
    await compareCells({ engine, clock: world.clock, seed: seed(), runs: 20, commands: 100 });
    await cellsAreForgotten(world).finally(world.close);
    return;
  }
  const { setting, close } = await virtual();
  const { waitersCount, waitersKnowTheEnd } = await load("test/virtual/waiters.ts", mutant);
  await waitersCount(setting);
  await waitersKnowTheEnd(setting, seed());
  await compareWithReference({ ...setting, runs: 60, shrink: false }).finally(close);
  const { tombstonesLast, tombstonesAreCleared, heldIsWrittenAgain } = await load(
    "test/virtual/redis/forgotten.ts",
    mutant,
  );
  const world = await virtualRedis();
  await tombstonesLast(world);
  await tombstonesAreCleared(world);
  await heldIsWrittenAgain(world);
  await (await load("test/virtual/redis/ticks.ts", mutant)).compareTicks(world, seed(), 3000);
  await (await load("test/virtual/redis/raises.ts", mutant)).raisedStandInOrder(world, seed()).finally(world.close);
  await (await load("test/virtual/redis/usual.ts", mutant)).usual();
  const { compareFastPaths } = await load("test/virtual/redis/paths.ts", mutant);
  await compareFastPaths({ without: FAST_PATHS, seed: seed(), runs: 30, commands: 60 });
}

async function sql(mutant) {
  const made = await load(`test/virtual/${engine}.ts`, mutant);
  const { compareCells } = await load("test/virtual/cells.ts", mutant);
  const store = await made.virtual();
  try {
    await (await load("test/virtual/waiters.ts", mutant)).waitersCount(store.setting);
    const { compareTurns } = await load("test/virtual/turns.ts", mutant);
    await compareTurns(store.setting, { seed: seed(), runs: 30, commands: 30 });
    await compareWithReference({ ...store.setting, runs: 12, shrink: false });
    await compareCells({ engine: store.setting.engine, clock: store.clock, seed: seed(), runs: 3, commands: 60 });
    await compareWithReference({ ...store.setting, engine: store.ways(), runs: 4, shrink: false });
  } finally {
    await store.close();
  }
}

// What a mutant leaves behind must not end the judge: the next one has a server and modules of its own.
process.on("unhandledRejection", () => {});
process.on("uncaughtException", () => {});

for await (const line of createInterface({ input: process.stdin })) {
  const [number, file] = line.split(" ");
  let answer = "passed";
  try {
    await (engine === "redis" ? redis : sql)(number, file);
  } catch (error) {
    const [first = ""] = String(error?.message ?? error).split("\n");
    answer = `killed ${/SYNTAX|syntax|compiling script|Undefined CONDITION/.test(String(error?.stack)) ? "syntax " : ""}${first.slice(0, 200)}`;
  }
  console.log(`${number} ${answer}`);
  await RESETS[engine]().catch(() => {});
}
await server?.running.stop();
process.exit(0);
