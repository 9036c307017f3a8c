import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineUnavailableError } from "../../src/core/errors.js";
import type { Locks } from "../../src/locks.js";
import { type MariadbServer, restartMariadb, startMariadb } from "../servers/mariadb.js";
import { type PostgresServer, startPostgres } from "../servers/postgres.js";
import { type RedisServer, startRedis } from "../servers/redis.js";

/** A10: three databases of different kinds, of which a majority decides. */
let redis: RedisServer;
let postgres: PostgresServer;
let mariadb: MariadbServer;
beforeAll(async () => {
  [redis, postgres, mariadb] = await Promise.all([startRedis(), startPostgres(), startMariadb()]);
}, 180_000);
afterAll(async () => {
  await Promise.all([redis, postgres, mariadb].map((server) => server?.running.stop()));
});

async function open(): Promise<Locks> {
  const locks = await connect([redis.url, postgres.url, mariadb.url], { memberTimeoutMs: 1000, leaseMs: 8000 });
  onTestFinished(() => locks.close());
  return locks;
}

test("Redis, PostgreSQL and MariaDB decide together, also when one of them is away", { timeout: 120_000 }, async () => {
  const [a, b] = [await open(), await open()];
  expect(a.guarantees).toMatchObject({ exclusion: "quorum-with-clocks", survivesRestart: false });
  let counter = 0;
  const tokens: number[] = [];
  const turn = async (locks: Locks): Promise<void> => {
    const hold = await locks.mutex("stock").acquire({ waitMs: 60_000 });
    const read = counter;
    await sleep(1);
    hold.throwIfLost();
    counter = read + 1;
    tokens.push(hold.token);
    await hold.release();
  };
  await Promise.all([a, b, a, b, a, b].map(turn));
  await mariadb.running.end();
  await Promise.all([a, b, a, b].map(turn));
  expect(counter).toBe(10);
  expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));

  const read = await a.readWrite("rw").read.acquire();
  expect(await b.readWrite("rw").write.tryAcquire()).toBeNull();
  await read.release();
  const write = await b.readWrite("rw").write.acquire({ waitMs: 10_000 });
  await write.downgrade();
  await (await a.readWrite("rw").read.acquire({ waitMs: 10_000 })).release();
  await write.release();

  // A semaphore of two needs all three.
  const asking = a.semaphore("permits", 2).acquire({ waitMs: 5000 });
  await expect(asking).rejects.toBeInstanceOf(EngineUnavailableError);
  mariadb = await restartMariadb(mariadb);
  const one = await a.semaphore("permits", 2).acquire({ waitMs: 30_000 });
  const two = await b.semaphore("permits", 2).acquire({ waitMs: 30_000 });
  expect(await a.semaphore("permits", 2).tryAcquire()).toBeNull();
  await one.release();
  await two.release();
});

test("two databases of one server are one member", { timeout: 60_000 }, async () => {
  await expect(connect([postgres.url, redis.url, `${postgres.url}?schema=other`])).rejects.toThrow(/same server/);
  await expect(connect([mariadb.url, redis.url, mariadb.url])).rejects.toThrow(/same server/);
});
