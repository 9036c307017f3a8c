import type { Clock } from "../../core/clock.js";
import { EngineUnavailableError, isRefusal } from "../../core/errors.js";
import type { ZooKeeperClient } from "./client.js";
import { ZooKeeperEngine } from "./engine.js";
import {
  checkOptions,
  checkUrlOptions,
  type Settings,
  type ZooKeeperOptions,
  type ZooKeeperUrlOptions,
} from "./options.js";
import { refused } from "./refusals.js";
import { parseZooKeeperUrl } from "./url.js";
import { WireClient } from "./wire/client.js";

/**
 * `zookeeper://user:password@a:2181,b:2181,c:2181/base`, with a client of our own: nothing has to be installed.
 * `zookeeper+tls://` for servers with a secure port.
 */
export async function openZookeeper(url: string, options: ZooKeeperUrlOptions = {}): Promise<ZooKeeperEngine> {
  const { hosts, secure, digest, base } = parseZooKeeperUrl(url);
  const all = { ...(base === undefined ? {} : { base }), ...options };
  const { settings, wire, callTimeoutMs } = checkUrlOptions(all, digest !== undefined);
  const client = new WireClient({
    ...wire,
    hosts,
    callTimeoutMs,
    tls: wire.tls ?? (secure ? {} : undefined),
    auth: digest === undefined ? undefined : { scheme: "digest", secret: digest },
    clock: settings.clock,
    chance: settings.chance,
  });
  return begin(client, settings, callTimeoutMs, () => client.lastCause);
}

/** On a client that you made, such as `nativeClient(…)`. It is the engine's from now on, and closed with it. */
export async function zookeeperEngine(
  client: ZooKeeperClient,
  options: ZooKeeperOptions = {},
): Promise<ZooKeeperEngine> {
  const settings = checkOptions(options);
  return begin(client, settings, FIRST_CONNECTION_MS, () => new Error("no connection"));
}

const FIRST_CONNECTION_MS = 10_000;

async function begin(
  client: ZooKeeperClient,
  settings: Settings,
  withinMs: number,
  why: () => Error,
): Promise<ZooKeeperEngine> {
  const opening = ZooKeeperEngine.open(client, settings);
  try {
    return await within(settings.clock, withinMs, opening, why);
  } catch (error) {
    // Should it come to be after all, nobody wants it any more.
    opening.then((late) => late[Symbol.asyncDispose]()).catch(() => {});
    await client.close().catch(() => {});
    const known = refused(error);
    throw isRefusal(known) ? known : new EngineUnavailableError("zookeeper", "connecting", known);
  }
}

function within<T>(clock: Clock, ms: number, promise: Promise<T>, why: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(ms, () => reject(why()));
    promise.then(resolve, reject).finally(() => clock.cancel(timer));
  });
}
