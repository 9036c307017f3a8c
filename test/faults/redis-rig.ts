import { onTestFinished } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { openRedis } from "../../src/engines/redis/index.js";
import type { Locks } from "../../src/locks.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";
import { inSomeTries } from "./rig.js";

export { claimOf, listening, states, waiters } from "./rig.js";

/** What the tests of the Redis engine share. Everything opened here is closed when its test is over. */

export async function engineOn(url: string, options: Parameters<typeof openRedis>[1] = {}): Promise<Engine> {
  return closing(await openRedis(url, options));
}

/** The client libraries that a URL can be opened with. */
export const LIBRARIES = ["ioredis", "node-redis"] as const;
export type Library = (typeof LIBRARIES)[number];

/** Finds the libraries of a program that has not installed ioredis. */
export const withoutIoredis = (name: string): Promise<unknown> =>
  name === "ioredis"
    ? Promise.reject(Object.assign(new Error(`Cannot find package '${name}'`), { code: "ERR_MODULE_NOT_FOUND" }))
    : import(name);

/** As a program opens it by URL, with either library. */
export async function locksBy(
  library: Library,
  url: string,
  options: Parameters<typeof openRedis>[1] = {},
): Promise<Locks> {
  const engine = await openRedis(url, options, library === "ioredis" ? undefined : withoutIoredis);
  const locks = await connect(closing(engine));
  onTestFinished(() => locks.close());
  return locks;
}

export function closing(engine: Engine): Engine {
  onTestFinished(() => engine[Symbol.asyncDispose]());
  return engine;
}

export async function locksOn(url: string, options: Parameters<typeof connect>[1] = {}): Promise<Locks> {
  const locks = await inSomeTries(() => connect(url, options));
  onTestFinished(() => locks.close());
  return locks;
}

/** A server for one test, which may do to it what it likes. */
export async function ownServer(args: readonly string[] = []): Promise<RedisServer> {
  const mine = await startRedis(args);
  onTestFinished(() => mine.running.stop());
  return mine;
}

/** How often the server was asked to run a command, counting those that scripts run. */
export async function calls(port: number, name: string): Promise<number> {
  const stats = await command(port, "INFO commandstats");
  return Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
}
