import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import {
  EngineRefusedError,
  EngineUnavailableError,
  InvalidOptionError,
  UnsupportedError,
} from "../../src/core/errors.js";
import type { RedisDriver } from "../../src/engines/redis/driver.js";
import {
  CONNECT_TIMEOUT_MS,
  connectDriver,
  connectOrEnd,
  reconnectDelayMs,
} from "../../src/engines/redis/drivers/connect.js";
import { glideDriver } from "../../src/engines/redis/drivers/glide.js";
import { connectIoredis, ioredisDriver } from "../../src/engines/redis/drivers/ioredis.js";
import { connectNodeRedis, nodeRedisDriver } from "../../src/engines/redis/drivers/node-redis.js";
import { parseRedisUrl } from "../../src/engines/redis/url.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

/** What each client library is told, and what is made of what it does: the servers' side of it is in test/faults. */

type Listener = (...args: unknown[]) => void;

/** A client that notes what is called, and answers when the test says so. */
class FakeClient {
  readonly done: unknown[][] = [];
  readonly listeners = new Map<string, Listener[]>();
  readonly duplicates: FakeClient[] = [];
  connecting: Promise<unknown> = Promise.resolve();
  answer: (name: string, args: unknown[]) => unknown = () => "answer";

  constructor(...made: unknown[]) {
    this.done.push(["made", ...made]);
  }

  note(name: string, ...args: unknown[]): Promise<unknown> {
    this.done.push([name, ...args]);
    return Promise.resolve().then(() => this.answer(name, args));
  }

  on(event: string, listener: Listener): void {
    this.listeners.set(event, [...(this.listeners.get(event) ?? []), listener]);
  }

  off(event: string, listener: Listener): void {
    this.listeners.set(
      event,
      (this.listeners.get(event) ?? []).filter((one) => one !== listener),
    );
  }

  emit(event: string, ...args: unknown[]): void {
    for (const listener of this.listeners.get(event) ?? []) listener(...args);
  }

  connect(): Promise<unknown> {
    this.done.push(["connect"]);
    return this.connecting;
  }

  get called(): unknown[] {
    return this.done.map(([name]) => name);
  }
}

const never = (): Promise<never> => new Promise(() => {});
const signal = (): AbortSignal => new AbortController().signal;
const limits = () => ({ clock: new FakeClock(), closed: undefined });

/** What a subscriber was told. */
function heard() {
  const told: unknown[] = [];
  return {
    told,
    onMessage: (channel: string, message: string) => void told.push([channel, message]),
    onEnd: () => void told.push("end"),
  };
}

class FakeIoredis extends FakeClient {
  status = "ready";
  options: Record<string, unknown> = {};
  call = (...args: unknown[]) => this.note("call", ...args);
  subscribe = (channel: string) => this.note("subscribe", channel);
  unsubscribe = (channel: string) => this.note("unsubscribe", channel);
  ping = () => this.note("ping");
  disconnect = () => void this.done.push(["disconnect"]);
  pipeline = (commands: unknown[][]) => ({ exec: () => this.note("pipeline", commands) });
  duplicate = (...args: unknown[]): FakeIoredis => {
    const one = new FakeIoredis(...args);
    one.connecting = this.connecting;
    this.duplicates.push(one);
    return one;
  };
}

const ioredis = (over: Partial<FakeIoredis> = {}): FakeIoredis & { readonly driver: RedisDriver } => {
  const client = Object.assign(new FakeIoredis(), over);
  return Object.assign(client, { driver: ioredisDriver(client as never) });
};

