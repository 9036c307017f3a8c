import { once } from "node:events";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { SystemClock } from "../../src/core/clock.js";
import { deadlineOf } from "../../src/core/limits.js";
import { SharedTimes } from "../../src/core/shared-times.js";
import type { FromWorker, ToWorker } from "../../src/core/worker-renewals.js";
import type { Locks } from "../../src/locks.js";
import { freePorts } from "../servers/process.js";
import { type RedisServer, startRedis } from "../servers/redis.js";

// The thread that renews, as it is built, told what to do by the test in place of a program.

type Add = Extract<ToWorker, { kind: "add" }>;

/** As long as no test lasts: who holds by it loses nothing, however busy the machine is. */
const LONG_MS = 600_000;

let server: RedisServer;
let locks: Locks;
let names = 0;
beforeAll(async () => {
  server = await startRedis();
  locks = await connect(server.url);
});
afterAll(async () => {
  await locks.close();
  await server.running.stop();
});

class Thread {
  readonly told: FromWorker[] = [];
  readonly exited: Promise<unknown>;
  readonly times = SharedTimes.of(10);
  readonly clock = new SystemClock();
  readonly #worker: Worker;
  #looks: (() => void)[] = [];

  constructor(target: string, stallMs: number) {
    this.times.progress(this.clock.now());
    const workerData = { target, options: {}, buffer: this.times.buffer, stallMs, callTimeoutMs: 60_000 };
    this.#worker = new Worker(resolve(import.meta.dirname, "../../dist/renew-worker.js"), { workerData, execArgv: [] });
    this.exited = once(this.#worker, "exit");
    this.#worker.on("message", (message: FromWorker) => {
      this.told.push(message);
      for (const look of this.#looks) look();
    });
    onTestFinished(() => void this.#worker.terminate());
  }

  send(message: ToWorker): void {
    this.#worker.postMessage(message, []);
  }

  /** When so many messages of this kind, and of this slot where one is given, were told. */
  async hears(kind: FromWorker["kind"], slot?: number, count = 1): Promise<void> {
    await new Promise<void>((heard) => {
      const look = (): void => {
        if (this.of(slot).filter((message) => message.kind === kind).length >= count) heard();
      };
      this.#looks.push(look);
      look();
    });
  }

  of(slot?: number): FromWorker[] {
    return this.told.filter((message) => slot === undefined || ("slot" in message && message.slot === slot));
  }
}

async function connected(stallMs = LONG_MS, url = server.url): Promise<Thread> {
  const thread = new Thread(url, stallMs);
  await thread.hears("ready");
  return thread;
}

/** A hold that only the thread renews: it is told to the thread like this, and sent at once. */
async function held(thread: Thread, slot: number, more: Partial<Add> = {}, by = locks): Promise<Add> {
  names += 1;
  const { name, id, token } = await by.mutex(`m${names}`).acquire({ leaseMs: LONG_MS, renew: false });
  thread.times.clear(slot);
  const add = { kind: "add", slot, name, id, token, leaseMs: LONG_MS, leftMs: LONG_MS } as const;
  return { ...add, heartbeatAt: -Infinity, until: Infinity, ...more };
}

/** A heartbeat every fifth of a second, of a claim that lasts. */
const OFTEN = { leaseMs: 600, leftMs: 600 };

describe("the thread that renews", { timeout: 100_000 }, () => {
  test("the deadline that it shares is that of the answer it tells, and of no more than the lease that was asked for", async () => {
    const thread = await connected();
    thread.send(await held(thread, 0));
    thread.send(await held(thread, 1, OFTEN));
    for (const [slot, leaseMs] of [LONG_MS, OFTEN.leaseMs].entries()) {
      await thread.hears("answered", slot);
      thread.send({ kind: "remove", slot });
      await thread.hears("removed", slot);
      const last = thread.of(slot).findLast((message) => message.kind === "answered");
      if (last?.kind !== "answered" || last.answer.kind !== "granted") throw new Error(JSON.stringify(last));
      const deadline = deadlineOf(last.sentAt, Math.min(last.answer.leftMs, leaseMs));
      expect(thread.times.confirmedUntil(slot)).toBe(Math.floor(deadline * 1000) / 1000);
      expect(last.answer.leftMs).toBeGreaterThan(OFTEN.leaseMs);
    }
  });

  test("where the store keeps less than was asked for, the deadline is the store's", async () => {
    // A quorum takes off what clocks may differ by.
    const members = [await startRedis(), await startRedis()];
    onTestFinished(() => void Promise.all(members.map(({ running }) => running.stop())));
    const url = `redlock://${members.map(({ port }) => `127.0.0.1:${port}`).join(",")}`;
    const quorum = await connect(url);
    onTestFinished(() => quorum.close());
    const thread = await connected(LONG_MS, url);
    thread.send(await held(thread, 0, {}, quorum));
    await thread.hears("answered", 0);
    const [told] = thread.of(0);
    if (told?.kind !== "answered" || told.answer.kind !== "granted") throw new Error(JSON.stringify(told));
    expect(told.answer.leftMs).toBeLessThan(LONG_MS);
    const deadline = deadlineOf(told.sentAt, told.answer.leftMs);
    expect(thread.times.confirmedUntil(0)).toBe(Math.floor(deadline * 1000) / 1000);
  });

  test("a claim with another token is told, and confirms nothing", async () => {
    const thread = await connected();
    const other = await held(thread, 0);
    thread.send({ ...other, token: other.token + 1 });
    await thread.hears("answered", 0);
    expect(thread.times.confirmedUntil(0)).toBe(0);
  });

  test("a heartbeat that is asked for is sent before it is due", async () => {
    const thread = await connected();
    thread.send(await held(thread, 0));
    await thread.hears("answered", 0);
    // Nobody is in that slot: the thread lives on.
    for (const kind of ["send-soon", "remove"] as const) thread.send({ kind, slot: 1 });
    thread.send({ kind: "send-soon", slot: 0 });
    await thread.hears("answered", 0, 2);
    expect(thread.of(1)).toEqual([]);
  });

  test("of a hold that was removed nothing is told any more, although a heartbeat was under way", async () => {
    const thread = await connected();
    const one = await held(thread, 0);
    for (let n = 1; n <= 20; n += 1) {
      const answers = thread.of(0).filter(({ kind }) => kind === "answered").length;
      thread.send(one);
      if (n % 2 === 0) await thread.hears("answered", 0, answers + 1);
      thread.send({ kind: "send-soon", slot: 0 });
      thread.send({ kind: "remove", slot: 0 });
      await thread.hears("removed", 0, n);
      const after = thread.of(0).length;
      // All that was under way is answered: the answers of a connection come in order.
      thread.send(await held(thread, 1));
      await thread.hears("answered", 1, n);
      thread.send({ kind: "remove", slot: 1 });
      expect(thread.of(0)).toHaveLength(after);
    }
  });

  test("heartbeats go on until they are to stop", async () => {
    const thread = await connected();
    const now = thread.clock.now();
    thread.send(await held(thread, 0, { ...OFTEN, heartbeatAt: now, until: now }));
    thread.send(await held(thread, 1, OFTEN));
    await thread.hears("answered", 1, 4);
    expect(thread.of(0)).toEqual([]);
  });

  test("nothing is sent for a program that stands still, which is told", async () => {
    const thread = await connected(1);
    thread.send(await held(thread, 0));
    await thread.hears("unavailable");
    expect(thread.told.at(-1)).toMatchObject({ message: expect.stringMatching(/stood still for \d+ ms/) });
    expect(thread.of(0)).toEqual([]);
  });

  test("a program that goes on after it stood still is renewed for again, without being asked", async () => {
    const thread = await connected(2_000);
    const hold = await held(thread, 0);
    while (thread.times.silentMs() <= 2_000) await sleep(100);
    thread.send(hold);
    await thread.hears("unavailable");
    expect(thread.of(0)).toEqual([]);
    const runs = setInterval(() => thread.times.progress(thread.clock.now()), 100);
    onTestFinished(() => clearInterval(runs));
    await thread.hears("answered", 0);
    expect(thread.of(0)).toMatchObject([{ answer: { kind: "granted" } }]);
  });

  test("it ends when it is told to, and when it cannot connect, which it tells", async () => {
    const thread = await connected();
    thread.send(await held(thread, 0, OFTEN));
    thread.send({ kind: "close" });
    expect(await thread.exited).toEqual([0]);
    const [free = 0] = await freePorts(1);
    const refused = new Thread(`redis://127.0.0.1:${free}`, LONG_MS);
    expect(await refused.exited).toEqual([0]);
    expect(refused.told).toMatchObject([{ kind: "failed", message: expect.any(String) }]);
  });
});
