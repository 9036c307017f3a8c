import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EngineRefusedError, InvalidOptionError, UnsupportedError } from "../../src/core/errors.js";
import { CallTimeouts } from "../../src/engine-kit/call-timeouts.js";
import { claimText, parseClaimAnswer, parseRenewAnswer } from "../../src/engines/redis/codec.js";
import type { Call, RedisDriver } from "../../src/engines/redis/driver.js";
import { translateError } from "../../src/engines/redis/errors.js";
import { parsePush } from "../../src/engines/redis/events.js";
import { ServerFacts } from "../../src/engines/redis/guarantees.js";
import { Inspection } from "../../src/engines/redis/inspect.js";
import { keyBeside, LockKeys } from "../../src/engines/redis/keys.js";
import { checkOptions } from "../../src/engines/redis/options.js";
import { Scripts, textOf, textsOf } from "../../src/engines/redis/scripts.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { claimOf, states } from "../faults/rig.js";

/** What the engine on Redis makes of what servers say: about themselves, about claims, and about keys. */

const LIMIT_MS = 5_000;

/** As a library may answer text in RESP3. */
class Verbatim extends String {}

type Says = { readonly role?: string; readonly replicas?: number | null; readonly config?: unknown };

/** A primary that says this, or fails with it. */
function primary(says: Says | Error): Call {
  return async ([command]) => {
    if (says instanceof Error) throw says;
    const { role = "master", replicas = 0, config = ["appendonly", "no", "appendfsync", "everysec"] } = says;
    if (command === "config" && config instanceof Error) throw config;
    if (command === "config") return config;
    return `# Replication\r\nrole:${role}\r\n${replicas === null ? "" : `connected_slaves:${replicas}\r\n`}master_failover:0\r\n`;
  };
}

function factsOn(topology: RedisDriver["topology"], primaries: () => readonly Call[]) {
  const driver = { topology, primaries: async () => primaries() } as unknown as RedisDriver;
  return new ServerFacts(driver, new CallTimeouts(new FakeClock(), LIMIT_MS));
}

const ALWAYS = ["appendonly", "yes", "appendfsync", "always"];