describe("ioredis", () => {
  const nodes = () => [new FakeIoredis("a"), new FakeIoredis("b")];

  test("what it is, puts before keys, and sends again", () => {
    const cluster = { nodes } as object;
    const sentinels = [{ host: "h" }];
    for (const [over, facts] of [
      [{}, { topology: "single", keyPrefix: "", resends: true }],
      [{ options: { sentinels: null } }, { topology: "single" }],
      [{ options: { sentinels, keyPrefix: "p:" } }, { topology: "sentinel", keyPrefix: "p:" }],
      [{ options: { autoResendUnfulfilledCommands: false } }, { resends: false }],
      [cluster, { topology: "cluster", resends: true }],
      [{ ...cluster, options: { autoResendUnfulfilledCommands: false } }, { resends: true }],
      [{ ...cluster, options: { retryDelayOnFailover: 0 } }, { resends: false }],
      [{ ...cluster, options: { retryDelayOnFailover: 1 } }, { resends: true }],
    ] as const) {
      expect(ioredis(over).driver).toMatchObject({ library: "ioredis", ...facts });
    }
  });

  test("it is offline when a call would neither be sent nor wait, and connected when it is ready", () => {
    const options = { enableOfflineQueue: false };
    for (const [over, offline, connected] of [
      [{ options, status: "ready" }, false, true],
      [{ options, status: "reconnecting" }, true, false],
      [{ options, status: "wait" }, false, false],
      [{ options: {}, status: "reconnecting" }, false, false],
      [{ options: { enableOfflineQueue: true }, status: "end" }, false, false],
      [{ options, status: "end", nodes }, false, false],
    ] as const) {
      const { driver } = ioredis(over as object);
      expect([driver.offline, driver.connected], JSON.stringify(over)).toEqual([offline, connected]);
    }
  });

  test("calls go as they are; to each primary of a Cluster by itself", async () => {
    const one = ioredis();
    expect(await one.driver.call("key", ["get", "key"])).toBe("answer");
    const [only, ...more] = await one.driver.primaries();
    expect(more).toEqual([]);
    await only?.(["info", "server"]);
    expect(one.done.slice(1)).toEqual([
      ["call", "get", "key"],
      ["call", "info", "server"],
    ]);
    const [a, b] = nodes() as [FakeIoredis, FakeIoredis];
    const asked: string[] = [];
    const cluster = ioredis({ nodes: (role: string) => (asked.push(role), [a, b]) } as object);
    for (const call of await cluster.driver.primaries()) await call(["info"]);
    expect([a.called, b.called, asked]).toEqual([["made", "call"], ["made", "call"], ["master"]]);
  });

  test("a subscriber is a connection of its own that does not reconnect, without the prefix, and is told once it ends", async () => {
    const client = ioredis();
    const { told, onMessage, onEnd } = heard();
    const subscriber = await client.driver.openSubscriber(onMessage, onEnd, signal());
    const [own] = client.duplicates;
    expect(own?.done[0]).toEqual([
      "made",
      expect.objectContaining({ retryStrategy: null, autoResubscribe: false, keyPrefix: "", lazyConnect: true }),
    ]);
    await subscriber.subscribe("c");
    await subscriber.ping();
    own?.emit("error", new Error("nobody listens"));
    own?.emit("message", "c", "hello");
    await subscriber.unsubscribe("c");
    own?.emit("end");
    subscriber.close();
    expect(own?.done.slice(1)).toEqual([
      ["connect"],
      ["subscribe", "c"],
      ["ping"],
      ["unsubscribe", "c"],
      ["disconnect"],
    ]);
    expect(told).toEqual([["c", "hello"], "end"]);
    expect(client.called).toEqual(["made"]);
  });

  test("in a Cluster each subscriber is on the next node", async () => {
    const [a, b] = nodes() as [FakeIoredis, FakeIoredis];
    const asked: string[] = [];
    const { driver } = ioredis({ nodes: (role: string) => (asked.push(role), [a, b]) } as object);
    const { onMessage, onEnd } = heard();
    for (let n = 0; n < 3; n += 1) await driver.openSubscriber(onMessage, onEnd, signal());
    expect([a.duplicates.length, b.duplicates.length, new Set(asked)]).toEqual([2, 1, new Set(["all"])]);
  });

  test("a pipeline sends nothing twice, and answers in order, errors among them", async () => {
    const own = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 };
    const single = ioredis();
    const pipeline = await single.driver.openPipeline(signal());
    const [one] = single.duplicates as [FakeIoredis];
    expect(one.done[0]).toEqual(["made", { ...own, lazyConnect: true }]);
    const failed = new Error("no");
    one.answer = () => [
      [null, "a"],
      [failed, null],
    ];
    expect(await pipeline.pipeline("key", [["get", "a"], ["get"]])).toEqual(["a", failed]);
    expect(one.done.at(-1)).toEqual(["pipeline", [["get", "a"], ["get"]]]);
    one.answer = () => null;
    expect(await pipeline.pipeline("key", [])).toEqual([]);
    one.emit("error", new Error("nobody listens"));
    pipeline.close();
    expect(one.called.at(-1)).toBe("disconnect");
    const cluster = ioredis({ nodes } as object);
    await cluster.driver.openPipeline(signal());
    expect(cluster.duplicates[0]?.done[0]).toEqual(["made", [], { lazyConnect: true, redisOptions: own }]);
  });

  const made: FakeIoredis[] = [];
  const module = {
    Redis: class extends FakeIoredis {
      constructor(...args: unknown[]) {
        super("redis", ...args);
        made.push(this);
      }
    },
    Cluster: class extends FakeIoredis {
      nodes = nodes;
      constructor(...args: unknown[]) {
        super("cluster", ...args);
        made.push(this);
      }
    },
  };

  test("a client for a URL sends nothing twice, has time limits, and finds a new primary", async () => {
    const optionsOf = async (url: string) => {
      made.length = 0;
      const driver = await connectIoredis(module, parseRedisUrl(url), limits());
      const [, kind, ...args] = made[0]?.done[0] ?? [];
      expect(made[0]?.called).toEqual(["made", "connect"]);
      await driver.close();
      expect(made[0]?.called).toEqual(["made", "connect", "disconnect"]);
      return { kind, args: args as Record<string, unknown>[] };
    };
    const once = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, connectTimeout: CONNECT_TIMEOUT_MS };
    const node = { ...once, lazyConnect: true, enableOfflineQueue: false, retryStrategy: reconnectDelayMs };
    const single = await optionsOf("redis://u:p@h:7/3");
    expect(single.args).toEqual([
      expect.objectContaining({ ...node, username: "u", password: "p", host: "h", port: 7, db: 3, tls: undefined }),
    ]);
    const reconnect = single.args[0]?.["reconnectOnError"] as (error: Error) => boolean;
    expect(["READONLY x", "ERR READONLY", "OOM"].map((text) => reconnect(new Error(text)))).toEqual([
      true,
      false,
      false,
    ]);
    const sentinel = await optionsOf("rediss+sentinel://u:p@a,b:2/main/1?sentinelUsername=s&sentinelPassword=t");
    expect(sentinel).toMatchObject({ kind: "redis" });
    expect(sentinel.args[0]).toMatchObject({
      ...{ ...node, name: "main", db: 1, sentinelUsername: "s", sentinelPassword: "t", sentinelTLS: {}, tls: {} },
      ...{ enableTLSForSentinelMode: true, failoverDetector: true, sentinelRetryStrategy: reconnectDelayMs },
      sentinels: [
        { host: "a", port: 26379 },
        { host: "b", port: 2 },
      ],
    });
    expect((await optionsOf("redis+sentinel://a/main")).args[0]).toMatchObject({ enableTLSForSentinelMode: false });
    const cluster = await optionsOf("redis+cluster://u:p@a:1,b:2");
    expect(cluster).toMatchObject({ kind: "cluster" });
    expect(cluster.args).toEqual([
      [
        { host: "a", port: 1 },
        { host: "b", port: 2 },
      ],
      expect.objectContaining({
        ...{ lazyConnect: true, retryDelayOnFailover: 0, clusterRetryStrategy: reconnectDelayMs },
        slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
        redisOptions: expect.objectContaining({ ...once, username: "u", password: "p" }),
      }),
    ]);
  });
});

