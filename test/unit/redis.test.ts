import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import {
  EngineRefusedError,
  EngineUnavailableError,
  InvalidOptionError,
  UnsupportedError,
} from "../../src/core/errors.js";
import type { RedisDriver } from "../../src/engines/redis/driver.js";
import { translateError } from "../../src/engines/redis/errors.js";
import { Subscription } from "../../src/engines/redis/events.js";
import { openRedis, redisEngine } from "../../src/engines/redis/index.js";
import { parseRedisUrl } from "../../src/engines/redis/url.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

const SCRIPTS = resolve(import.meta.dirname, "../../scripts/compile-lua.mjs");
const GENERATED = resolve(import.meta.dirname, "../../src/engines/redis/scripts.generated.ts");

type Compiler = { readonly compile: () => string; readonly problems: (file: string, text: string) => string[] };

describe("the scripts", () => {
  test("are compiled from what stands in lua/", async () => {
    const { compile } = (await import(SCRIPTS)) as Compiler;
    expect(readFileSync(GENERATED, "utf8")).toBe(compile());
  });

  test("are refused when header and code disagree", async () => {
    const { problems } = (await import(SCRIPTS)) as Compiler;
    const header = "-- What it does.\n--\n-- KEYS[1]  a key\n-- ARGV[1]  a number\n--\n-- returns done\n\n";
    expect(problems("fine.lua", `${header}redis.call('SET', KEYS[1], ARGV[1])\nreturn 'done'\n`)).toEqual([]);
    expect(problems("x.lua", `${header}redis.call('SET', KEYS[1], ARGV[2])\nreturn 'done'\n`)).toEqual([
      "x.lua: the header lists the arguments 1; the code has 2",
    ]);
    expect(problems("x.lua", `${header}redis.call('DEL', KEYS[1], KEYS[2], ARGV[1])\nreturn 'gone'\n`)).toEqual([
      "x.lua: the header lists the keys 1; the code has 1, 2",
      "x.lua: the header lists the answers done; the code has gone",
    ]);
  });

  test("pitfall 58: no number is put into a text without a format", () => {
    const { length } = [...readFileSync(GENERATED, "utf8").matchAll(/tostring\((?!answer\))/g)];
    expect(length).toBe(0);
  });
});

describe("a Redis URL", () => {
  const base = { username: undefined, password: undefined, db: 0, master: "", tls: undefined };

  test.each([
    ["redis://localhost", { ...base, topology: "single", hosts: [{ host: "localhost", port: 6379 }] }],
    ["REDIS://localhost:7000/3", { ...base, topology: "single", hosts: [{ host: "localhost", port: 7000 }], db: 3 }],
    [
      "rediss://us%40er:p%3Ass@[::1]:6380",
      {
        ...base,
        topology: "single",
        hosts: [{ host: "::1", port: 6380 }],
        username: "us@er",
        password: "p:ss",
        tls: {},
      },
    ],
    ["redis://:secret:with:colons@h", { ...base, hosts: [{ host: "h", port: 6379 }], password: "secret:with:colons" }],
    [
      "redis+sentinel://u:p@a,b:26380/main/2?sentinelPassword=s%20p",
      {
        topology: "sentinel",
        hosts: [
          { host: "a", port: 26379 },
          { host: "b", port: 26380 },
        ],
        username: "u",
        password: "p",
        master: "main",
        db: 2,
        sentinelPassword: "s p",
      },
    ],
    [
      "redis+cluster://a:1,b:2/0",
      {
        topology: "cluster",
        hosts: [
          { host: "a", port: 1 },
          { host: "b", port: 2 },
        ],
      },
    ],
  ])("%s is taken apart", (url, parts) => {
    expect(parseRedisUrl(url)).toMatchObject(parts);
  });

  test.each([
    ["redis://u:secret@a,b", /several hosts/],
    ["redis://u:secret@", /host in it/],
    ["redis://u:secret@h/x", /what follows the host/],
    ["redis://u:secret@h/1/2", /what follows the host/],
    ["redis://u:secret@h/123456", /what follows the host/],
    ["redis://u:sec%ret@h", /%/],
    ["redis+sentinel://u:secret@h", /does not name the primary/],
    ["redis+cluster://u:secret@h/1", /what follows the host/],
    ["redis://u:secret@h?x=1", /unknown option "x"/],
    ["redis+sentinel://u:secret@h/main?x=1", /unknown option "x"/],
    ["redis+cluster://u:secret@h?sentinelPassword=secret", /unknown option "sentinelPassword"/],
    ["redis:u:secret", /cannot be read/],
  ])("%s is refused without showing the password", (url, message) => {
    const parse = (): unknown => parseRedisUrl(url);
    expect(parse).toThrow(InvalidOptionError);
    expect(parse).toThrow(message);
    expect(parse).not.toThrow(/secret|sec%ret/);
  });

  test("takes the options of Redis, and other URLs do not", async () => {
    await expect(connect("memory:", { layout: "plain" } as object)).rejects.toThrow(/Invalid option "layout"/);
    await expect(connect("redis://127.0.0.1:1", { layout: "fancy" as "plain" })).rejects.toThrow(/"fair" or "plain"/);
    await expect(connect("redis://127.0.0.1:1", { ack: -1 })).rejects.toThrow(InvalidOptionError);
    await expect(connect("redis://127.0.0.1:1", { tsl: {} } as object)).rejects.toThrow(/there is no such option/);
  });

  test("where nobody listens fails at once and says so, with either library", async () => {
    const without = (library: string) => (name: string) =>
      name === library
        ? Promise.reject(Object.assign(new Error(`Cannot find package '${name}'`), { code: "ERR_MODULE_NOT_FOUND" }))
        : import(name);
    for (const load of [undefined, without("ioredis")]) {
      const opening = openRedis("redis://user:secret@127.0.0.1:1", {}, load);
      await expect(opening).rejects.toBeInstanceOf(EngineUnavailableError);
      await expect(opening).rejects.toThrow(/ECONNREFUSED/);
      await expect(opening).rejects.not.toThrow(/secret/);
    }
  });

  test("without a client library the error has the command that installs one", async () => {
    const none = (name: string) =>
      Promise.reject(Object.assign(new Error(`Cannot find package '${name}'`), { code: "ERR_MODULE_NOT_FOUND" }));
    const opening = openRedis("redis://127.0.0.1:1", {}, none);
    await expect(opening).rejects.toBeInstanceOf(UnsupportedError);
    await expect(opening).rejects.toThrow(/npm install ioredis/);
    const broken = (): Promise<never> => Promise.reject(new SyntaxError("the library itself is broken"));
    await expect(openRedis("redis://127.0.0.1:1", {}, broken)).rejects.toThrow(/itself is broken/);
  });
});

