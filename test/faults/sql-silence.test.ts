import type { EventEmitter } from "node:events";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { mysqlEngine, openMysql } from "../../src/engines/mysql/index.js";
import { openPostgres, postgresEngine } from "../../src/engines/postgres/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { poolOf as mysqlPool, startMariadb } from "../servers/mariadb.js";
import { poolOf as pgPool, startPostgres } from "../servers/postgres.js";
import { type Running, until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { claimOf, listening } from "./rig.js";

/**
 * TCP connections that die without a word. Time is the engine's own and passes only when the test says so: a call on a dead
 * connection never ends by itself, and one on a live connection is never too late.
 */

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

/** Time passes slowly until it is done. */
async function driven<T>(clock: FakeClock, promise: PromiseLike<T>, stepMs = 5): Promise<T> {
  let over = false;
  const done = Promise.resolve(promise).finally(() => (over = true));
  await until("it is done", async () => {
    if (!over) await clock.advance(stepMs);
    return over;
  });
  return done;
}

type Store = {
  readonly start: () => Promise<{ readonly port: number; readonly running: Running }>;
  readonly open: (port: number, clock: FakeClock) => Promise<Engine>;
  /** A pool that the program shares with the engine, and how many connections it has made. */
  readonly poolOn: (port: number) => { engine(clock: FakeClock): Promise<Engine>; made(): number };
};

const STORES: Readonly<Record<string, Store>> = {
  PostgreSQL: {
    start: startPostgres,
    open: (port, clock) => openPostgres(`postgres://postgres@127.0.0.1:${port}/postgres`, { clock }),
    poolOn(port) {
      const pool = pgPool(`postgres://postgres@127.0.0.1:${port}/postgres`);
      cleanups.push(() => pool.end());
      let made = 0;
      pool.on("connect", () => (made += 1));
      return { engine: (clock) => postgresEngine(pool, { clock, wake: "poll" }), made: () => made };
    },
  },
  MariaDB: {
    start: startMariadb,
    open: (port, clock) => openMysql(`mysql://root@127.0.0.1:${port}`, { clock }),
    poolOn(port) {
      const pool = mysqlPool(`mysql://root@127.0.0.1:${port}`);
      cleanups.push(() => pool.end());
      let made = 0;
      pool.on("connection", () => (made += 1));
      return { engine: (clock) => mysqlEngine(pool, { clock, wake: "poll" }), made: () => made };
    },
  },
};

describe.each(Object.entries(STORES))("%s", (_, { start, open, poolOn }) => {
  let server: Awaited<ReturnType<Store["start"]>>;
  beforeAll(async () => {
    server = await start();
  }, 120_000);
  afterAll(() => server.running.stop());

  async function opened() {
    const proxy = await Proxy.to(server.port);
    cleanups.push(() => proxy.close());
    const clock = new FakeClock();
    const engine = await driven(clock, open(proxy.port, clock));
    cleanups.push(() => driven(clock, engine[Symbol.asyncDispose]()));
    return { proxy, clock, engine, events: listening(engine) };
  }

  /** Eight claims, and as many connections as the pool may have: heartbeats at once, which do not go together as claims do. */
  async function crowded(engine: Engine, proxy: Proxy, label: string) {
    const claims = Array.from({ length: 8 }, (_, n) => claimOf(`${label} ${n}`));
    for (const answer of await Promise.all(claims.map((claim) => engine.claim(claim)))) {
      expect(answer.kind).toBe("granted");
    }
    await Promise.all(claims.map((claim) => engine.renew([claim])));
    expect(proxy.connections).toBeGreaterThan(3);
    return claims;
  }

  test("after one unanswered call the next is answered, however many connections are dead, and it is said", async () => {
    const { proxy, clock, engine, events } = await opened();
    const claims = await crowded(engine, proxy, "silent");
    const [claim = claimOf("none")] = claims;
    proxy.silence();
    const before = proxy.swallowed;
    const unanswered = engine.renew([claim]).catch((cause: unknown) => cause);
    await until("it is asked", () => proxy.swallowed > before);
    await clock.advance(5000);
    expect(String(await unanswered)).toMatch(/no answer within 5000 ms/);
    expect(await engine.renew([claim])).toMatchObject([{ kind: "granted" }]);
    expect(events).toContainEqual({ kind: "warning", message: expect.stringContaining("did not answer") });
    for (const one of claims) expect(await engine.release(one)).toBe("released");
  });

  test("each silence is told once, and costs the pool no connection that was made since", async () => {
    const proxy = await Proxy.to(server.port);
    cleanups.push(() => proxy.close());
    const clock = new FakeClock();
    const pool = poolOn(proxy.port);
    const engine = await driven(clock, pool.engine(clock));
    cleanups.push(() => driven(clock, engine[Symbol.asyncDispose]()));
    const events = listening(engine);
    const claim = claimOf("again");
    expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
    for (const turn of [1, 2]) {
      proxy.silence();
      const [swallowed, made] = [proxy.swallowed, pool.made()];
      const unanswered = engine.renew([claim]).catch((cause: unknown) => cause);
      await until("it is asked", () => proxy.swallowed > swallowed);
      await clock.advance(5000);
      expect(String(await unanswered)).toMatch(/no answer within 5000 ms/);
      for (let call = 0; call < 5; call += 1) {
        expect(await engine.renew([claim])).toMatchObject([{ kind: "granted" }]);
      }
      expect(events.filter(({ kind }) => kind === "warning")).toHaveLength(turn);
      expect(pool.made()).toBe(made + 1);
    }
  });

  test("a connection that ends is not said to be silent", async () => {
    const { proxy, engine, events } = await opened();
    const claim = claimOf("ended");
    expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
    proxy.silence();
    const before = proxy.swallowed;
    const unanswered = engine.renew([claim]).catch((cause: unknown) => cause);
    await until("it is asked", () => proxy.swallowed > before);
    proxy.cut();
    expect(await unanswered).toBeInstanceOf(Error);
    proxy.heal();
    expect(await engine.renew([claim])).toMatchObject([{ kind: "granted" }]);
    expect(events.filter(({ kind }) => kind === "warning")).toEqual([]);
  });

  test("an engine whose connections are dead can be closed, and leaves none open", async () => {
    const { proxy, clock, engine } = await opened();
    await crowded(engine, proxy, "left");
    proxy.silence();
    await driven(clock, engine[Symbol.asyncDispose](), 200);
    await until("no connection is left", () => proxy.connections === 0);
  });

  test("an engine whose connections are dead answers everybody when it is closed: those under way and those who wait", async () => {
    const { proxy, clock, engine } = await opened();
    const claims = await crowded(engine, proxy, "released");
    proxy.silence();
    const before = proxy.swallowed;
    // More than the calls under way can carry; some are for names that have one under way.
    const many = Array.from({ length: 100 }, (_, n) => claimOf(`late ${n % 60}`));
    const asked = Promise.allSettled([
      ...many.map((claim) => engine.claim(claim)),
      ...claims.map((claim) => engine.release(claim)),
    ]);
    await until("they are asked", () => proxy.swallowed > before);
    await driven(clock, engine[Symbol.asyncDispose](), 200);
    const outcomes = await asked;
    expect(new Set(outcomes.map(({ status }) => status))).toEqual(new Set(["rejected"]));
    expect(outcomes.at(-1)).toMatchObject({ reason: { code: "HOLDFAST_CLOSED" } });
    await until("no connection is left", () => proxy.connections === 0);
  });

  test("a dead connection that listens is found by a question, it is said, waiters look, and pushes come again", async () => {
    const { proxy, clock, engine, events } = await opened();
    const [first, second] = [claimOf("deaf"), claimOf("deaf")];
    expect((await engine.claim(first)).kind).toBe("granted");
    expect((await engine.claim(second)).kind).toBe("queued");
    proxy.silence();
    await until("it listens again", async () => {
      await clock.advance(500);
      return events.filter(({ kind }) => kind === "wake").length >= 2;
    });
    expect(events).toContainEqual({ kind: "warning", message: expect.stringMatching(/did not answer/) });
    const release = engine.release(first);
    await until("the release is known", async () => {
      const answer = await Promise.race([release, new Promise((resolve) => setTimeout(resolve, 20, "none yet"))]);
      if (answer === "none yet") await clock.advance(500);
      return answer !== "none yet";
    });
    await until("the waiter is told", () => events.some((event) => event.kind === "granted" && event.id === second.id));
  });
});

test("PostgreSQL: a client that was handed in and is silent gets no listener more with each attempt to hear again", async () => {
  const server = await startPostgres();
  cleanups.push(() => server.running.stop());
  const proxy = await Proxy.to(server.port);
  cleanups.push(() => proxy.close());
  const client = new Client(`postgres://postgres@127.0.0.1:${proxy.port}/postgres`);
  await client.connect();
  const clock = new FakeClock();
  const engine = await driven(clock, postgresEngine(client, { clock }));
  const before = new Map(client.eventNames().map((name) => [name, client.listenerCount(name)]));
  let attempts = 0;
  const emitter: EventEmitter = client;
  emitter.on("newListener", (name: string) => (attempts += Number(name === "notification")));
  proxy.silence();
  await until("it tried again and again", async () => {
    await clock.advance(500);
    return attempts >= 12;
  });
  await driven(clock, engine[Symbol.asyncDispose](), 500);
  emitter.removeAllListeners("newListener");
  const more = client.eventNames().filter((name) => client.listenerCount(name) > (before.get(name) ?? 0));
  expect(more).toEqual([]);
});