class FakeNodeRedis extends FakeClient {
  isReady = true as boolean | undefined;
  options: Record<string, unknown> = { socket: { host: "h" } };
  sendCommand = (...args: unknown[]) => this.note("sendCommand", ...args);
  readonly handlers = new Map<string, Listener>();
  subscribe = (channel: string, listener: Listener) => {
    this.handlers.set(channel, listener);
    return this.note("subscribe", channel);
  };
  unsubscribe = (channel: string) => this.note("unsubscribe", channel);
  destroying = (): unknown => undefined;
  destroy = () => {
    this.done.push(["destroy"]);
    return this.destroying();
  };
  multi = () => {
    const commands: unknown[][] = [];
    const multi = {
      addCommand: (...args: unknown[]) => (commands.push(args), multi),
      execAsPipeline: () => this.note("pipeline", commands),
    };
    return multi;
  };
  duplicate? = (...args: unknown[]): FakeNodeRedis => {
    const one = new FakeNodeRedis(...args);
    one.connecting = this.connecting;
    this.duplicates.push(one);
    return one;
  };
}

const nodeRedis = (over: object = {}): FakeNodeRedis & { readonly driver: RedisDriver } => {
  const client = Object.assign(new FakeNodeRedis(), over);
  return Object.assign(client, { driver: nodeRedisDriver(client as never) });
};

