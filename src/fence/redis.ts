import { checkCount, shown } from "../core/checks.js";
import { InvalidOptionError, StaleTokenError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import {
  checkFenceOptions,
  checkRaise,
  checkToken,
  type Fence,
  type FenceOptions,
  type FenceToken,
  liveText,
} from "./token.js";

/** An ioredis client, of a single server, Sentinel or Cluster. */
export interface IoredisClient {
  call(command: string, ...args: (string | Buffer)[]): Promise<unknown>;
  pipeline(commands?: unknown[][]): unknown;
}

/** A node-redis client, connected, of a single server, Sentinel or Cluster. */
export interface NodeRedisClient {
  eval(script: string, options: { keys: string[]; arguments: (string | Buffer)[] }): Promise<unknown>;
}

export type RedisClient = IoredisClient | NodeRedisClient;

/**
 * The guard before a script of one's own. It reads KEYS[1], the fence, and ARGV[1] to ARGV[3], the token, its floor and the live
 * tokens or nothing, and takes them away: the script behind it finds its own keys and arguments where it expects them.
 * Numbers are compared as numbers and stored as they came: Lua would print large ones as 1.79e+15.
 */
const GUARD = `do
  local state = redis.call('HMGET', KEYS[1], 'fence', 'newest', 'live')
  local fence, newest, live = tonumber(state[1] or 0), tonumber(state[2] or 0), state[3] or ''
  local token, floor, set = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
  local exact = set ~= ''
  if token < fence or (exact and token <= newest and not string.find(live, ',' .. ARGV[1] .. ',', 1, true)) then
    return redis.error_reply('HOLDFASTSTALE ' .. (state[1] or '0'))
  end
  if floor > fence then redis.call('HSET', KEYS[1], 'fence', ARGV[2]) end
  if exact and token > newest then redis.call('HSET', KEYS[1], 'newest', ARGV[1], 'live', set) end
  table.remove(KEYS, 1)
  for _ = 1, 3 do table.remove(ARGV, 1) end
end
`;

const SET = "return redis.call('SET', KEYS[1], unpack(ARGV))";

/** Only ever up. */
const RAISE = `if tonumber(ARGV[1]) > tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then
  redis.call('HSET', KEYS[1], 'fence', ARGV[1])
end
return 1`;

export type GuardedScript = {
  /** Lua, written as if it stood alone: KEYS and ARGV are its own. */
  readonly script: string;
  readonly keys: readonly string[];
  readonly args?: readonly (string | Buffer)[];
  /** Where the fence is kept, in the same slot as the keys. For one key: `{key}:fence` unless said otherwise. */
  readonly fenceKey?: string;
};

/** Runs a script of your own behind the guard, in one step. A stale token rejects with `StaleTokenError`, and nothing of it runs. */
export async function fencedEval(
  client: RedisClient,
  { script, keys, args = [], fenceKey = fenceKeyOf(keys) }: GuardedScript,
  given: FenceToken,
  options: FenceOptions = {},
): Promise<unknown> {
  checkFenceOptions(options);
  const { token, floor, live } = checkToken(given, options);
  const shownArgs = [String(token), String(floor), live === undefined ? "" : liveText(live)];
  try {
    return await evaluate(client, GUARD + script, [fenceKey, ...keys], [...shownArgs, ...args]);
  } catch (cause) {
    const [, fence] = /^HOLDFASTSTALE (\d+)/.exec(cause instanceof Error ? cause.message : "") ?? [];
    throw fence === undefined ? cause : new StaleTokenError(keys[0] ?? fenceKey, token, Number(fence));
  }
}

export interface FencedSetOptions extends FenceOptions {
  /** The value's time to live. The fence has none. */
  readonly expireMs?: number;
  readonly fenceKey?: string;
}

/** `SET`, unless the key has seen a newer floor. The fence stands beside it, at `{key}:fence`, and stays when the key goes. */
export async function fencedSet(
  client: RedisClient,
  key: string,
  value: string | Buffer,
  token: FenceToken,
  { expireMs, fenceKey = fenceKeyOf([key]), ...options }: FencedSetOptions = {},
): Promise<void> {
  if (typeof value !== "string" && !Buffer.isBuffer(value)) {
    throw new InvalidOptionError("value", shown(value), "a string or a Buffer");
  }
  const expiry =
    expireMs === undefined ? [] : ["PX", String(checkCount("expireMs", expireMs, 1, Number.MAX_SAFE_INTEGER))];
  await fencedEval(client, { script: SET, keys: [key], args: [value, ...expiry], fenceKey }, token, options);
}

/** The fence of a key that `fencedSet` writes. */
export function fenceKeyOf(keys: readonly string[]): string {
  const [key, ...more] = keys;
  if (typeof key !== "string" || key === "" || more.length > 0) {
    throw new InvalidOptionError("fenceKey", `there are ${keys.length} keys`, "a key in the same slot as these");
  }
  // A key with a hash tag keeps it; any other becomes the tag, which ends at the first brace.
  if (/^[^{]*\{[^}]+\}/.test(key)) return `${key}:fence`;
  if (!/[{}]/.test(key)) return `{${key}}:fence`;
  throw new InvalidOptionError("fenceKey", `${shown(key)}, which is no hash tag`, "a key in the same slot as this one");
}

export interface RedisFenceOptions extends FenceOptions {
  /** Before the resource's name; `fence:` unless said otherwise. */
  readonly prefix?: string;
}

/** A fence that is asked by itself, for a guard in front of another resource. Where the value itself is in Redis, `fencedSet` is stronger. */
export function redisFence(client: RedisClient, { prefix = "fence:", ...options }: RedisFenceOptions = {}): Fence {
  checkFenceOptions(options);
  return {
    async accept(resource, token) {
      const fenceKey = prefix + checkName(resource);
      await fencedEval(client, { script: "return 1", keys: [], fenceKey }, token, options).catch((error: unknown) => {
        if (!(error instanceof StaleTokenError)) throw error;
        throw new StaleTokenError(resource, error.token, error.fence);
      });
    },
    async raise(resource, token) {
      const fence = String(checkRaise(token, options));
      await evaluate(client, RAISE, [prefix + checkName(resource)], [fence]);
    },
  };
}

/** The text goes along each time: one round trip, whatever the server remembers. */
function evaluate(
  client: RedisClient,
  script: string,
  keys: readonly string[],
  args: readonly (string | Buffer)[],
): Promise<unknown> {
  return "call" in client && "pipeline" in client
    ? client.call("eval", script, String(keys.length), ...keys, ...args)
    : client.eval(script, { keys: [...keys], arguments: [...args] });
}
