import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { movableClock } from "../../servers/clock-shim.js";
import { startPgBouncer, startPostgres } from "../../servers/postgres.js";
import { until } from "../../servers/process.js";
import { command, type RedisServer, restartRedis, startRedis } from "../../servers/redis.js";
import { Program } from "../program.js";
import { MAIN, type Result, World } from "./rig.js";

type Finding = { readonly check: string; readonly state: string; readonly says: string; readonly advice?: string };

let redis: RedisServer;
beforeAll(async () => void (redis = await startRedis()));
afterAll(() => redis.running.stop());

function findings({ out }: Result): Finding[] {
  return (JSON.parse(out) as { findings: Finding[] }).findings;
}

/** What was found of one check. */
async function examine(world: World, check: string, args: readonly string[] = []): Promise<Finding & { code: number }> {
  const result = await world.holdfast("doctor", "--json", ...args);
  const found = findings(result).find((one) => one.check === check && one.state !== "good");
  return { ...(found ?? { check, state: "good", says: "" }), code: result.code ?? -1 };
}

test.each(["sqlite", "redis"])("all is well, on %s", async (kind) => {
  const world = new World(kind === "redis" ? redis.url : undefined);
  const { code, out } = await world.holdfast("doctor");
  expect(code).toBe(0);
  const checks = [...out.matchAll(/^ok {4}([a-z ]+?) {2,}/gm)].map(([, check]) => check);
  expect(checks).toEqual(["url", "client library", "store", "rights", "clock", "guarantees", "deadlocks"]);
  expect((await world.locks()).guarantees).toBeDefined();
  expect((await world.holdfast("ls")).out, "it leaves nothing behind").toBe("nothing is held\n");
});

test("a URL that is wrong", async () => {
  const found = await examine(new World("rediss+what://me:opensesame@there"), "url");
  expect(found).toMatchObject({
    code: 1,
    state: "bad",
    advice: expect.stringContaining("Correct --url or HOLDFAST_URL"),
  });
  expect(found.says).toContain('it starts with "rediss+what:"');
  expect(JSON.stringify(found)).not.toContain("opensesame");
});

test("a client library that is not installed", async () => {
  const world = new World(redis.url);
  // A copy of the package, in a folder with no others around it.
  const copy = join(world.folder, "node_modules", "holdfast");
  mkdirSync(copy, { recursive: true });
  cpSync(dirname(dirname(MAIN)), join(copy, "dist"), { recursive: true });
  writeFileSync(join(copy, "package.json"), JSON.stringify({ name: "holdfast", version: "0.0.0", type: "module" }));
  const { code, out } = await world.startIn([process.execPath, join(copy, "dist/cli/main.js"), "doctor"]).ended;
  expect(code).toBe(1);
  expect(out).toMatch(/BAD +client library +redis cannot do this: its client library is not installed/);
  expect(out).toContain("-> Run: npm install ioredis");
});

test("a server that is not there", async () => {
  const found = await examine(new World("redis://:opensesame@127.0.0.1:1"), "store");
  expect(found).toMatchObject({ code: 1, state: "bad", advice: expect.stringContaining("See that the server runs") });
  expect(JSON.stringify(found)).not.toContain("opensesame");
});

test("a wrong password, and a user without the rights", async () => {
  await command(redis.port, "ACL SETUSER guest on >opensesame +@connection +info +client");
  const wrong = await examine(new World(redis.url.replace("//", "//guest:wrong-password@")), "rights");
  expect(wrong).toMatchObject({ code: 1, advice: expect.stringContaining("Check the user and the password") });
  const poor = await examine(new World(redis.url.replace("//", "//guest:opensesame@")), "rights");
  expect(poor).toMatchObject({ code: 1, advice: expect.stringContaining("docs/rights/redis.acl") });
  expect(JSON.stringify([wrong, poor])).not.toMatch(/opensesame|wrong-password/);
});

test("a clock that is wrong", async () => {
  const clock = movableClock();
  const server = await startRedis([], undefined, clock.env);
  try {
    clock.moveTo(90);
    const found = await examine(new World(server.url), "clock");
    expect(found).toMatchObject({ code: 0, state: "mind", advice: expect.stringContaining("Have both set by NTP") });
    expect(found.says).toMatch(/1 min [23]\d s ahead of ours/);
  } finally {
    await server.running.stop();
  }
});

test("a guarantee that is not kept, and one that should be known", async () => {
  const unmet = await examine(new World(), "guarantees", ["--require", "exclusion=consensus,order=fifo"]);
  expect(unmet).toMatchObject({
    code: 1,
    says: "exclusion must be consensus, and it guarantees one-machine",
    advice: expect.stringContaining("Use a store that guarantees it"),
  });
  const replica = await startRedis(["--replicaof", "127.0.0.1", String(redis.port)]);
  try {
    await until("it copies", async () => (await command(redis.port, "INFO replication")).includes("state=online"));
    const found = await examine(new World(redis.url), "guarantees");
    expect(found).toMatchObject({ code: 0, state: "mind", says: "exclusion: until-failover" });
    expect(found.advice).toContain("let the resource check the token");
  } finally {
    await replica.running.stop();
  }
});

test("waiters that have to poll, behind a pooler", { timeout: 240_000 }, async () => {
  const server = await startPostgres();
  const bouncer = await startPgBouncer(server);
  try {
    const result = await new World(bouncer.url).holdfast("doctor", "--json");
    const found = findings(result).find(({ says }) => says === "wake: poll");
    expect(found).toMatchObject({ state: "mind", advice: expect.stringContaining("connect past the pooler") });
  } finally {
    await bouncer.running.stop();
    await server.running.stop();
  }
});

