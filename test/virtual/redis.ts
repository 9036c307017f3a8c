import { createHash } from "node:crypto";
import { resolve } from "node:path";
import { Redis } from "ioredis";
import { redisEngine } from "../../src/engines/redis/index.js";
import type { RedisOptions } from "../../src/engines/redis/options.js";
import { SCRIPTS } from "../../src/engines/redis/scripts.generated.js";
import type { Setting } from "../../src/testing/conformance/kit.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { startRedis } from "../servers/redis.js";

/**
 * Virtual time on a real Redis server: what runs there are the scripts as they are shipped, behind a few lines that take
 * the place of the functions by which a script reaches the server. TIME is what the test says, keys end by that time, and
 * what is published is written down as well. A command that the lines do not know fails: it might depend on real time.
 */
const PRELUDE = `local redis = (function(server)
local function nowMs() return math.floor(server.call('GET', 'virtual:time') / 1000) end
local function endsIn(key, ms)
if server.call('EXISTS', key) == 1 and tonumber(ms) > 0 then
server.call('PERSIST', key)
server.call('ZADD', 'virtual:ends', nowMs() + ms, key)
else
server.call('ZREM', 'virtual:ends', key)
end
end
local own = {}
function own.TIME()
local second, rest = string.match(server.call('GET', 'virtual:time'), '^(%d+)(%d%d%d%d%d%d)$')
return { second, string.format('%d', rest) }
end
function own.PEXPIRE(call, key, ms)
local answer = call('PEXPIRE', key, ms)
if answer == 1 then endsIn(key, ms) end
return answer
end
function own.PERSIST(call, key)
server.call('ZREM', 'virtual:ends', key)
return call('PERSIST', key)
end
function own.PTTL(call, key)
if server.call('EXISTS', key) == 0 then return -2 end
local at = server.call('ZSCORE', 'virtual:ends', key)
return at and at - nowMs() or -1
end
function own.SET(call, key, value, ...)
local options = { ... }
local answer = call('SET', key, value, ...)
if type(answer) == 'table' and answer.ok then
local kept = false
for _, option in ipairs(options) do if option == 'KEEPTTL' then kept = true end end
if not kept then endsIn(key, 0) end
for at, option in ipairs(options) do if option == 'PX' then endsIn(key, options[at + 1]) end end
end
return answer
end
function own.DEL(call, key)
server.call('ZREM', 'virtual:ends', key)
return call('DEL', key)
end
function own.HDEL(call, key, ...)
local answer = call('HDEL', key, ...)
if server.call('EXISTS', key) == 0 then server.call('ZREM', 'virtual:ends', key) end
return answer
end
function own.PUBLISH(call, channel, message)
server.call('RPUSH', 'virtual:pushed', channel .. '\\n' .. message)
return call('PUBLISH', channel, message)
end
local timeless = { HGET = true, HMGET = true, HSET = true, HKEYS = true, GET = true, EXISTS = true }
local function through(call, command, ...)
if own[command] then return own[command](call, ...) end
if not timeless[command] then error('virtual time does not know ' .. command) end
return call(command, ...)
end
return {
call = function(...) return through(server.call, ...) end,
pcall = function(...) return through(server.pcall, ...) end,
}
end)(redis)
`;

/** A key is there until the millisecond after its end, as on a real server. */
const PASS = `redis.call('SET', 'virtual:time', ARGV[1])
local over = redis.call('ZRANGEBYSCORE', 'virtual:ends', '-inf', '(' .. ARGV[2])
for _, key in ipairs(over) do redis.call('DEL', key) end
redis.call('ZREMRANGEBYSCORE', 'virtual:ends', '-inf', '(' .. ARGV[2])`;

/** Microseconds and eighths of a millisecond are both exact in it. */
const EIGHTHS = 8;

class VirtualClock extends FakeClock {
  readonly #redis: Redis;

  constructor(redis: Redis, wallMs?: number) {
    super(wallMs);
    this.#redis = redis;
  }

  override async advance(ms: number): Promise<void> {
    await super.advance(Math.round(ms * EIGHTHS) / EIGHTHS);
    await this.tell();
  }

  /** The server's time becomes this clock's. */
  async tell(): Promise<void> {
    const wallMs = this.wallMs();
    await this.#redis.eval(PASS, 0, String(wallMs * 1000), String(Math.floor(wallMs)));
  }
}

type ScriptName = keyof typeof SCRIPTS;
type Compiled = { readonly all: readonly { readonly name: ScriptName; readonly source: string }[] };
type Compiler = { readonly scripts: (edit?: (file: string, text: string) => string) => Compiled };

const COMPILER = resolve(import.meta.dirname, "../../scripts/compile-lua.mjs");

