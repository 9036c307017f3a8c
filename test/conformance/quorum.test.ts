import { afterAll, beforeAll, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import { openRedis } from "../../src/engines/redis/index.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { type RedisServer, startRedis } from "../servers/redis.js";
import { EXCUSED } from "./quorum-excuses.js";

/** Three Redis servers; quorum-virtual.test.ts has the same by a fake clock. */
let servers: readonly RedisServer[] = [];
beforeAll(async () => {
  servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
}, 60_000);
afterAll(async () => void (await Promise.all(servers.map(({ running }) => running.stop()))));
const engine = (): Promise<Engine> =>
  quorumEngine(
    servers.map(({ url }, n) => ({ name: `server ${n + 1}`, open: () => openRedis(url) })),
    { memberTimeoutMs: 1000 },
  );
// Twice what one vote may take: the servers of a busy machine are late too, which the suite does not see.
conformance((name, run) => test.concurrent(name, run, 120_000), { engine, leaseStepMs: 2000, excused: EXCUSED });