describe("what Redis guarantees follows from what its primaries say", () => {
  const [alone, failover] = ["single-server", "until-failover"];

  test.each<[RedisDriver["topology"], readonly Says[], string, boolean, number]>([
    ["single", [{}], alone, false, 0],
    ["single", [{ replicas: 1 }], failover, false, 1],
    ["single", [{ replicas: null }], failover, false, 0],
    ["sentinel", [{}], failover, false, 0],
    ["cluster", [{}, {}, {}], alone, false, 0],
    ["cluster", [{}, { replicas: 2 }, { replicas: 1 }], failover, false, 2],
    ["cluster", [{ replicas: null }, { replicas: 0 }], failover, false, 0],
    ["cluster", [{ role: "slave" }], alone, false, 0],
    ["single", [{ config: ALWAYS }], alone, true, 0],
    [
      "single",
      [
        {
          config: [
            ["appendonly", "yes"],
            ["appendfsync", "always"],
          ],
        },
      ],
      alone,
      true,
      0,
    ],
    [
      "single",
      [
        {
          config: new Map([
            ["appendonly", "yes"],
            ["appendfsync", "always"],
          ]),
        },
      ],
      alone,
      true,
      0,
    ],
    ["single", [{ config: { appendonly: "yes", appendfsync: "always" } }], alone, true, 0],
    ["single", [{ config: ["appendonly", "no", "appendfsync", "always"] }], alone, false, 0],
    ["single", [{ config: ["appendonly", "yes", "appendfsync", "everysec"] }], alone, false, 0],
    ["single", [{ config: new Error("NOPERM no CONFIG") }], alone, false, 0],
    ["single", [{ config: new Error("ERR unknown command 'config'") }], alone, false, 0],
    ["single", [{ config: new Error("ERR this proxy has no CONFIG") }], alone, false, 0],
    ["single", [{ config: Buffer.from("appendonly,yes appendfsync,always") }], alone, true, 0],
    ["single", [{ config: new Verbatim("appendonly,yes appendfsync,always") }], alone, true, 0],
    ["cluster", [{ config: ALWAYS }, { config: ALWAYS }], alone, true, 0],
    ["cluster", [{ config: ALWAYS }, {}], alone, false, 0],
    ["cluster", [{ config: ALWAYS }, { config: new Error("NOPERM") }], alone, false, 0],
  ])("%s of %o", async (topology, says, exclusion, survivesRestart, replicasMax) => {
    const facts = factsOn(topology, () => says.map(primary));
    expect(facts.guarantees("push")).toMatchObject({ exclusion: failover, survivesRestart: false });
    await facts.read();
    expect(facts.guarantees("poll")).toMatchObject({ exclusion, survivesRestart, wake: "poll" });
    expect(facts.replicasMax).toBe(replicasMax);
  });

  test("while it is read again nothing of what was read before counts; the most replicas do, also when they are away", async () => {
    let says: Says | Error = { replicas: 2, config: ALWAYS };
    const facts = factsOn("single", () => [primary(says)]);
    await facts.read();
    expect(facts.guarantees("push").survivesRestart).toBe(true);
    says = new Error("Connection is closed.");
    await expect(facts.read()).rejects.toThrow("closed");
    expect(facts.guarantees("push")).toMatchObject({ exclusion: failover, survivesRestart: false });
    says = { replicas: 0 };
    await facts.read();
    expect([facts.guarantees("push").exclusion, facts.replicasMax]).toEqual([alone, 2]);
    says = { replicas: 3 };
    await facts.read();
    expect(facts.replicasMax).toBe(3);
  });

  test("a replica is refused; so is a server that lets nobody in, and one that is away is an error", async () => {
    for (const [says, refused] of [
      [{ role: "slave" }, true],
      [new Error("NOAUTH Authentication required."), true],
      [new Error("WRONGPASS no"), true],
      [new Error("DENIED protected mode"), true],
      [new Error("LOADING Redis is loading the dataset in memory"), false],
    ] as const) {
      const error = await factsOn("single", () => [primary(says)])
        .read()
        .catch((cause: unknown) => cause);
      const what = says instanceof Error ? says.message : says.role;
      expect(error, what).toBeInstanceOf(Error);
      expect(error instanceof EngineRefusedError, what).toBe(refused);
    }
  });

  test("who they are: all of them in one order, the youngest's time up, the most replicas", async () => {
    const infoOf = (topology: RedisDriver["topology"], ...texts: string[]) =>
      factsOn(topology, () => texts.map((text) => async () => text)).serverInfo();
    const server = (id: string, up: number, replicas: number, more = ""): string =>
      `# Server\r\nrun_id:${id}\r\nuptime_in_seconds:${up}\r\nuptime_in_days:9\r\nconnected_slaves:${replicas}\r\nrole:master\r\n${more}`;
    expect(await infoOf("single", server("a", 61, 1))).toEqual({
      server: "redis a",
      upMs: 60_000,
      replicas: 1,
      replica: false,
      cluster: false,
    });
    const three = [server("b", 7, 0), server("a", 5, 2), server("c", 9, 1)];
    const together = { server: "redis a b c", upMs: 4_000, replicas: 2, replica: false, cluster: true };
    expect(await infoOf("cluster", ...three)).toEqual(together);
    expect(await infoOf("cluster", ...three.toReversed())).toEqual(together);
    expect(await infoOf("single", server("a", 0, 0))).toMatchObject({ upMs: 0 });
    expect(await infoOf("single", "run_id:a\r\nredis_mode:cluster\r\n")).toEqual({
      server: "redis a",
      replica: false,
      cluster: true,
    });
    expect(await infoOf("single", "run_id:a\r\nrole:slave\r\nredis_mode:standalone\r\n")).toMatchObject({
      replica: true,
      cluster: false,
    });
    expect(await infoOf("cluster", server("a", 1, 0), "role:master\r\n")).toMatchObject({ server: "" });
  });
});

