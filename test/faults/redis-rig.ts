import { onTestFinished } from "vitest";
import { connect } from "../../src/connect.js";
import type { Claim, Engine, EngineEvent } from "../../src/core/engine.js";
import type { NameState } from "../../src/core/inspect.js";
import { openRedis } from "../../src/engines/redis/index.js";
import type { Locks } from "../../src/locks.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";

/** What the tests of the Redis engine share. Everything opened here is closed when its test is over. */

const owner = { client: "c", host: "h", pid: 1 };
let ids = 0;

export function claimOf(name: string, over: Partial<Claim> = {}): Claim {
  ids += 1;
  const id = `claim-${process.pid}-${String(ids).padStart(16, "0")}`;
  return { name, id, units: 1, capacity: 1, leaseMs: 10_000, wait: true, owner, ...over };
}

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

export function listening(engine: Engine): EngineEvent[] {
  const events: EngineEvent[] = [];
  engine.listen((event) => events.push(event));
  return events;
}

export async function states(
  of: Pick<Locks, "inspect">,
  filter: { name?: string; prefix?: string } = {},
): Promise<NameState[]> {
  const all: NameState[] = [];
  for await (const state of of.inspect(filter)) all.push(state);
  return all;
}

/** How many claims wait for a name. */
export async function waiters(of: Pick<Locks, "inspect">, name: string): Promise<number> {
  return (await states(of, { name }))[0]?.waiters.length ?? 0;
}
