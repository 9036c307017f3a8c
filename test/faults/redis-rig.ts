import { onTestFinished } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { openRedis } from "../../src/engines/redis/index.js";
import type { Locks } from "../../src/locks.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";

export { claimOf, listening, states, waiters } from "./rig.js";

/** What the tests of the Redis engine share. Everything opened here is closed when its test is over. */

export async function engineOn(url: string, options: Parameters<typeof openRedis>[1] = {}): Promise<Engine> {
  return closing(await openRedis(url, options));
}

export function closing(engine: Engine): Engine {
  onTestFinished(() => engine[Symbol.asyncDispose]());
  return engine;
}

export async function locksOn(url: string, options: Parameters<typeof connect>[1] = {}): Promise<Locks> {
  const locks = await connect(url, options);
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
