import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import { command, type RedisServer, restartRedis } from "../servers/redis.js";
import { at, locksOn, startFive, TEST_MS, wiresTo } from "./quorum-rig.js";

/** The member that keeps the order, on five real servers; test/simulation/quorum-turns.ts has every case by a fake clock. */

/** By who the servers say that they are: the first of them keeps the order for every client. */
async function keeperOf(servers: readonly RedisServer[]): Promise<number> {
  const ids = await Promise.all(
    servers.map(async ({ port }) => /run_id:(\w+)/.exec(await command(port, "INFO server"))?.[1] ?? ""),
  );
  return ids.indexOf(ids.toSorted()[0] ?? "");
}

/** They ask one after the other, each when the one before is known to wait. */
async function inLine(
  clients: readonly Locks[],
  name: string,
  who: readonly number[],
  seen: number[],
): Promise<unknown> {
  const turns: Promise<void>[] = [];
  for (const n of who) {
    const locks = at(clients, n);
    let waits = false;
    const off = locks.on("queued", () => (waits = true));
    const turn = async (): Promise<void> => {
      const hold = await locks.mutex(name).acquire({ waitMs: TEST_MS });
      seen.push(n);
      hold.throwIfLost();
      await hold.release();
    };
    turns.push(turn());
    await until(`client ${n} waits`, () => waits);
    off();
    // A claim that met another one on its arrival comes back once.
    await sleep(200);
  }
  return Promise.all(turns);
}

const patient = { memberTimeoutMs: 3000 };

test("clients that list the servers differently wait in one line; nobody who waits asks anybody", {
  timeout: TEST_MS,
}, async () => {
  const servers = await startFive();
  const lists = [servers, servers.toReversed(), [...servers.slice(2), ...servers.slice(0, 2)]];
  const clients = await Promise.all(lists.map((list) => locksOn(list, patient)));
  expect(at(clients, 0).guarantees).toMatchObject({ order: "fifo-while-one-member-answers", wake: "push" });
  const hold = await at(clients, 0).mutex("m").acquire({ leaseMs: 60_000 });
  const seen: number[] = [];
  const all = inLine(clients, "m", [1, 2, 0, 2, 1], seen);
  await sleep(2500);
  const calls = async (): Promise<number> => {
    const all = await Promise.all(servers.map(({ port }) => command(port, "INFO commandstats")));
    return all.reduce((sum, text) => sum + Number(/cmdstat_evalsha:calls=(\d+)/.exec(text)?.[1] ?? 0), 0);
  };
  const before = await calls();
  await sleep(1000);
  // Five wait. Who polls asks all servers several times a second; a heartbeat of some of them may fall into this one.
  expect((await calls()) - before).toBeLessThan(20);
  await hold.release();
  await all;
  expect(seen).toEqual([1, 2, 0, 2, 1]);
});

test("the keeper is killed under those who wait, and comes back without its data: never two, all are served, in order again", {
  timeout: 2 * TEST_MS,
}, async () => {
  const servers = await startFive();
  const clients = await Promise.all([locksOn(servers), locksOn(servers), locksOn(servers)]);
  const keeper = await keeperOf(servers);
  const state = { inside: 0, most: 0, turns: 0, over: false };
  const worker = async (locks: Locks): Promise<void> => {
    while (!state.over) {
      const hold = await locks.mutex("m").acquire({ leaseMs: 10_000, waitMs: TEST_MS });
      state.inside += 1;
      state.most = Math.max(state.most, state.inside);
      await sleep(2);
      hold.throwIfLost();
      state.inside -= 1;
      state.turns += 1;
      await hold.release();
    }
  };
  const working = Promise.all(clients.flatMap((locks) => [worker(locks), worker(locks)]));
  const progress = async (what: string): Promise<void> => {
    const { turns } = state;
    await until(`work goes on ${what}`, () => state.turns > turns + 20, 60_000);
  };
  await progress("at first");
  await at(servers, keeper).running.end();
  await progress("without the keeper");
  servers[keeper] = await restartRedis(at(servers, keeper));
  await progress("with the keeper, who forgot");
  at(servers, keeper).running.signal("SIGSTOP");
  onTestFinished(() => at(servers, keeper).running.signal("SIGCONT"));
  await progress("while the keeper hangs");
  at(servers, keeper).running.signal("SIGCONT");
  await progress("with all of them");
  state.over = true;
  await working;
  expect(state.most).toBe(1);

  const calm = await Promise.all([locksOn(servers, patient), locksOn(servers, patient), locksOn(servers, patient)]);
  const hold = await at(calm, 0).mutex("calm").acquire({ leaseMs: 60_000 });
  const seen: number[] = [];
  const all = inLine(calm, "calm", [2, 1, 0], seen);
  await sleep(2000);
  await hold.release();
  await all;
  expect(seen).toEqual([2, 1, 0]);
});

test("a holder that can tell all servers but the keeper keeps nobody waiting for its lease", {
  timeout: TEST_MS,
}, async () => {
  const servers = await startFive();
  const keeper = await keeperOf(servers);
  const wires = await wiresTo(servers);
  const [cutOff, other] = [await locksOn(wires), await locksOn(servers)];
  const hold = await cutOff.mutex("m").acquire({ leaseMs: 3_600_000 });
  let waits = false;
  other.on("queued", () => (waits = true));
  const waiting = other.mutex("m").acquire({ waitMs: TEST_MS });
  await until("it waits", () => waits);
  at(wires, keeper).cut();
  await hold.release();
  await (await waiting).release();
});