describe("node-redis", () => {
  const [a, b, c] = [new FakeNodeRedis("a"), new FakeNodeRedis("b"), new FakeNodeRedis("c")];
  const clients = new Map<object, FakeNodeRedis>([
    [{ node: "a" }, a],
    [{ node: "b" }, b],
    [{ node: "c" }, c],
  ]);
  const [nodeA, nodeB, nodeC] = [...clients.keys()];
  const cluster = {
    isReady: undefined,
    masters: [nodeA, nodeB],
    replicas: [nodeC],
    nodeClient: async (node: object) => clients.get(node),
  };
  const sentinel = { acquire: () => {} };

  test("what it is, and whether a call would be sent", () => {
    expect(nodeRedis().driver).toMatchObject({ library: "redis", topology: "single", keyPrefix: "", resends: false });
    expect(nodeRedis(cluster).driver).toMatchObject({ topology: "cluster", connected: true, offline: false });
    expect(nodeRedis(sentinel).driver.topology).toBe("sentinel");
    const options = { disableOfflineQueue: true };
    for (const [over, offline, connected] of [
      [{ options, isReady: true }, false, true],
      [{ options, isReady: false }, true, false],
      [{ options: {}, isReady: false }, false, false],
      [{ options: undefined, isReady: false }, false, false],
      [{ options, isReady: false, ...sentinel }, false, false],
    ] as const) {
      const { driver } = nodeRedis(over);
      expect([driver.offline, driver.connected], JSON.stringify(over)).toEqual([offline, connected]);
    }
  });

  test("calls carry what each kind of client wants to know", async () => {
    for (const [over, call, info] of [
      [{}, [["get", "k"]], [["info"]]],
      [sentinel, [false, ["get", "k"]], [false, ["info"]]],
      [cluster, ["k", false, ["get", "k"]], null],
    ] as const) {
      const client = nodeRedis(over);
      await client.driver.call("k", ["get", "k"]);
      expect(client.done.at(-1)).toEqual(["sendCommand", ...call]);
      const primaries = await client.driver.primaries();
      for (const one of primaries) await one(["info"]);
      if (info !== null) expect([primaries.length, client.done.at(-1)]).toEqual([1, ["sendCommand", ...info]]);
    }
    const client = nodeRedis(cluster);
    await client.driver.call(null, ["ping"]);
    expect(client.done.at(-1)).toEqual(["sendCommand", undefined, false, ["ping"]]);
    expect([a, b, c].map(({ done }) => done.slice(1))).toEqual([
      [["sendCommand", ["info"]]],
      [["sendCommand", ["info"]]],
      [],
    ]);
    // A cluster whose nodes are not known yet.
    expect(await nodeRedis({ ...cluster, masters: undefined }).driver.primaries()).toEqual([]);
  });

  test("a subscriber is a connection of its own that does not reconnect, and ends once, with the connection", async () => {
    for (const end of ["error", "end", "close"]) {
      const client = nodeRedis();
      const { told, onMessage, onEnd } = heard();
      const subscriber = await client.driver.openSubscriber(onMessage, onEnd, signal());
      const [own] = client.duplicates as [FakeNodeRedis];
      expect(own.done).toEqual([["made", { socket: { host: "h", reconnectStrategy: false } }], ["connect"]]);
      await subscriber.subscribe("c");
      own.handlers.get("c")?.("hello", "c");
      await subscriber.ping();
      await subscriber.unsubscribe("c");
      expect(own.done.slice(2)).toEqual([
        ["subscribe", "c"],
        ["sendCommand", ["PING"]],
        ["unsubscribe", "c"],
      ]);
      if (end === "close") subscriber.close();
      else own.emit(end, new Error("cut"));
      expect(told).toEqual([["c", "hello"], "end"]);
      own.emit("end");
      subscriber.close();
      expect(told).toEqual([["c", "hello"], "end"]);
      expect(own.called.filter((name) => name === "destroy")).toEqual(["destroy"]);
      expect(own.listeners.get("topology-change")).toEqual([]);
      expect(client.called).toEqual(["made"]);
    }
  });

  test("in a cluster each subscriber is on the next node, replicas among them", async () => {
    for (const one of clients.values()) one.duplicates.length = 0;
    const { driver } = nodeRedis(cluster);
    const { onMessage, onEnd } = heard();
    for (let n = 0; n < 4; n += 1) await driver.openSubscriber(onMessage, onEnd, signal());
    expect([a, b, c].map(({ duplicates }) => duplicates.length)).toEqual([2, 1, 1]);
    const gone = nodeRedis({ ...cluster, nodeClient: async () => undefined }).driver;
    await expect(gone.openSubscriber(onMessage, onEnd, signal())).rejects.toThrow(/no nodes/);
  });

  test("through Sentinel a duplicate hears, is asked by a channel of its own, and begins anew with another primary", async () => {
    const client = nodeRedis(sentinel);
    const { told, onMessage, onEnd } = heard();
    const subscriber = await client.driver.openSubscriber(onMessage, onEnd, signal());
    const [own] = client.duplicates as [FakeNodeRedis];
    expect(own.done).toEqual([["made"], ["connect"]]);
    await subscriber.subscribe("c");
    await subscriber.ping();
    expect(own.done.slice(2)).toEqual([
      ["subscribe", "c"],
      ["subscribe", "c:probe"],
      ["unsubscribe", "c:probe"],
    ]);
    own.emit("topology-change", { type: "REPLICA_ADD" });
    own.emit("topology-change");
    expect(told).toEqual([]);
    own.emit("topology-change", { type: "MASTER_CHANGE" });
    expect(told).toEqual(["end"]);
    expect(own.called.at(-1)).toBe("destroy");
  });

  test("through a Sentinel client that cannot be duplicated it hears on that one, which stays open", async () => {
    const client = nodeRedis({ ...sentinel, duplicate: undefined });
    const { told, onMessage, onEnd } = heard();
    const subscriber = await client.driver.openSubscriber(onMessage, onEnd, signal());
    for (const channel of ["c", "left", "d"]) await subscriber.subscribe(channel);
    await subscriber.unsubscribe("left");
    client.handlers.get("c")?.("hello");
    client.answer = () => Promise.reject(new Error("not subscribed"));
    subscriber.close();
    // What was left before is not left again: nothing is kept of it.
    expect(client.done.slice(1)).toEqual([
      ["subscribe", "c"],
      ["subscribe", "left"],
      ["subscribe", "d"],
      ["unsubscribe", "left"],
      ["unsubscribe", "c"],
      ["unsubscribe", "d"],
    ]);
    expect(told).toEqual([["c", "hello"], "end"]);
    // When the client is closed, what hears on it is told; what has ended before is not.
    const second = heard();
    await client.driver.openSubscriber(second.onMessage, second.onEnd, signal());
    await client.driver.close();
    expect([told.length, second.told, client.called.at(-1)]).toEqual([2, ["end"], "destroy"]);
    await expect(client.driver.openPipeline(signal())).rejects.toBeInstanceOf(UnsupportedError);
  });

  test("a pipeline answers in order, also when one of its commands failed", async () => {
    const client = nodeRedis(cluster);
    const pipeline = await client.driver.openPipeline(signal());
    const [own] = client.duplicates as [FakeNodeRedis];
    own.answer = () => ["a", "b"];
    expect(
      await pipeline.pipeline("k", [
        ["get", "a"],
        ["wait", "1"],
      ]),
    ).toEqual(["a", "b"]);
    expect(own.done.at(-1)).toEqual([
      "pipeline",
      [
        ["k", false, ["get", "a"]],
        ["k", false, ["wait", "1"]],
      ],
    ]);
    const failed = new Error("one failed");
    own.answer = () => Promise.reject(Object.assign(failed, { replies: ["a", failed] }));
    expect(await pipeline.pipeline("k", [])).toEqual(["a", failed]);
    own.answer = () => Promise.reject(new Error("closed"));
    await expect(pipeline.pipeline("k", [])).rejects.toThrow("closed");
    own.emit("error", new Error("nobody listens"));
    expect(own.listeners.get("error")).toHaveLength(1);
    // One that is not open throws, and the end of another may fail later: neither is anybody's error.
    own.destroying = () => {
      throw new Error("The client is closed");
    };
    pipeline.close();
    own.destroying = () => Promise.reject(new Error("later"));
    pipeline.close();
    await settle();
    expect(own.called.slice(-2)).toEqual(["destroy", "destroy"]);
  });

  test("a client for a URL says who it is only where it is somebody, and has time limits", async () => {
    const made: FakeNodeRedis[] = [];
    const create = (kind: string, over: object) => (options: object) => {
      const one = Object.assign(new FakeNodeRedis(kind, options), over);
      made.push(one);
      return one;
    };
    const module = {
      createClient: create("client", {}),
      createCluster: create("cluster", cluster),
      createSentinel: create("sentinel", sentinel),
    };
    const madeFor = async (url: string, over: object = {}): Promise<unknown> => {
      made.length = 0;
      const driver = await connectNodeRedis(module, { ...parseRedisUrl(url), ...over }, limits());
      await driver.close();
      expect(made[0]?.called).toEqual(["made", "connect", "destroy"]);
      return made[0]?.done[0]?.slice(1);
    };
    const socket = { connectTimeout: CONNECT_TIMEOUT_MS, reconnectStrategy: reconnectDelayMs };
    expect(await madeFor("redis://h:7/3")).toStrictEqual([
      "client",
      { database: 3, disableOfflineQueue: true, socket: { ...socket, host: "h", port: 7 } },
    ]);
    expect(await madeFor("rediss://u:p@h")).toStrictEqual([
      "client",
      expect.objectContaining({
        username: "u",
        password: "p",
        socket: { ...socket, tls: true, host: "h", port: 6379 },
      }),
    ]);
    const credentials = async () => ({ password: "asked" });
    expect(await madeFor("redis://u:p@h", { credentials })).toStrictEqual([
      "client",
      {
        credentialsProvider: { type: "async-credentials-provider", credentials },
        ...{ database: 0, disableOfflineQueue: true, socket: { ...socket, host: "h", port: 6379 } },
      },
    ]);
    expect(await madeFor("redis+cluster://:p@a:1,b:2")).toStrictEqual([
      "cluster",
      {
        rootNodes: [{ socket: { ...socket, host: "a", port: 1 } }, { socket: { ...socket, host: "b", port: 2 } }],
        defaults: { password: "p", socket },
      },
    ]);
    expect(await madeFor("redis+sentinel://u:p@a/main/2?sentinelUsername=s&sentinelPassword=t")).toStrictEqual([
      "sentinel",
      {
        name: "main",
        sentinelRootNodes: [{ host: "a", port: 26379 }],
        nodeClientOptions: { username: "u", password: "p", database: 2, socket },
        sentinelClientOptions: { username: "s", password: "t", socket },
      },
    ]);
    expect(await madeFor("redis+sentinel://a/main")).toStrictEqual([
      "sentinel",
      {
        ...{ name: "main", sentinelRootNodes: [{ host: "a", port: 26379 }] },
        ...{ nodeClientOptions: { database: 0, socket }, sentinelClientOptions: { socket } },
      },
    ]);
  });
});