describe("texts of the scripts", () => {
  test("a claim is asked with the end of its key, its lease, tokens, units and the waiter's lease", () => {
    const request = { ...claimOf("n", { leaseMs: 20_000 }), id: "i", capacity: 5, units: 2 };
    expect(claimText(request, 100)).toBe("20100 20000 0 0 5 2 1 10000\ni");
    expect(claimText({ ...request, leaseMs: 300, wait: false, exact: true, tokenAtLeast: 7 }, 100)).toBe(
      "400 300 7 1 5 2 0 300\ni",
    );
    const reserving = { ...request, reserve: 3 };
    expect(claimText(reserving, 1)).toBe("20001 20000 0+3 0 5 2 1 10000\ni");
    // The same claim for another engine, whose keys stay for another time.
    expect(claimText(reserving, 2)).toBe("20002 20000 0+3 0 5 2 1 10000\ni");
    expect(claimText(request, 2)).toBe("20002 20000 0 0 5 2 1 10000\ni");
  });

  test("a claim that goes to several servers is written out once", () => {
    let reads = 0;
    const counted = Object.defineProperty({ ...claimOf("n"), id: "i" }, "capacity", { get: () => (reads += 1) });
    const [first, second] = [claimText(counted, 100), claimText(counted, 100)];
    expect([first, reads]).toEqual(["10100 10000 0 0 1 1 1 10000\ni", 1]);
    expect(second).toBe(first);
  });

  test("every answer is read as it was meant, whatever the owner's text holds", () => {
    const owner = fc.record({ client: fc.string(), host: fc.string(), pid: fc.nat() }, { noNullPrototype: true });
    const number = fc.nat({ max: 2 ** 31 });
    fc.assert(
      fc.property(owner, number, number, fc.option(fc.uuid()), fc.boolean(), (who, token, ms, ahead, known) => {
        const [holder, text] = known ? [{ holder: who }, JSON.stringify(who)] : [{}, ""];
        expect(parseClaimAnswer(`busy ${ms} ${text}`)).toStrictEqual({ kind: "busy", nextMs: ms, ...holder });
        const queued = { kind: "queued", token, ...(ahead === null ? {} : { ahead }), ...holder };
        const tail = ahead === null ? text : `${text}\t${ahead}`;
        expect(parseRenewAnswer(`queued ${token} ${ms} ${tail}`)).toStrictEqual({ ...queued, nextMs: ms });
        expect(parseRenewAnswer(`queued ${token} - ${tail}`)).toStrictEqual({ ...queued, nextMs: null });
        expect(parseClaimAnswer(`mismatch ${ms}`)).toStrictEqual({ kind: "mismatch", capacity: ms });
      }),
    );
    expect(parseRenewAnswer("gone")).toStrictEqual({ kind: "gone" });
    expect(parseRenewAnswer("revoked")).toStrictEqual({ kind: "gone", revoked: true });
    for (const wrong of ["", "granted", "granted 1", "granted 1 2", "queued", "busy", "Gone", "mismatch"]) {
      expect(() => parseClaimAnswer(wrong), wrong).toThrow(/means nothing here/);
    }
    const long = "x".repeat(81);
    expect(() => parseRenewAnswer(long)).toThrow(`answered "${long.slice(1)}", which`);
    // A heartbeat is neither busy nor refused for its capacity.
    for (const wrong of ["busy 1 ", "mismatch 2"]) expect(() => parseRenewAnswer(wrong)).toThrow(/means nothing/);
  });

  test("a push is of the claim that it names, and what is no push is nothing", () => {
    const nameOf = (key: string): string => key.slice("p:".length);
    expect(parsePush("lost\ni\np:n", nameOf)).toEqual({ kind: "lost", name: "n", id: "i" });
    expect(parsePush("granted\ni\np:n\n12 3", nameOf)).toEqual({
      kind: "granted",
      name: "n",
      id: "i",
      token: 12,
      floor: 3,
    });
    expect(parsePush("granted\ni\np:n\n12 3 3,12", nameOf)).toMatchObject({ token: 12, floor: 3, live: [3, 12] });
    for (const other of ["", "granted", "granted\ni", "lost\ni", "other\ni\np:n\n1 1"]) {
      expect(parsePush(other, nameOf), other).toBeUndefined();
    }
  });

  test("text is text whatever class it came in, and nothing else is", () => {
    for (const one of ["a", Buffer.from("a"), new Verbatim("a")]) expect(textOf(one)).toBe("a");
    for (const wrong of [1, null, undefined, ["a"], {}]) expect(() => textOf(wrong)).toThrow(/where a text/);
    expect(textsOf(["a", Buffer.from("b")])).toEqual(["a", "b"]);
    for (const wrong of ["a", null, { 0: "a" }]) expect(() => textsOf(wrong)).toThrow(/where a list/);
  });
});

test("of errors that wrap others the first cause is told, and what is no error is told as text", () => {
  const wrapped = new Error("outer", { cause: new Error("middle", { cause: new Error("NOAUTH inner") }) });
  expect(translateError(wrapped)).toBeInstanceOf(EngineRefusedError);
  expect(translateError(new Error("outer", { cause: "text" })).message).toBe("outer");
  expect(translateError(new Error("outer", { cause: new Error("") })).message).toBe("Error");
  const itself = new Error("outer");
  itself.cause = itself;
  expect(translateError(itself).message).toBe("outer");
  expect(translateError(new AggregateError([new Error("first"), new Error("second")], "")).message).toBe("first");
  expect(translateError(new AggregateError(["text"], "")).message).toBe("AggregateError");
  expect(translateError("text").message).toBe("text");
  const own = new EngineRefusedError("redis", "advice", new Error("no"));
  expect(translateError(own)).toBe(own);
  expect(translateError(new Error("MOVED 1 h:1"), "cluster")).not.toBeInstanceOf(EngineRefusedError);
});

