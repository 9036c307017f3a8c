import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { openPostgres } from "../../src/engines/postgres/index.js";
import { openRedis } from "../../src/engines/redis/index.js";
import { intercept } from "../../src/testing/intercept.js";
import { startPostgres } from "../servers/postgres.js";
import { type Running, until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { startRedis } from "../servers/redis.js";
import { states } from "./rig.js";

/**
 * A store behind a narrow network. How many holds survive depends on how busy the machine is, and is measured by
 * `npm run bench -- overload`. Here what is told is compared with what the store says.
 */

const HOLDS = 2000;
const LEASE_MS = 6000;
const CALL_TIMEOUT_MS = 2000;

type Store = {
  readonly start: () => Promise<{ readonly port: number; readonly running: Running }>;
  readonly urlOf: (port: number) => string;
  readonly open: (url: string) => Promise<Engine>;
};

const STORES: Readonly<Record<string, Store>> = {
  Redis: {
    start: () => startRedis(),
    urlOf: (port) => `redis://127.0.0.1:${port}`,
    open: (url) => openRedis(url, { callTimeoutMs: CALL_TIMEOUT_MS }),
  },
  PostgreSQL: {
    start: startPostgres,
    urlOf: (port) => `postgres://postgres@127.0.0.1:${port}/postgres`,
    open: (url) => openPostgres(url, { callTimeoutMs: CALL_TIMEOUT_MS }),
  },
};

describe.each(Object.entries(STORES))("%s", (_, { start, urlOf, open }) => {
  let server: Awaited<ReturnType<Store["start"]>>;
  beforeAll(async () => void (server = await start()), 60_000);
  afterAll(() => server?.running.stop());

  /** A client behind the proxy that counts its calls with heartbeats. */
  async function watched() {
    const proxy = await Proxy.to(server.port);
    onTestFinished(() => proxy.close());
    const engine = await open(urlOf(proxy.port));
    onTestFinished(() => engine[Symbol.asyncDispose]());
    const calls = { underWay: 0, most: 0, answered: 0 };
    const renew = async <T>(call: () => Promise<T>): Promise<T> => {
      calls.underWay += 1;
      calls.most = Math.max(calls.most, calls.underWay);
      try {
        const answer = await call();
        calls.answered += 1;
        return answer;
      } finally {
        calls.underWay -= 1;
      }
    };
    const locks = await connect(intercept(engine, { renew }), { callTimeoutMs: CALL_TIMEOUT_MS });
    onTestFinished(() => locks.close());
    return { proxy, locks, calls };
  }

  test.each([
    ["a narrow network", (proxy: Proxy) => proxy.throttle(60_000)],
    ["a network in which each answer is late", (proxy: Proxy) => proxy.delay(CALL_TIMEOUT_MS + 500)],
    ["a store that stands still", (proxy: Proxy) => proxy.stall()],
  ])(
    "%s: calls do not pile up, whoever is not told of a loss holds its lock, and afterwards all is well",
    async (_title, slow) => {
      const { proxy, locks, calls } = await watched();
      const holds = await Promise.all(
        Array.from({ length: HOLDS }, (_unused, n) => locks.mutex(`load:${n}`).acquire({ leaseMs: LEASE_MS })),
      );
      await until("heartbeats are answered", () => calls.answered > 0);
      slow(proxy);
      const jeopardy = new Promise((resolve) => locks.on("jeopardy", resolve));
      const lost = new Promise((resolve) => locks.on("lost", resolve));
      // A machine that is quick enough for all of them is not put out by it.
      const enough = new Promise((resolve) => setTimeout(resolve, 2 * LEASE_MS));
      await Promise.race([Promise.all([jeopardy, lost]), enough]);
      proxy.heal();
      const told = (state: string) => holds.filter((hold) => hold.state === state);
      await until("whoever is left is renewed", () => told("held").length + told("lost").length === HOLDS);
      expect(calls.most).toBeLessThanOrEqual(6);

      const direct = await connect(urlOf(server.port));
      onTestFinished(() => direct.close());
      await until("what was lost is withdrawn, and nothing else", async () => {
        const tokens = new Map((await states(direct)).map(({ name, holders }) => [name, holders[0]?.token]));
        const holding = told("held");
        for (const { name, token, state } of holding) if (state !== "lost") expect(tokens.get(name)).toBe(token);
        return tokens.size <= holding.length;
      });
      // Who comes now is not behind anybody's copies.
      await (await locks.mutex("next").acquire({ waitMs: 60_000 })).release();
      await Promise.allSettled(holds.map((hold) => hold.release()));
      await until("nothing is left", async () => (await states(direct)).length === 0);
    },
    180_000,
  );
});
