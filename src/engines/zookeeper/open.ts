import type { Clock } from "../../core/clock.js";
import { EngineUnavailableError, isRefusal } from "../../core/errors.js";
import { CALL_TIMEOUT_DEFAULT_MS } from "../../core/limits.js";
import type { ZooKeeperDriver } from "./driver.js";
import { WireClient } from "./drivers/wire/client.js";
import { ZooKeeperEngine } from "./engine.js";
import { refused } from "./errors.js";
import {
  checkOptions,
  checkUrlOptions,
  type Settings,
  type ZooKeeperOptions,
  type ZooKeeperUrlOptions,
} from "./options.js";
import { parseZooKeeperUrl } from "./url.js";

/**
 * `zookeeper://user:password@a:2181,b:2181,c:2181/base`, with a client of our own: nothing has to be installed.
 * `zookeeper+tls://` for servers with a secure port.
 */
export async function openZookeeper(url: string, options: ZooKeeperUrlOptions = {}): Promise<ZooKeeperEngine> {
  const { client, settings, callTimeoutMs } = prepare(url, options);
  return begin(client, settings, callTimeoutMs, true);
}

/** A client for the servers at this URL. It connects when it is given to an engine, and is yours to close. */
export function zookeeperClient(url: string, options: ZooKeeperUrlOptions = {}): ZooKeeperDriver {
  return prepare(url, options).client;
}

/**
 * An engine on a client of yours, made by `zookeeperClient`; it stays yours to close. Several engines may share one.
 *
 * ```ts
 * const client = zookeeperClient("zookeeper://a,b,c");
 * const locks = await connect(await zookeeperEngine(client, { base: "/shop/locks" }));
 * ```
 */
export async function zookeeperEngine(
  client: ZooKeeperDriver,
  options: ZooKeeperOptions = {},
): Promise<ZooKeeperEngine> {
  return begin(client, checkOptions(options), 2 * CALL_TIMEOUT_DEFAULT_MS, false);
}

function prepare(url: string, options: ZooKeeperUrlOptions) {
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
  return { client, settings, callTimeoutMs };
}

async function begin(
  client: ZooKeeperDriver,
  settings: Settings,
  timeoutMs: number,
  own: boolean,
): Promise<ZooKeeperEngine> {
  const opening = ZooKeeperEngine.open(client, settings, own);
  try {
    return await within(settings.clock, timeoutMs, opening, () => client.lastCause ?? new Error("no connection"));
  } catch (error) {
    // Should it open after all, nobody wants it any more.
    opening.then((late) => late[Symbol.asyncDispose]()).catch(() => {});
    if (own) await client.close().catch(() => {});
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
