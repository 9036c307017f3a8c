import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { locksOn, ownServer, states } from "../faults/redis-rig.js";
import { until } from "../servers/process.js";

const PROCESSES = 4;
const EACH = 2500;

test("pitfall 16: ten thousand waiters of four processes are served in the order in which they came", async () => {
  const server = await ownServer();
  const locks = await locksOn(server.url);
  const hold = await locks.mutex("queue").acquire();
  const program = resolve(import.meta.dirname, "waiters.mjs");
  const options = { url: server.url, name: "queue", count: EACH, leaseMs: 60_000 };
  const run = () => promisify(execFile)(process.execPath, [program, JSON.stringify(options)], { maxBuffer: 1e8 });
  const children = Promise.all(Array.from({ length: PROCESSES }, run));
  const waiting = async () => (await states(locks, { name: "queue" }))[0]?.waiters ?? [];
  await until("all wait", async () => (await waiting()).length === PROCESSES * EACH, 60_000);
  const arrived = (await waiting()).map(({ id }) => id);
  await hold.release();
  const served = (await children).flatMap(({ stdout }) => JSON.parse(stdout) as [number, string][]);
  const order = served.toSorted(([one], [two]) => one - two).map(([, id]) => id);
  expect(order).toHaveLength(PROCESSES * EACH);
  // A process that stood still for ten seconds lost its positions, and asked again with new ids.
  const kept = new Set(order);
  const inPlace = arrived.filter((id) => kept.has(id));
  const came = new Set(arrived);
  expect(order.filter((id) => came.has(id))).toEqual(inPlace);
  expect(inPlace.length).toBeGreaterThan(EACH);
  expect(await states(locks, { name: "queue" })).toEqual([]);
}, 180_000);
