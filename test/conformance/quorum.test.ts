import { afterAll, beforeAll, describe, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import { openRedis } from "../../src/engines/redis/index.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type RedisServer, startRedis } from "../servers/redis.js";
import { EXCUSED } from "./quorum-excuses.js";

describe("quorum of five, by a fake clock", () => {
  const clock = new FakeClock();
  const stores = Array.from({ length: 5 }, () => memoryStore(clock));
  const engine = (): Promise<Engine> =>
    quorumEngine(
      stores.map((store) => memoryEngine(store)),
      { clock },
    );
  conformance(test, { engine, leaseStepMs: 1000, clock, excused: EXCUSED });
});

describe("quorum of three Redis servers", () => {
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
  conformance((name, run) => test.concurrent(name, run, 60_000), { engine, leaseStepMs: 1000, excused: EXCUSED });
});
