import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import type { Locks } from "../../src/locks.js";
import { type PostgresServer, startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";

/** Databases alone, without any Redis: quorum-mixed.test.ts has the mix. */

const TEST_MS = 180_000;
const OPTIONS: ConnectOptions = { memberTimeoutMs: 3000, leaseMs: 12_000 };

async function clientsOn(urls: readonly string[], count: number): Promise<readonly Locks[]> {
  const clients: Locks[] = [];
  for (let n = 0; n < count; n += 1) {
    const locks = await connect(urls, OPTIONS);
    onTestFinished(() => locks.close());
    clients.push(locks);
  }
  return clients;
}

/** A counter that only the lock protects, by several clients at once. */
async function count(clients: readonly Locks[], turns: number): Promise<void> {
  let counter = 0;
  const tokens: number[] = [];
  const worker = async (locks: Locks): Promise<void> => {
    for (let n = 0; n < turns; n += 1) {
      const hold = await locks.mutex("counter").acquire({ waitMs: TEST_MS });
      const read = counter;
      await sleep(1);
      hold.throwIfLost();
      counter = read + 1;
      tokens.push(hold.token);
      await hold.release();
    }
  };
  await Promise.all(clients.map(worker));
  expect(counter).toBe(clients.length * turns);
  expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));
}

/** Those who wait are served in order, woken by whoever lets go. */
async function expectOrder(clients: readonly Locks[]): Promise<void> {
  const [first] = clients;
  const hold = await first?.mutex("line").acquire({ leaseMs: 60_000 });
  const seen: number[] = [];
  const turns: Promise<void>[] = [];
  const who = [1, 2, 1];
  for (const n of who) {
    const locks = clients[n] as Locks;
    let waits = false;
    const off = locks.on("queued", () => (waits = true));
    const turn = async (): Promise<void> => {
      const own = await locks.mutex("line").acquire({ waitMs: TEST_MS });
      seen.push(n);
      await own.release();
    };
    turns.push(turn());
    await until(`client ${n} waits`, () => waits);
    off();
    await sleep(300);
  }
  await hold?.release();
  await Promise.all(turns);
  expect(seen).toEqual(who);
}

async function expectShared([a, b, c]: readonly Locks[]): Promise<void> {
  const read = await a?.readWrite("rw").read.acquire();
  const beside = await b?.readWrite("rw").read.acquire({ waitMs: 30_000 });
  expect(await c?.readWrite("rw").write.tryAcquire()).toBeNull();
  const writing = c?.readWrite("rw").write.acquire({ waitMs: 60_000 });
  await read?.release();
  await beside?.release();
  await (await writing)?.release();
  const [one, two] = [await a?.semaphore("s", 2).acquire(), await b?.semaphore("s", 2).acquire({ waitMs: 30_000 })];
  expect(await c?.semaphore("s", 2).tryAcquire()).toBeNull();
  const third = c?.semaphore("s", 2).acquire({ waitMs: 60_000 });
  await one?.release();
  await (await third)?.release();
  await two?.release();
}

describe("databases alone", () => {
  test("three PostgreSQL servers decide together, in order, also when one of them is away", {
    timeout: TEST_MS,
  }, async () => {
    const servers: PostgresServer[] = [];
    for (let n = 0; n < 3; n += 1) servers.push(await startPostgres());
    onTestFinished(async () => void (await Promise.all(servers.map(({ running }) => running.stop()))));
    const clients = await clientsOn(
      servers.map(({ url }) => url),
      3,
    );
    expect(clients[0]?.guarantees).toMatchObject({
      exclusion: "quorum-with-clocks",
      order: "fifo-while-one-member-answers",
      wake: "push",
      survivesRestart: true,
    });
    await count(clients, 5);
    await expectOrder(clients);
    await expectShared(clients);
    await servers[1]?.running.end();
    await count(clients, 3);
  });

  test("three SQLite files on one machine, for trying out", { timeout: TEST_MS }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-quorum-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const clients = await clientsOn(
      ["a", "b", "c"].map((name) => `sqlite:${join(folder, `${name}.db`)}`),
      3,
    );
    await count(clients, 5);
    await expectOrder(clients);
    await expectShared(clients);
  });
});