test("--watch prints a line for each change, goes on while the store is away, and ends by Ctrl-C with what was found last", async () => {
  let server = await startRedis();
  const world = new World(server.url);
  const running = world.start(["doctor", "--watch", "--every", "0.05"]);
  const lines = (): string[] => running.out.split("\n").slice(0, -1);
  const found = (): string[] => lines().map((line) => /^\S+Z {2}(\w+ +[a-z ]+?) {2,}/.exec(line)?.[1] ?? line);
  await until("all is told", () => found().includes("ok    deadlocks"));
  const first = ["url", "client library", "store", "rights", "clock", "guarantees", "deadlocks"];
  expect(found()).toEqual(first.map((check) => `ok    ${check}`));
  await server.running.end();
  await until("it is away", () => found().includes("BAD   store"));
  server = await restartRedis(server);
  try {
    await until("it is back", () => found().at(-1) === "ok    store");
    // It may be away for one reason after the other: its end, refused connections, loading.
    const changes = found().slice(first.length);
    expect(new Set(changes.slice(0, -1)), "nothing else has changed").toEqual(new Set(["BAD   store"]));
    expect(running.out).not.toContain("\u001b");
    running.signal("SIGINT");
    expect(await running.ended).toMatchObject({ code: 0, signal: null, err: "" });
  } finally {
    await server.running.stop();
  }
});

test("--watch --json has an object for each change; it ends while a server hangs, and its code says what was found, or that nothing was", async () => {
  const silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void silent.close());
  const { port } = silent.address() as AddressInfo;
  const world = new World("redis://127.0.0.1:1");
  const running = world.start(["doctor", "--watch", "--json", "--every", "0.05"]);
  await until("it is told", () => running.out.split("\n").length > 2);
  const findings = running.out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Finding & { at: string });
  expect(findings).toMatchObject([
    { check: "url", state: "good" },
    { check: "store", state: "bad", advice: expect.stringContaining("See that the server runs") },
  ]);
  expect(new Date(findings[0]?.at ?? "").getTime()).toBeGreaterThan(0);
  running.signal("SIGTERM");
  expect((await running.ended).code).toBe(1);
  for (const [option, code] of [
    ["--json", 69],
    ["--monitor", 3],
  ] as const) {
    const hanging = world.start(["doctor", "--watch", option, "--url", `redis://127.0.0.1:${port}`]);
    await new Promise((resolve) => silent.once("connection", resolve));
    hanging.signal("SIGINT");
    expect(await hanging.ended).toMatchObject({ code, out: "" });
  }
});

test("--monitor has one line and the exit codes of monitoring plugins", async () => {
  const good = await new World(redis.url).holdfast("doctor", "--monitor");
  expect(good).toMatchObject({ code: 0, err: "" });
  expect(good.out).toMatch(/^HOLDFAST OK - rights: a lock was taken, seen, renewed and given back in \d+ ms\n$/);
  const bad = await new World("redis://:opensesame@127.0.0.1:1").holdfast("doctor", "--monitor");
  expect(bad).toMatchObject({ code: 2, err: "" });
  expect(bad.out).toMatch(/^HOLDFAST CRITICAL - store: redis did not answer .* -> See that the server runs.*\n$/);
  expect(bad.out).not.toContain("opensesame");
  const clock = movableClock();
  const server = await startRedis([], undefined, clock.env);
  try {
    clock.moveTo(90);
    const mind = await new World(server.url).holdfast("doctor", "--monitor", "--json");
    expect(mind.code).toBe(1);
    expect(findings(mind).find(({ check }) => check === "clock")?.state).toBe("mind");
  } finally {
    await server.running.stop();
  }
});

test("programs that wait for each other", async () => {
  const world = new World();
  const program = `
    import { connect } from ${JSON.stringify(join(dirname(dirname(MAIN)), "index.js"))};
    const [url, label, first, second] = process.argv.slice(1);
    const locks = await connect(url, { label, detectDeadlockAfterMs: 600_000 });
    await locks.mutex(first).using(async () => {
      console.log(JSON.stringify("holds"));
      await new Promise((resolve) => process.stdin.once("data", resolve));
      await locks.mutex(second).using(() => {});
    });
    await locks.close();
    process.exit();`;
  const start = (label: string, first: string, second: string): Program =>
    new Program(process.execPath, ["--input-type=module", "-e", program, world.url, label, first, second]);
  const both = [start("left", "a", "b"), start("right", "b", "a")];
  for (const one of both) await one.line(0);
  expect(await examine(world, "deadlocks")).toMatchObject({ state: "good", code: 0 });
  for (const one of both) one.say("go");
  await until("they wait for each other", async () => (await examine(world, "deadlocks")).state === "bad");
  const found = await examine(world, "deadlocks");
  expect(found.code).toBe(1);
  expect(found.says).toMatch(/left \(.+\) holds a and waits for b/);
  expect(found.says).toMatch(/right \(.+\) holds b and waits for a/);
  const [, name = ""] = /holdfast release --force -- (.)$/.exec(found.advice ?? "") ?? [];
  expect(await world.holdfast("release", "--force", "--yes", name)).toMatchObject({ code: 0 });
  expect(await examine(world, "deadlocks")).toMatchObject({ state: "good", code: 0 });
});
