import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect, type Locks } from "../../../dist/index.js";
import { movableClock } from "../../servers/clock-shim.js";
import { until } from "../../servers/process.js";
import { command, type RedisServer, startRedis } from "../../servers/redis.js";
import { installed } from "./rig.js";

/** The commands of docs/runbook.md print what the page shows, except for names, numbers and times. */

type Scene = ReturnType<typeof installed>;
type Step = { readonly command: string; readonly shown: string };

const text = readFileSync(resolve(import.meta.dirname, "../../../docs/runbook.md"), "utf8");

/** By heading: each command with what it prints. */
const SECTIONS = text.split(/^## /m).flatMap((section): [heading: string, steps: Step[]][] => {
  const [, block] = /^```console\n(.*?)^```/ms.exec(section) ?? [];
  if (block === undefined) return [];
  const steps = block.split(/^\$ /m).slice(1);
  return [[section.split("\n", 1)[0] ?? "", steps.map(stepOf)]];
});

function stepOf(lines: string): Step {
  const [command = "", ...shown] = lines.split("\n");
  return { command, shown: shown.join("\n") };
}

async function locksOn({ world }: Scene, label: string): Promise<Locks> {
  const locks = await connect(world.url, { label });
  onTestFinished(() => locks.close());
  return locks;
}

/** Somebody holds, and somebody waits. */
async function busy(): Promise<Scene> {
  const scene = installed();
  const holder = await locksOn(scene, "worker-7");
  await holder.mutex("invoice:42").acquire();
  const waiter = await locksOn(scene, "worker-8");
  waiter
    .mutex("invoice:42")
    .acquire()
    .catch(() => {});
  await until("it waits", async () => {
    for await (const { waiters } of holder.inspect({ name: "invoice:42" })) return waiters.length === 1;
    return false;
  });
  return scene;
}

async function redisServer(...args: Parameters<typeof startRedis>): Promise<RedisServer> {
  const server = await startRedis(...args);
  onTestFinished(() => server.running.stop());
  return server;
}

async function clockAhead(): Promise<Scene> {
  const clock = movableClock();
  const server = await redisServer([], undefined, clock.env);
  clock.moveTo(90);
  return installed(server.url);
}

async function replicated(): Promise<Scene> {
  const server = await redisServer();
  await redisServer(["--replicaof", "127.0.0.1", String(server.port)]);
  await until("it copies", async () => (await command(server.port, "INFO replication")).includes("state=online"));
  return installed(server.url);
}

const SCENES: Readonly<Record<string, () => Scene | Promise<Scene>>> = {
  "Who holds this": busy,
  "Waits are long": busy,
  "A lock was lost": () => installed(),
  "The store is away": () => installed("redis://127.0.0.1:1"),
  "The store refuses": async () => installed((await redisServer()).url.replace("//", "//app:wrong-word@")),
  "A clock jumped": clockAhead,
  "A fail-over": replicated,
  "Taking a lock away": busy,
};

/** What does not depend on when and where it is run. */
function shapeOf(printed: string): string {
  return printed
    .replace(/\(\S+:\d+\)/g, "(HOST)")
    .replace(/\d+ (?:ms|s|min|h)\b(?: \d+ (?:s|min)\b)?/g, "AGE")
    .replace(/\d+/g, "#")
    .replace(/ {2,}/g, "  ")
    .replace(/ +$/gm, "")
    .trim();
}

test("every section with commands has its scene", () => {
  expect(SECTIONS.map(([heading]) => heading)).toEqual(Object.keys(SCENES));
});

describe.each(SECTIONS)("%s", (heading, steps) => {
  test("its commands print what the page shows", { timeout: 240_000 }, async () => {
    const { world, env } = await (SCENES[heading] as () => Scene | Promise<Scene>)();
    let token = "";
    for (const { command, shown } of steps) {
      // The page's token stands for the one that was printed before.
      const line = command.replace(/\b\d{16}\b/, () => token);
      const { out, err } = await world.startIn(["bash", "-c", `{ ${line}; } 2>&1`], { ...env, NO_COLOR: "1" }).ended;
      token = /^holds .* (\d{16})$/m.exec(out)?.[1] ?? token;
      expect(shapeOf(out)).toBe(shapeOf(shown));
      expect([err, out.includes("wrong-word")]).toEqual(["", false]);
    }
  });
});
