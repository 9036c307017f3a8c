// Compiled, never run: holds, clients and frameworks are taken as they are.
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { Cluster, Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import Database from "libsql";
import type { Connection, Pool as MysqlPool } from "mysql2/promise";
import type { Pool, PoolClient } from "pg";
import { createClient, createCluster, createSentinel } from "redis";
import { createClient as createClient5 } from "redis5";
import type { Hold } from "../../src/core/hold.js";
import {
  expressGuard,
  fastifyGuard,
  fencedFetch,
  fencedSet,
  fencedWriteFile,
  honoGuard,
  memoryFence,
  mysqlFence,
  postgresFence,
  redisFence,
  sqliteFence,
} from "../../src/fence/index.js";

const fence = memoryFence();
const rootNodes = [{ url: "redis://h" }];
const sentinel = { name: "main", sentinelRootNodes: [{ host: "h", port: 1 }] };

export const fences = (tx: PoolClient, pool: Pool, connection: Connection, mysqlPool: MysqlPool) => [
  postgresFence(tx, { table: "app.fence" }),
  postgresFence(pool),
  mysqlFence(connection),
  mysqlFence(mysqlPool),
  sqliteFence(new Database(":memory:")),
  redisFence(new Redis()),
  redisFence(new Cluster([])),
  redisFence(new Redis5()),
  redisFence(createClient()),
  redisFence(createCluster({ rootNodes })),
  redisFence(createSentinel(sentinel)),
  redisFence(createClient5()),
  // @ts-expect-error a URL is no client
  redisFence("redis://h"),
];

export const shown = async (hold: Hold): Promise<void> => {
  await fence.accept("r", hold);
  await fence.accept("r", hold.token);
  await fencedSet(new Redis(), "key", "value", hold, { expireMs: 1000 });
  await fencedWriteFile("path", "text", hold);
  await fencedFetch(hold, "http://h", { method: "PUT" });
  // @ts-expect-error a raise is by number
  await fence.raise("r", hold);
};

express().put("/:id", expressGuard({ fence, lock: (request: express.Request) => request.path }));
fastify().addHook("preHandler", fastifyGuard({ fence, lock: (request) => String(request.headers.host) }));
new Hono().use(honoGuard({ fence, lock: (context) => context.req.raw.url }));