describe("Valkey GLIDE", () => {
  class FakeGlide {
    static readonly made: FakeGlide[] = [];
    static id = "7";
    static async createClient(options: Record<string, unknown>): Promise<FakeGlide> {
      const one = new FakeGlide();
      one.options = options;
      FakeGlide.made.push(one);
      return one;
    }
    readonly done: unknown[][] = [];
    options: Record<string, unknown> = {};
    config: Record<string, unknown> = { addresses: [{ host: "h" }], lazyConnect: true };
    fails: Error | null = null;
    async customCommand(args: string[], options: object): Promise<unknown> {
      this.done.push([...args, options]);
      if (this.fails !== null) throw this.fails;
      return args[1] === "id" ? FakeGlide.id : "answer";
    }
    subscribe: ((channels: Set<string>, ms: number) => Promise<void>) | undefined = async (channels, ms) =>
      void this.done.push(["subscribe", ...channels, ms]);
    unsubscribe = async (channels: Set<string>, ms: number) => void this.done.push(["unsubscribe", ...channels, ms]);
    close(): void {
      this.done.push(["close"]);
    }
  }
  const opened = (client = new FakeGlide()) => ({ client, driver: glideDriver(client) });
  const asText = { decoder: 1 };

  test("calls are answered as text, on a single server", async () => {
    const { client, driver } = opened();
    expect(driver).toMatchObject({ topology: "single", keyPrefix: "", resends: true, offline: false, connected: true });
    expect(await driver.call("k", ["get", "k"])).toBe("answer");
    const [only, ...more] = await driver.primaries();
    await only?.(["info"]);
    expect([more, client.done]).toEqual([
      [],
      [
        ["get", "k", asText],
        ["info", asText],
      ],
    ]);
    await expect(driver.openPipeline(signal())).rejects.toBeInstanceOf(UnsupportedError);
    await driver.close();
    expect(client.done.at(-1)).toEqual(["close"]);
  });

  test("errors are told as the server said them", async () => {
    const { client, driver } = opened();
    for (const [message, said] of [
      ["NOSCRIPT: No matching script.", "NOSCRIPT No matching script."],
      ["An error was signalled by the server: - NoScriptError: No matching", "NOSCRIPT No matching"],
      ["An error was signalled by the server - ResponseError: unknown\ncommand", "ERR unknown\ncommand"],
      ["ReadOnly: no", "READONLY no"],
      ["PermissionDenied: no", "NOPERM no"],
      ["Connection error: broken", "Connection error: broken"],
      ["Other: no", "Other: no"],
      ["timed out", "timed out"],
    ]) {
      client.fails = new Error(message);
      await expect(driver.call("k", ["get"]), message).rejects.toThrow(said);
      await expect(driver.call("k", ["get"]), message).rejects.toMatchObject({ message: said });
    }
  });

  test("a connection for pushes is a client of its own, which is closed when another took its place inside of it", async () => {
    const { driver } = opened();
    const { told, onMessage, onEnd } = heard();
    const subscriber = await driver.openSubscriber(onMessage, onEnd, signal());
    const own = FakeGlide.made.at(-1) as FakeGlide;
    expect(own.options).toMatchObject({
      addresses: [{ host: "h" }],
      lazyConnect: false,
      protocol: 0,
      defaultDecoder: 1,
    });
    await subscriber.subscribe("c");
    await subscriber.unsubscribe("c");
    expect(own.done.slice(-2)).toEqual([
      ["subscribe", "c", 0],
      ["unsubscribe", "c", 0],
    ]);
    const { callback } = own.options["pubsubSubscriptions"] as { callback: (message: object) => void };
    callback({ channel: "c", message: "hello" });
    await subscriber.ping();
    expect(told).toEqual([["c", "hello"]]);
    FakeGlide.id = "8";
    await subscriber.ping();
    expect(told).toEqual([["c", "hello"], "end"]);
    callback({ channel: "c", message: "late" });
    await subscriber.ping();
    subscriber.close();
    expect(told).toHaveLength(2);
    expect(own.done.filter(([name]) => name === "close")).toHaveLength(1);
  });

  test("one that is given up ends without a word, and what cannot be used is refused and closed", async () => {
    const { client, driver } = opened();
    const { told, onMessage, onEnd } = heard();
    (await driver.openSubscriber(onMessage, onEnd, signal())).close();
    expect(told).toEqual([]);
    await expect(driver.openSubscriber(onMessage, onEnd, AbortSignal.abort())).rejects.toThrow("closed");
    expect(FakeGlide.made.at(-1)?.done).toEqual([["close"]]);
    const old = class extends FakeGlide {
      static override async createClient(): Promise<FakeGlide> {
        const one = new FakeGlide();
        one.subscribe = undefined;
        FakeGlide.made.push(one);
        return one;
      }
    };
    await expect(opened(new old()).driver.openSubscriber(onMessage, onEnd, signal())).rejects.toThrow(/use 2.3/);
    expect(FakeGlide.made.at(-1)?.done).toEqual([["close"]]);
    expect(client.done).toEqual([]);
    expect(() => glideDriver({ ssubscribe: () => {} } as never)).toThrow(UnsupportedError);
    const reading = Object.assign(new FakeGlide(), { config: { readFrom: "preferReplica" } });
    expect(() => glideDriver(reading as never)).toThrow(InvalidOptionError);
    const primary = Object.assign(new FakeGlide(), { config: { readFrom: "primary" } });
    expect(glideDriver(primary as never).library).toContain("glide");
    expect(glideDriver(Object.assign(new FakeGlide(), { config: undefined })).library).toContain("glide");
  });
});

