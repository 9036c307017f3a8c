import { afterEach, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Locks } from "../../src/locks.js";
import { type MariadbServer, startGalera } from "../servers/mariadb.js";
import { startPgBouncer, startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";

/** What an engine finds out while it connects is told to whoever listens to the locks afterwards. */

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

async function warnings(locks: Locks): Promise<string[]> {
  cleanups.push(() => locks.close());
  const told: string[] = [];
  // Long after it was found out.
  await locks.mutex("first").using(() => {});
  locks.on("warning", ({ message }) => told.push(message));
  await until("a warning", () => told.length > 0);
  return told;
}

test("behind PgBouncer a program that listens after connect() is told that it has to poll", async () => {
  const server = await startPostgres();
  cleanups.push(() => server.running.stop());
  const bouncer = await startPgBouncer(server);
  cleanups.push(() => bouncer.running.stop());
  const locks = await connect(bouncer.url);
  expect(locks.guarantees.wake).toBe("poll");
  expect(await warnings(locks)).toEqual([expect.stringContaining("a pooler stands between")]);
}, 90_000);

test("on Galera a program that listens after connect() is told that it has to poll, and locks hand over", async () => {
  const [server] = (await startGalera(1)) as [MariadbServer];
  cleanups.push(() => server.running.stop());
  const locks = await connect(server.url);
  expect(locks.guarantees).toMatchObject({ wake: "poll", exclusion: "until-failover" });
  expect(await warnings(locks)).toEqual([expect.stringContaining("Galera")]);
  const tokens: number[] = [];
  const turn = () => locks.mutex("turns").using((hold) => void tokens.push(hold.token));
  await Promise.all([turn(), turn(), turn()]);
  expect(tokens).toEqual(tokens.toSorted((one, two) => one - two));
  expect(tokens).toHaveLength(3);
  expect(await locks.counter("turns").add(1)).toBe(1);
}, 90_000);
