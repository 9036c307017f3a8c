import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { startEtcd } from "../servers/etcd.js";
import { startMariadb } from "../servers/mariadb.js";
import { startPostgres } from "../servers/postgres.js";
import { quickFolder } from "../servers/process.js";
import { startRedis } from "../servers/redis.js";

type Open = () => Promise<string>;

async function started(start: () => Promise<{ url: string; running: { stop(): Promise<void> } }>): Promise<string> {
  const { url, running } = await start();
  onTestFinished(() => running.stop());
  return url;
}

const STORES: readonly [store: string, open: Open][] = [
  ["redis", () => started(startRedis)],
  ["postgres", () => started(startPostgres)],
  ["mysql", () => started(startMariadb)],
  [
    "etcd",
    () =>
      started(async () => {
        const cluster = await startEtcd();
        return { url: cluster.url, running: cluster };
      }),
  ],
  [
    "sqlite",
    async () => {
      const folder = mkdtempSync(join(quickFolder(), "holdfast-fractions-"));
      onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
      return `sqlite:${join(folder, "locks.db")}`;
    },
  ],
];

test.each(STORES)("%s: durations may have fractions wherever one is taken", { timeout: 60_000 }, async (_, open) => {
  const url = await open();
  const connected = async () => {
    const locks = await connect(url, { leaseMs: 5_000.5, callTimeoutMs: 4_000.5 });
    onTestFinished(() => locks.close());
    return locks;
  };
  const [a, b] = [await connected(), await connected()];
  const held = await a
    .mutex("m")
    .acquire({ leaseMs: 3_000.25, waitMs: 20_000.5, maxHoldMs: 100_000.75, minRemainingMs: 0.5 });
  expect(await b.mutex("m").tryAcquire({ waitMs: 200.25 })).toBe(null);
  expect(await b.mutex("m").tryAcquire({ waitMs: -0 })).toBe(null);
  const data = JSON.parse(JSON.stringify(held.handOver())) as ReturnType<typeof held.handOver>;
  expect(Number.isInteger(data.leaseMs)).toBe(true);
  const adopted = await b.adopt({ ...data, leaseMs: 3_500.7, maxHoldMs: 1_000.3 });
  expect([adopted.token, adopted.state]).toEqual([held.token, "held"]);
  await adopted.release();
  const fixed = await a.mutex("m").acquire({ renew: false, leaseMs: 2_000.6 });
  await fixed.extend(4_000.4);
  expect(fixed.remainingMs).toBeGreaterThan(2_000);
  await fixed.release();
  // Just above one lease: less than a millisecond is left for renewals.
  const job = a.job("j", { leaseMs: 1_000, atMostForMs: 1_000.5, atLeastForMs: 100.5 });
  expect(await job.run(() => "ran")).toMatchObject({ ran: true, value: "ran" });
});

test.each(STORES)(
  "%s: what is no number of the allowed kind never reaches the store",
  { timeout: 60_000 },
  async (_, open) => {
    const locks = await connect(await open());
    onTestFinished(() => locks.close());
    const wrong = [Number.NaN, Infinity, -1, 1e21, "1000", null, 5n] as number[];
    for (const leaseMs of wrong) {
      await expect(locks.mutex("m").acquire({ leaseMs })).rejects.toBeInstanceOf(InvalidOptionError);
    }
    for (const permits of [...wrong, 0, -0, 1.5]) {
      await expect(locks.semaphore("s", 3).acquire({ permits })).rejects.toBeInstanceOf(InvalidOptionError);
    }
    for (const capacity of [...wrong, 0, -0, 2.5]) {
      expect(() => locks.semaphore("s", capacity)).toThrow(InvalidOptionError);
    }
    for (const waitMs of wrong) {
      await expect(locks.mutex("m").acquire({ waitMs })).rejects.toBeInstanceOf(InvalidOptionError);
    }
    const fixed = await locks.mutex("m").acquire({ renew: false, leaseMs: 5_000 });
    for (const ms of [...wrong, 0, -0]) await expect(fixed.extend(ms)).rejects.toBeInstanceOf(InvalidOptionError);
    const data = fixed.handOver();
    for (const value of [...wrong, 0, -0]) {
      for (const key of ["leaseMs", "units", "capacity", "maxHoldMs"]) {
        await expect(locks.adopt({ ...data, [key]: value })).rejects.toBeInstanceOf(InvalidOptionError);
      }
    }
    for (const key of ["units", "capacity"]) {
      await expect(locks.adopt({ ...data, [key]: 0.5 })).rejects.toBeInstanceOf(InvalidOptionError);
    }
    await (await locks.adopt(data)).release();
  },
);
