import type { Engine } from "../../core/engine.js";
import { EngineRefusedError, EngineUnavailableError } from "../../core/errors.js";
import { RETRY_MIN_MS } from "../../core/limits.js";
import { askCredentials } from "../../engine-kit/credentials.js";
import { addressOf } from "../../engine-kit/hosts.js";
import { agreeOnVersion } from "../../engine-kit/layout-version.js";
import { type Load, libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { pause } from "../../engine-kit/pause.js";
import type { EtcdDriver } from "./driver.js";
import { GrpcEtcd } from "./drivers/grpc.js";
import type { Grpc } from "./drivers/grpc-module.js";
import { EtcdEngine } from "./engine.js";
import { translated } from "./errors.js";
import { guaranteesOf } from "./guarantees.js";
import { Keys } from "./keys.js";
import { checkCallTimeout, checkOptions, type EtcdOptions, type EtcdUrlOptions, type Settings } from "./options.js";
import { changedAt, get, put } from "./requests.js";
import { parseEtcdUrl } from "./url.js";

const LIBRARY = "@grpc/grpc-js";
const TOO_OLD = "Use an etcd server of version 3.4 or later.";

/** A client for the cluster at this URL: one connection, to one member at a time. */
export async function etcdClient(
  url: string,
  options: EtcdUrlOptions = {},
  load: Load = loadInstalled,
): Promise<EtcdDriver> {
  const { tls, callTimeoutMs: limitMs, credentials, ...rest } = options;
  const { clock } = checkOptions(rest);
  const { hosts, username, password, tls: secure } = parseEtcdUrl(url, tls);
  const callTimeoutMs = checkCallTimeout(limitMs);
  const ask = askCredentials("etcd", credentials, { username, password }, { clock, callTimeoutMs });
  const known = username === undefined ? undefined : async () => ({ username, password: password ?? "" });
  const grpc = (await loadIfInstalled(LIBRARY, load)) as Grpc | null;
  if (grpc === null) throw libraryMissing("etcd", LIBRARY);
  const settings = { hosts: hosts.map(addressOf), tls: secure, credentials: ask ?? known, clock, callTimeoutMs };
  return new GrpcEtcd(grpc, settings);
}

/** `etcd:` and `etcds:`. With several members, as long as one call may take, until one of them answers. */
export async function openEtcd(url: string, options: EtcdUrlOptions = {}, load: Load = loadInstalled): Promise<Engine> {
  const { tls, callTimeoutMs, credentials: _ofClient, ...rest } = options;
  const settings = checkOptions(rest);
  const client = await etcdClient(url, options, load);
  const { clock } = settings;
  const until = parseEtcdUrl(url, tls).hosts.length > 1 ? clock.now() + checkCallTimeout(callTimeoutMs) : 0;
  for (;;) {
    try {
      return await openEngine(client, settings, true);
    } catch (error) {
      if (error instanceof EngineUnavailableError && clock.now() < until) {
        await pause(clock, RETRY_MIN_MS * 4);
        continue;
      }
      client.close();
      throw error;
    }
  }
}

/**
 * An engine on a client of yours, made by `etcdClient`; it stays yours to close. Several engines may share one.
 *
 * ```ts
 * const client = await etcdClient("etcd://a,b,c");
 * const locks = await connect(await etcdEngine(client, { prefix: "shop/locks/" }));
 * ```
 */
export async function etcdEngine(client: EtcdDriver, options: EtcdOptions = {}): Promise<Engine> {
  return openEngine(client, checkOptions(options), false);
}

async function openEngine(client: EtcdDriver, settings: Settings, own: boolean): Promise<Engine> {
  try {
    const { members } = await client.call("memberList", {});
    await checkVersion(client);
    const refusal = await agree(client, settings.prefix);
    if (refusal !== null) throw refusal;
    // The shortest lease there is says what the server rounds up to.
    const { ID, TTL } = await client.call("leaseGrant", { TTL: 1 });
    if (TTL <= 0) throw new Error("etcd granted a lease that is none");
    await client.call("leaseRevoke", { ID });
    // Learners are told everything and decide nothing.
    const voters = members.filter(({ isLearner }) => !isLearner).length;
    return new EtcdEngine(client, settings, guaranteesOf(voters), TTL * 1000, own);
  } catch (cause) {
    const error = translated(cause);
    throw error instanceof EngineRefusedError ? error : new EngineUnavailableError("etcd", "connecting", error);
  }
}

/** Also when there is nothing to write: whoever may not write or read here is refused now. */
function agree(client: EtcdDriver, prefix: string): Promise<EngineRefusedError | null> {
  const place = { kind: "etcd", what: `the data under the prefix "${prefix}"`, another: "a prefix" } as const;
  const key = new Keys(prefix).layoutVersion;
  let changed = 0;
  return agreeOnVersion(place, async (_seen, ours) => {
    const [compare, success] = [[changedAt(key, changed)], [put(key, ours, 0n)]];
    const { succeeded, responses } = await client.call("txn", { compare, success, failure: [get(key)] });
    if (succeeded) return ours;
    const [there] = responses[0]?.response_range?.kvs ?? [];
    // Removed meanwhile: then as if there had been none.
    changed = there?.mod_revision ?? 0;
    return there?.value.toString() ?? null;
  });
}

/** Where it may be asked: an older one would do some of what it is told, and leave out the rest without a word. */
async function checkVersion(client: EtcdDriver): Promise<void> {
  const version = await client.call("status", {}).then(
    (status) => status.version,
    () => "",
  );
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(version)?.map(Number) ?? [];
  if (major === undefined || minor === undefined || major > 3 || (major === 3 && minor >= 4)) return;
  throw new EngineRefusedError("etcd", TOO_OLD, new Error(`its version is ${version}`));
}
