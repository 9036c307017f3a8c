import { onTestFinished } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import type { Locks } from "../../src/locks.js";
import { Proxy } from "../servers/proxy.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";
import { inSomeTries } from "./rig.js";

/** What the tests of Redlock on real servers share. */

/** Slow machines answer late; what is measured here is not speed. */
const MEMBER_TIMEOUT_MS = 500;
export const TEST_MS = 120_000;

export async function startFive(): Promise<RedisServer[]> {
  const servers = await Promise.all([1, 2, 3, 4, 5].map(() => startRedis()));
  onTestFinished(async () => void (await Promise.all(servers.map((server) => server.running.stop()))));
  return servers;
}

export async function locksOn(servers: readonly { port: number }[], options: ConnectOptions = {}): Promise<Locks> {
  const hosts = servers.map(({ port }) => `127.0.0.1:${port}`);
  const url = `redlock://${hosts.join(",")}`;
  const locks = await inSomeTries(() => connect(url, { memberTimeoutMs: MEMBER_TIMEOUT_MS, ...options }));
  onTestFinished(() => locks.close());
  return locks;
}

export const at = <T>(list: readonly T[], n: number): T => {
  const item = list[n];
  if (item === undefined) throw new Error(`there is no item ${n}`);
  return item;
};

/** A wire of one client to each server. */
export async function wiresTo(servers: readonly { port: number }[]): Promise<Proxy[]> {
  const wires = await Promise.all(servers.map(({ port }) => Proxy.to(port)));
  onTestFinished(async () => void (await Promise.all(wires.map((wire) => wire.close()))));
  return wires;
}

/** Whether a server knows a claim of this name. */
export async function knows({ port }: { port: number }, name: string): Promise<boolean> {
  return (await command(port, `EXISTS holdfast:lock:${name}`)).includes(":1");
}