test("a channel that is added at whatever step of the connection is subscribed to", async () => {
  for (let step = 0; step < 30; step += 1) {
    const subscribed: string[] = [];
    const connection = {
      subscribe: async (channel: string) => void subscribed.push(channel),
      unsubscribe: async () => {},
      ping: async () => {},
      close: () => {},
    };
    const driver = { openSubscriber: async () => connection } as unknown as RedisDriver;
    const [clock, chance] = [new FakeClock(), new SeededChance(1)];
    const subscription = new Subscription({ driver, clock, chance, callTimeoutMs: 1000, warn: () => {} });
    const opened = subscription.open("first", () => {});
    for (let n = 0; n < step; n += 1) await Promise.resolve();
    await Promise.all([opened, subscription.add("second", () => {})]);
    expect(subscribed, `step ${step}`).toEqual(["first", "second"]);
    subscription.close();
  }
});

test("what is no Redis client is refused", async () => {
  const call = (): void => {};
  const halves = [{ call }, { call: 1, pipeline: call }, { customCommand: 1 }, { sendCommand: 1 }];
  for (const wrong of [undefined, null, {}, "redis://h", ...halves]) {
    await expect(redisEngine(wrong as never)).rejects.toBeInstanceOf(InvalidOptionError);
  }
});

test("errors are told apart: refused for good, or not known; and never with the arguments of a command", () => {
  const place = "script: 6fcf01d1f26185f217f34722b785a550aa58b86d, on @user_script:50.";
  for (const message of [
    "NOAUTH Authentication required.",
    "NOPERM no",
    "WRONGTYPE x",
    "WRONGPASS x",
    "DENIED Redis is running in protected mode",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "ERR unknown command 'EVALSHA', with args beginning with: ",
    `ERR Unknown Redis command called from script ${place}`,
    `ERR ACL failure in script: User u has no permissions to run the 'hset' command ${place}`,
    "ERR Error running script (call to f_6f): @user_script:5: @user_script: 5: -NOPERM no",
    "ERR Error running script (call to f_6f): @user_script:5: @user_script: 5: WRONGTYPE Operation against a key",
    "@user_script: 50: -WRONGTYPE Operation against a key",
    "ERR DB index is out of range",
  ]) {
    expect(translateError(new Error(message)), message).toBeInstanceOf(EngineRefusedError);
  }
  for (const [message, told] of [
    ["OOM command not allowed when used memory > 'maxmemory'.", /memory is full/],
    [`OOM command not allowed when used memory > 'maxmemory'. ${place}`, /'maxmemory': the server's memory is full/],
    [
      "ERR Error running script (call to f_6f): @user_script:5: @user_script: 5: -OOM command not allowed",
      /^OOM .* full/,
    ],
    ["MISCONF Redis is configured to save RDB snapshots", /disk/],
    ["NOREPLICAS Not enough good replicas to write.", /min-replicas-to-write/],
    ["READONLY You can't write against a read only replica.", /replica now/],
    ["LOADING Redis is loading the dataset in memory", /reading its data/],
    ["BUSY Redis is busy running a script.", /SCRIPT KILL/],
    ["CLUSTERDOWN Hash slot not served", /Cluster is down/],
    ["MASTERDOWN Link with MASTER is down", /lost its primary/],
    ["TRYAGAIN Multiple keys request during rehashing of slot", /moving/],
    ["MOVED 866 127.0.0.1:7000", /^MOVED/],
    ["ERR max number of clients reached", /^ERR max/],
    ["Connection is closed.", /^Connection is closed\.$/],
  ] as const) {
    const error = translateError(new Error(message));
    expect(error, message).not.toBeInstanceOf(EngineRefusedError);
    expect(error.message).toMatch(told);
  }
  // A Cluster client goes where the node points; no other client does.
  expect(translateError(new Error("MOVED 866 127.0.0.1:7000"), "single")).toBeInstanceOf(EngineRefusedError);
  const reply = Object.assign(new Error("NOAUTH x"), { command: { name: "auth", args: ["secret"] } });
  const error = translateError(reply);
  expect(error).not.toHaveProperty("command");
  expect(error.cause).not.toHaveProperty("command");
});
