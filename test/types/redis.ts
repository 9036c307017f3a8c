// Compiled, never run: every supported client, of every supported version, is taken as it is.
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster5, Redis as Redis5 } from "ioredis5";
import { createClient, createCluster, createSentinel } from "redis";
import {
  createClient as createClient5,
  createCluster as createCluster5,
  createSentinel as createSentinel5,
} from "redis5";
import { connect } from "../../src/connect.js";
import { redisEngine } from "../../src/engines/redis/index.js";

const rootNodes = [{ url: "redis://h" }];
const sentinel = { name: "main", sentinelRootNodes: [{ host: "h", port: 1 }] };

export const engines = [
  redisEngine(new Redis()),
  redisEngine(new Redis({ sentinels: [{ host: "h", port: 1 }], name: "main" })),
  redisEngine(new Cluster([])),
  redisEngine(new Redis5()),
  redisEngine(new Cluster5([])),
  redisEngine(createClient()),
  redisEngine(createCluster({ rootNodes })),
  redisEngine(createSentinel(sentinel)),
  redisEngine(createClient5()),
  redisEngine(createCluster5({ rootNodes })),
  redisEngine(createSentinel5(sentinel)),
  // @ts-expect-error a URL is for connect
  redisEngine("redis://h"),
  // @ts-expect-error there is no such layout
  redisEngine(new Redis(), { layout: "fancy" }),
];

export const locks = [
  connect("redis://h", { layout: "plain", prefix: "p:", tls: { servername: "h" } }),
  connect("rediss+cluster://h", { credentials: async () => ({ username: "u", password: "p" }) }),
  connect("redis+sentinel://h/main", { ack: "majority", ackTimeoutMs: 100 }),
];