test.each([
  ["ioredis", ioredis, "disconnect"],
  ["node-redis", nodeRedis, "destroy"],
] as const)(
  "%s: a subscriber and a pipeline that cannot be connected, or are cancelled, leave nothing open",
  async (_library, library, end) => {
    for (const open of [
      (driver: RedisDriver, cancelled: AbortSignal) =>
        driver.openSubscriber(
          () => {},
          () => {},
          cancelled,
        ),
      (driver: RedisDriver, cancelled: AbortSignal) => driver.openPipeline(cancelled),
    ]) {
      const refused = library({ connecting: Promise.reject(new Error("refused")) });
      await expect(open(refused.driver, signal())).rejects.toThrow("refused");
      expect(refused.duplicates[0]?.called).toContain(end);
      const slow = library({ connecting: never() });
      const cancellation = new AbortController();
      void open(slow.driver, cancellation.signal);
      await settle();
      expect(slow.duplicates[0]?.called).not.toContain(end);
      cancellation.abort();
      expect(slow.duplicates[0]?.called).toContain(end);
    }
  },
);

describe("connecting", () => {
  function connecting(topology: RedisDriver["topology"], closed?: AbortSignal) {
    const clock = new FakeClock();
    const client = new FakeClient();
    let connected = (): void => {};
    let failed: (cause: unknown) => void = () => {};
    client.connecting = new Promise<void>((resolve, reject) => ([connected, failed] = [resolve, reject]));
    let closes = 0;
    const driver = { topology, close: async () => void (closes += 1) } as unknown as RedisDriver;
    const outcome = connectDriver(driver, client, { clock, closed }).then(
      () => "connected",
      (error: Error) => error,
    );
    return {
      clock,
      client,
      outcome,
      connected: () => connected(),
      failed: (cause: Error) => failed(cause),
      closes: () => closes,
    };
  }

  test("a client that connects is left open, with no timer and no error that ends the program", async () => {
    const { clock, client, outcome, connected, closes } = connecting("single");
    connected();
    expect([await outcome, closes(), clock.pending]).toEqual(["connected", 0, 0]);
    client.emit("error", new Error("later"));
    expect(closes()).toBe(0);
  });

  test("of one host the first error ends it; of several the others may answer", async () => {
    const single = connecting("single");
    single.client.emit("error", new Error("ECONNREFUSED"));
    expect(await single.outcome).toBeInstanceOf(EngineUnavailableError);
    expect([single.closes(), single.clock.pending]).toEqual([1, 0]);
    const several = connecting("cluster");
    several.client.emit("error", new Error("ECONNREFUSED"));
    several.connected();
    expect(await several.outcome).toBe("connected");
    // The first error says more than what the library ends with.
    const none = connecting("sentinel");
    none.client.emit("error", new Error("NOAUTH first"));
    none.client.emit("error", new Error("second"));
    none.failed(new Error("all failed"));
    const error = await none.outcome;
    expect(error).toBeInstanceOf(EngineRefusedError);
    expect((error as Error).message).toContain("NOAUTH first");
  });

  test("it takes twice the library's own time limit at most, and ends when nobody wants it", async () => {
    const { clock, outcome, closes } = connecting("cluster");
    await clock.advance(2 * CONNECT_TIMEOUT_MS - 1);
    expect(closes()).toBe(0);
    await clock.advance(1);
    expect(((await outcome) as Error).message).toMatch(/no connection in time/);
    expect(closes()).toBe(1);
    const cancellation = new AbortController();
    // One that is made is nobody's to end: nothing is kept of it.
    const made = connecting("cluster", cancellation.signal);
    made.connected();
    await made.outcome;
    expect(getEventListeners(cancellation.signal, "abort")).toEqual([]);
    const left = connecting("cluster", cancellation.signal);
    cancellation.abort();
    expect(((await left.outcome) as Error).message).toMatch(/closed/);
    expect([left.closes(), left.clock.pending]).toEqual([1, 0]);
  });

  test("pauses between attempts grow from 25 ms to a second", () => {
    expect([0, 1, 2, 5, 6, 100].map(reconnectDelayMs)).toEqual([25, 50, 100, 800, 1000, 1000]);
  });

  test("a connection that is there is not ended by whoever cancels later", async () => {
    const cancellation = new AbortController();
    let ends = 0;
    await connectOrEnd({ connect: async () => {} }, cancellation.signal, () => (ends += 1));
    cancellation.abort();
    expect(ends).toBe(0);
  });
});
