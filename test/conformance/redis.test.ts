import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5, Redis as Redis5 } from "ioredis5";
import { createClient, createCluster } from "redis";
import {
  createClient as createClient5,
  createCluster as createCluster5,
  createSentinel as createSentinel5,
} from "redis5";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Engine, EngineEvent } from "../../src/core/engine.js";
import { UnsupportedError } from "../../src/core/errors.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import { stressTest } from "../../src/testing/stress-test.js";
import { claimOf } from "../faults/redis-rig.js";
import { until } from "../servers/process.js";
import {
  type ClusterSet,
  type RedisServer,
  type SentinelSet,
  startCluster,
  startRedis,
  startSentinelSet,
} from "../servers/redis.js";
import { judge } from "./judge.js";

const STEP_MS = 600;
const START_MS = 60_000;

/** One client library's client for all engines of a suite, as a program would share it. */
function suite<Place>(
  title: string,
  start: () => Promise<Place & { stop(): Promise<void> }>,
  open: (place: Place) => Promise<{ engine(): Promise<Engine>; close(): Promise<unknown> | void }>,
  runs = 4,
): void {
  describe(title, () => {
    let place: (Place & { stop(): Promise<void> }) | undefined;
    let opened: Awaited<ReturnType<typeof open>> | undefined;
    beforeAll(async () => {
      place = await start();
      opened = await open(place);
    }, START_MS);
    afterAll(async () => {
      await opened?.close();
      await place?.stop();
    }, START_MS);
    const setting = {
      engine: async (): Promise<Engine> => {
        if (opened === undefined) throw new Error("the server did not start");
        return opened.engine();
      },
      leaseStepMs: STEP_MS,
    };
    judge(setting, { runs, rounds: 3, timeoutMs: START_MS });
  });
}

async function single(): Promise<RedisServer & { stop(): Promise<void> }> {
  const server = await startRedis();
  return { ...server, stop: () => server.running.stop() };
}

suite(
  "single, ioredis",
  single,
  async ({ port }) => {
    const client = new Redis(port);
    return { engine: () => redisEngine(client), close: () => client.disconnect() };
  },
  14,
);

suite("single, node-redis", single, async ({ url }) => {
  const client = createClient({ url });
  client.on("error", () => {});
  await client.connect();
  return { engine: () => redisEngine(client), close: () => client.destroy() };
});

suite<ClusterSet>("Cluster, ioredis", startCluster, async ({ servers }) => {
  const client = new Cluster(servers.map(({ port }) => ({ host: "127.0.0.1", port })));
  return { engine: () => redisEngine(client), close: () => client.disconnect() };
});

suite<ClusterSet>("Cluster, node-redis", startCluster, async ({ servers }) => {
  const client = createCluster({ rootNodes: servers.map(({ url }) => ({ url })) });
  client.on("error", () => {});
  await client.connect();
  return { engine: () => redisEngine(client), close: () => client.destroy() };
});

suite<SentinelSet>("Sentinel, ioredis", startSentinelSet, async ({ sentinels }) => {
  const client = new Redis({ sentinels: [...sentinels], name: "main" });
  return { engine: () => redisEngine(client), close: () => client.disconnect() };
});

describe("older versions of the client libraries", () => {
  /** One whole scenario each: taken, queued, pushed, renewed, released, and a stress test by several clients. */
  async function works(engine: () => Promise<Engine>): Promise<void> {
    const [a, b] = [await engine(), await engine()];
    const events: EngineEvent[] = [];
    b.listen((event) => events.push(event));
    const [one, two] = [claimOf("older"), claimOf("older")];
    expect((await a.claim(one)).kind).toBe("granted");
    expect((await b.claim(two)).kind).toBe("queued");
    expect(await a.release(one)).toBe("released");
    await until("the push", () => events.length > 0);
    expect(events[0]).toMatchObject({ kind: "granted", id: two.id });
    expect((await b.renew([two]))[0]?.kind).toBe("granted");
    expect(await b.release(two)).toBe("released");
    for (const done of [a, b]) await done[Symbol.asyncDispose]();
    const { violations } = await stressTest({ engine, leaseStepMs: STEP_MS, clients: 3, rounds: 2, lateMs: 1000 });
    expect(violations).toEqual([]);
  }

  test(
    "ioredis 5 and node-redis 5, single",
    async () => {
      const server = await single();
      onTestFinished(() => server.stop());
      const older = new Redis5(server.port);
      onTestFinished(() => older.disconnect());
      await works(() => redisEngine(older));
      const client = createClient5({ url: server.url });
      client.on("error", () => {});
      await client.connect();
      onTestFinished(() => client.destroy());
      await works(() => redisEngine(client));
    },
    START_MS,
  );

  test(
    "ioredis 5 and node-redis 5, Cluster",
    async () => {
      const cluster = await startCluster();
      onTestFinished(() => cluster.stop());
      const older = new Cluster5(cluster.servers.map(({ port }) => ({ host: "127.0.0.1", port })));
      onTestFinished(() => older.disconnect());
      await works(() => redisEngine(older));
      const client = createCluster5({ rootNodes: cluster.servers.map(({ url }) => ({ url })) });
      client.on("error", () => {});
      await client.connect();
      onTestFinished(() => client.destroy());
      await works(() => redisEngine(client));
    },
    START_MS,
  );

  test(
    "ioredis 5 and node-redis 5, Sentinel",
    async () => {
      const set = await startSentinelSet();
      onTestFinished(() => set.stop());
      const older = new Redis5({ sentinels: [...set.sentinels], name: "main" });
      onTestFinished(() => older.disconnect());
      await works(() => redisEngine(older));
      const client = createSentinel5({ name: "main", sentinelRootNodes: [...set.sentinels] });
      client.on("error", () => {});
      await client.connect();
      onTestFinished(() => client.destroy());
      await works(() => redisEngine(client));
      await expect(redisEngine(client, { ack: 1 })).rejects.toBeInstanceOf(UnsupportedError);
    },
    START_MS,
  );
});