describe("keys", () => {
  const driverOf = (topology: RedisDriver["topology"], keyPrefix = "") => ({ topology, keyPrefix }) as RedisDriver;

  test("a key beside another has its hash tag, with the prefix of the library in it, and no other braces", () => {
    for (const [prefix, name, key] of [
      ["p:", "n", "p:what:{n}:i"],
      ["{p}:", "n", "p:what:{n}:i"],
      ["p:", "a{b}c", "p:what:{b}:i"],
      ["p:", "a{b}{c}", "p:what:{b}:i"],
      ["p:", "a{}c", "p:what:{a{}c}:i"],
      ["p:", "a{b", "p:what:{a{b}:i"],
    ] as const) {
      expect(keyBeside(driverOf("single"), prefix, "what", name, "i")).toBe(key);
    }
    expect(keyBeside(driverOf("single", "lib:"), "p:", "what", "n", "i")).toBe("p:what:{lib:n}:i");
    expect(keyBeside(driverOf("cluster"), "p:", "what", "a{b}c", "i")).toBe("p:what:{b}:i");
    expect(() => keyBeside(driverOf("cluster"), "p:", "what", "a}c", "i")).toThrow(UnsupportedError);
    expect(keyBeside(driverOf("single"), "p:", "what", "a}c", "i")).toBe("p:what:{a}c}:i");
  });

  /** Two primaries that show their keys page by page, and states of these names. */
  function inspectionOf(pages: readonly (readonly string[])[][], keyPrefix = "", claims: readonly string[] = []) {
    const scans: string[][] = [];
    const asked: string[] = [];
    let [underWay, most] = [0, 0];
    const call = async (key: string, [, , , , idle]: readonly string[]): Promise<unknown> => {
      asked.push(`${key} ${idle}`);
      most = Math.max(most, (underWay += 1));
      await Promise.resolve();
      underWay -= 1;
      if (key.endsWith("foreign")) throw new Error("WRONGTYPE Operation against a key");
      if (key.endsWith("secret")) throw new Error("NOPERM no such key for you");
      return key.endsWith("idle") ? [] : ["x 1 2", ...claims];
    };
    const primaries = async (): Promise<readonly Call[]> =>
      pages.map((mine) => async (command) => {
        scans.push([...command]);
        const at = Number(command[1]);
        return [at + 1 < mine.length ? String(at + 1) : "0", mine[at]];
      });
    const driver = { topology: "single", keyPrefix, offline: false, call, primaries } as unknown as RedisDriver;
    const timeouts = new CallTimeouts(new FakeClock(), LIMIT_MS);
    const scripts = new Scripts(driver, timeouts);
    const inspection = new Inspection(driver, scripts, timeouts, new LockKeys("p:", 77));
    return { inspection: inspection as never, scans, asked, most: () => most };
  }
  const namesOf = async (inspection: never, filter: object): Promise<string[]> =>
    (await states(inspection, filter)).map(({ name }) => name);

  test("all pages of all primaries are listed, each name once, and some at a time", async () => {
    const many = Array.from({ length: 70 }, (_, n) => `lib:p:lock:m${n}`);
    const { inspection, scans, asked, most } = inspectionOf(
      [
        [["lib:p:lock:a", "lib:p:lock:b", "lib:p:lock:a"], [], ["lib:p:lock:b", "lib:p:lock:idle", "lib:p:lock:c"]],
        [["lib:p:lock:foreign", "lib:p:lock:c", ...many]],
      ],
      "lib:",
    );
    const names = await namesOf(inspection, { prefix: "x*?[^-]\\" });
    expect(names).toEqual(["a", "b", "c", ...many.map((key) => key.slice("lib:p:lock:".length))]);
    expect(scans.map((one) => one[1])).toEqual(["0", "1", "2", "0"]);
    expect(scans[0]).toEqual(["scan", "0", "match", "lib:p:lock:x\\*\\?\\[\\^\\-\\]\\\\*", "count", "1000"]);
    expect(asked[0]).toBe("p:lock:a 77");
    expect(new Set(asked).size).toBe(asked.length);
    expect(most()).toBe(32);
  });

  test("one name is asked for alone, unless the prefix leaves it out; what may not be read is told", async () => {
    const { inspection, scans, asked } = inspectionOf([[["p:lock:secret"]]]);
    expect(await namesOf(inspection, { name: "a" })).toEqual(["a"]);
    expect(await namesOf(inspection, { name: "idle" })).toEqual([]);
    expect(await namesOf(inspection, { name: "a", prefix: "b" })).toEqual([]);
    expect(await namesOf(inspection, { name: "ab", prefix: "a" })).toEqual(["ab"]);
    expect(asked).toHaveLength(3);
    expect(scans).toEqual([]);
    await expect(namesOf(inspection, { name: "foreign" })).rejects.toThrow(/WRONGTYPE/);
    await expect(namesOf(inspection, {})).rejects.toThrow(/NOPERM/);
  });

  test("a state has its numbers, who holds and who waits in order, each with what is known of it", async () => {
    const owner = { client: "c", host: "h", pid: 7 };
    const claim = (numbers: string, id: string, ...data: string[]): string =>
      [`claim ${numbers}`, id, JSON.stringify(owner), ...data].join("\n");
    const { inspection } = inspectionOf([], "", [
      ...[claim("3 400 11 50", "a"), claim("1 500 12 -", "b", "two", "lines")],
      ...[claim("2 600 - 70", "c", ""), claim("4 700 - -", "d")],
    ]);
    expect(await states(inspection, { name: "n" })).toEqual([
      {
        ...{ name: "n", capacity: 1, lastToken: 2 },
        holders: [
          { id: "a", units: 3, leftMs: 400, token: 11, heldMs: 50, owner },
          { id: "b", units: 1, leftMs: 500, token: 12, owner, data: "two\nlines" },
        ],
        waiters: [
          { id: "c", units: 2, leftMs: 600, waitingMs: 70, owner, data: "" },
          { id: "d", units: 4, leftMs: 700, owner },
        ],
      },
    ]);
  });

  test("a listing that fails or is not answered in time is told as what it was", async () => {
    const clock = new FakeClock();
    const timeouts = new CallTimeouts(clock, LIMIT_MS);
    const listing = (call: Call): Promise<unknown> => {
      const driver = { topology: "single", keyPrefix: "", primaries: async () => [call] } as unknown as RedisDriver;
      const inspection = new Inspection(driver, new Scripts(driver, timeouts), timeouts, new LockKeys("p:", 77));
      return states(inspection, {});
    };
    await expect(listing(() => Promise.reject(new Error("NOPERM no SCAN")))).rejects.toBeInstanceOf(EngineRefusedError);
    const silent = expect(listing(() => new Promise(() => {}))).rejects.toThrow(/no answer within/);
    await clock.advance(LIMIT_MS);
    await silent;
  });
});