/** The fast paths: what a line \`-- plain <path>: \` in lua/*.lua switches off, and calls that carry several requests. */
export const FAST_PATHS = ["idle", "taken", "alone", "own", "handOver", "seen", "string", "batch"] as const;
export type FastPath = (typeof FAST_PATHS)[number];

export type Build = {
  /** Which fast paths the scripts go without. */
  readonly without?: readonly FastPath[];
  /** A change of lua/<file>, as a mutant is. */
  readonly edit?: (file: string, text: string) => string;
};

const sha1 = (text: string): string => createHash("sha1").update(text).digest("hex");

/** By the hash of what is shipped: what runs instead of it. */
async function buildOf({ without = [], edit = (_, text) => text }: Build): Promise<Map<string, string>> {
  const { scripts } = (await import(COMPILER)) as Compiler;
  const found = new Set<string>(["batch"]);
  const plain = (file: string, text: string): string =>
    edit(file, text).replaceAll(/-- plain (\w+): /g, (comment, path: FastPath) => {
      found.add(path);
      return without.includes(path) ? "" : comment;
    });
  const { all } = scripts(plain);
  for (const path of FAST_PATHS) if (!found.has(path)) throw new Error(`no script has a line "-- plain ${path}: "`);
  return new Map(all.map(({ name, source }) => [SCRIPTS[name].sha, PRELUDE + source]));
}

/** The scripts whose calls carry several requests, an answer's line each. */
const BATCHED = new Set<string>([SCRIPTS.claim.sha, SCRIPTS.renew.sha, SCRIPTS.release.sha]);

/** The same client, whose scripts are those of a test build. */
async function virtualClient(client: Redis, build: Build): Promise<Redis> {
  const texts = await buildOf(build);
  const shas = new Map([...texts].map(([shipped, text]) => [shipped, sha1(text)]));
  // A server that does not know a script yet is asked twice, and what was asked meanwhile comes first.
  for (const text of texts.values()) await client.script("LOAD", text);
  const call = client.call.bind(client) as (command: string, ...args: string[]) => Promise<unknown>;
  const run = (command: string, shipped: string, args: readonly string[]): Promise<unknown> => {
    const text = command === "eval" ? texts.get(shipped) : shas.get(shipped);
    if (text === undefined) throw new Error("a script that is not one of ours would run in real time");
    return call(command, text, ...args);
  };
  const oneByOne = async (command: string, shipped: string, count: number, args: readonly string[]) => {
    const answers: Promise<unknown>[] = [];
    for (let n = 0; n < count; n += 1) {
      answers.push(run(command, shipped, ["1", args[n] ?? "", args[count + n] ?? "", ...args.slice(2 * count)]));
    }
    return (await Promise.all(answers)).join("\n");
  };
  const virtual = async (command: string, ...args: string[]): Promise<unknown> => {
    if (command !== "eval" && command !== "evalsha") return call(command, ...args);
    const [text = "", count = "", ...rest] = args;
    const shipped = command === "eval" ? sha1(text) : text;
    if (build.without?.includes("batch") && BATCHED.has(shipped) && Number(count) > 1)
      return oneByOne(command, shipped, Number(count), rest);
    return run(command, shipped, [count, ...rest]);
  };
  return Object.assign(client, { call: virtual });
}

export type VirtualRedis = {
  readonly clock: VirtualClock;
  /** For a look past the engines. */
  readonly redis: Redis;
  readonly client: (build?: Build) => Promise<Redis>;
  readonly close: () => Promise<void>;
};

/** A server of its own in virtual time, which begins at `wallMs`, for clients of different builds. */
export async function virtualRedis(wallMs?: number): Promise<VirtualRedis> {
  const server = await startRedis();
  const clients: Redis[] = [];
  const connected = (): Redis => {
    // A client that repeats on its own what it sent gets a tombstone with every release, and half of the rules are never seen.
    const client = new Redis(server.port, { autoResendUnfulfilledCommands: false });
    clients.push(client);
    return client;
  };
  const redis = connected();
  const clock = new VirtualClock(redis, wallMs);
  await clock.tell();
  return {
    clock,
    redis,
    client: (build = {}) => virtualClient(connected(), build),
    close: async () => {
      for (const client of clients) client.disconnect();
      await server.running.stop();
    },
  };
}

const STEP_MS = 600;

/** What `compareWithReference` needs: engines whose leases run by a fake clock, on a real server. */
export async function virtual(
  // Long enough for tokens that are suggested ahead of time, short enough for keys to end in a run.
  options: RedisOptions = { idleMs: 60_000 },
  build: Build = {},
): Promise<{ setting: Setting; close: () => Promise<void> }> {
  const { clock, client, close } = await virtualRedis();
  const shared = await client(build);
  return { setting: { engine: () => redisEngine(shared, options), leaseStepMs: STEP_MS, clock }, close };
}