test("options have defaults and limits, and times for the server are whole", () => {
  expect(checkOptions({})).toMatchObject({
    ...{ prefix: "holdfast:", ack: 0, layout: "fair", wake: "push" },
    ...{ ackTimeoutMs: 1000, callTimeoutMs: 5000, idleMs: 86_400_000 },
  });
  for (const fine of [
    ...[{ prefix: "" }, { prefix: "a".repeat(200) }, { ack: "majority" }, { ack: 1000 }, { layout: "redisson" }],
    ...[{ wake: "poll" }, { callTimeoutMs: 1 }, { ackTimeoutMs: 1 }, { idleMs: 1 }, { idleMs: 365 * 86_400_000 }],
  ]) {
    expect(checkOptions(fine as object)).toMatchObject(fine);
  }
  expect(checkOptions({ ackTimeoutMs: 1.2, idleMs: 1.2 })).toMatchObject({ ackTimeoutMs: 2, idleMs: 2 });
  for (const wrong of [
    ...[{ prefix: "a".repeat(201) }, { prefix: "a\nb" }, { prefix: 1 }, { ack: 1001 }, { ack: 0.5 }, { ack: "all" }],
    ...[{ layout: "other" }, { wake: "maybe" }, { callTimeoutMs: 0 }, { ackTimeoutMs: 0 }, { idleMs: 0 }],
    ...[{ idleMs: 365 * 86_400_000 + 1 }, { other: 1 }],
  ]) {
    expect(() => checkOptions(wrong as object), JSON.stringify(wrong)).toThrow(InvalidOptionError);
  }
});
