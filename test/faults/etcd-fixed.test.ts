import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { type EtcdDriver, etcdClient, etcdEngine } from "../../src/engines/etcd/index.js";
import type { TxnRequest } from "../../src/engines/etcd/messages.js";
import { Child } from "../process/child.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { until } from "../servers/process.js";
import { claimOf, countedOn, engineOn, leftovers, locksOn, ownCluster, standing, waiters } from "./etcd-rig.js";

/** Leases of fixed length: each in etcd by itself, so that no other claim's heartbeat makes it last longer. */

let cluster: EtcdCluster;
beforeAll(async () => void (cluster = await startEtcd()), 60_000);
afterAll(() => cluster?.stop());

async function clientOn(url: string): Promise<EtcdDriver> {
  const client = await etcdClient(url);
  onTestFinished(() => client.close());
  return client;
}

async function leaseOf(client: EtcdDriver, claim: ClaimRequest): Promise<{ ID: bigint; TTL: number }> {
  return client.call("leaseTimeToLive", { ID: (await standing(client, claim)).lease });
}

test("pitfall 31: the fixed lease of a process that is killed ends in its own time, before those it was renewing", async () => {
  const leaseMs = 9000;
  const child = new Child({
    url: cluster.url,
    name: "fixed",
    acquire: { leaseMs, renew: false },
    beside: [{ name: "renewed", acquire: { leaseMs } }],
  });
  await child.tells("held");
  const locks = await locksOn(cluster.url);
  const client = await clientOn(cluster.url);
  const left = async (name: string): Promise<number> => {
    const [holder] = await locks.mutex(name).holders();
    return holder === undefined ? 0 : (await leaseOf(client, { ...claimOf(name), id: holder.id })).TTL;
  };
  // By the store: the other was renewed meanwhile. Under one lease both would have as long.
  await until("the fixed one has less left", async () => (await left("renewed")) >= (await left("fixed")) + 3);
  child.signal("SIGKILL");
  await child.exited();
  const askedAt = performance.now();
  const seconds = await left("fixed");
  const freed: string[] = [];
  const free = async (name: string): Promise<void> => {
    const hold = await locks.mutex(name).acquire();
    freed.push(name);
    if (name === "fixed")
      expect(performance.now() - askedAt, "not before its time").toBeGreaterThan((seconds - 1) * 1000);
    await hold.release();
  };
  await Promise.all([free("renewed"), free("fixed")]);
  expect(freed).toEqual(["fixed", "renewed"]);
}, 120_000);

test("a claim that waited under a shared lease holds under its own, for the time that was asked", async () => {
  const [holding, waiting] = [await engineOn(cluster.url), await engineOn(cluster.url)];
  const client = await clientOn(cluster.url);
  const [holder, renewed] = [claimOf("waited"), claimOf("beside")];
  const fixed = claimOf("waited", { leaseMs: 30_000, fixed: true });
  await holding.claim(holder);
  await waiting.claim(renewed);
  expect((await waiting.claim(fixed)).kind).toBe("queued");
  expect((await leaseOf(client, fixed)).ID, "a waiter's lease").toBe((await leaseOf(client, renewed)).ID);
  await holding.release(holder);
  const [confirmed] = await waiting.renew([fixed]);
  expect(confirmed).toMatchObject({ kind: "granted" });
  const own = await leaseOf(client, fixed);
  expect(own.ID).not.toBe((await leaseOf(client, renewed)).ID);
  expect(own.TTL).toBeGreaterThan(20);
  expect(await waiting.release(fixed)).toBe("released");
  await until("its lease ends with it", async () => (await client.call("leaseTimeToLive", own)).TTL < 0);
  expect((await waiting.renew([renewed]))[0]?.kind).toBe("granted");
});

/** An engine before each of whose writes, once it is armed, something happens first. */
async function interruptedOn(url: string): Promise<{ engine: Engine; before: (run: () => Promise<unknown>) => void }> {
  const client = await clientOn(url);
  let next: (() => Promise<unknown>) | null = null;
  const places = (request: object): boolean =>
    (request as TxnRequest).compare?.length === 2 && (request as TxnRequest).success?.[0]?.request_put !== undefined;
  const engine = await etcdEngine({
    async call(name, request) {
      const run = name === "txn" && places(request) ? next : null;
      if (run !== null) {
        next = null;
        await run();
      }
      return client.call(name, request);
    },
    keepAlive: (lease) => client.keepAlive(lease),
    watch: (heard, ended) => client.watch(heard, ended),
    close: () => {},
  });
  onTestFinished(() => engine[Symbol.asyncDispose]());
  return { engine, before: (run) => void (next = run) };
}

test("a claim that is granted while it joins the queue holds under its own lease too", async () => {
  const holding = await engineOn(cluster.url);
  const client = await clientOn(cluster.url);
  const { engine: waiting, before } = await interruptedOn(cluster.url);
  for (const leaseMs of [5000, 30_000]) {
    const [holder, beside] = [claimOf("joined"), claimOf("beside it", { leaseMs: 5000 })];
    const fixed = claimOf("joined", { leaseMs, fixed: true });
    await holding.claim(holder);
    await waiting.claim(beside);
    // The holder leaves between the look that found the name busy and the write that takes a place behind it.
    before(() => holding.release(holder));
    expect((await waiting.claim(fixed)).kind).toBe("granted");
    const own = await leaseOf(client, fixed);
    expect(own.ID, "not the one that is kept alive by others").not.toBe((await leaseOf(client, beside)).ID);
    expect(await waiting.release(fixed)).toBe("released");
    await until("its lease ends with it", async () => (await client.call("leaseTimeToLive", own)).TTL < 0, 5000);
    await waiting.release(beside);
  }
});

test("a claim whose answer was lost, and which is granted when it is sent again, holds under its own lease too", async () => {
  const [holding, waiting] = [await engineOn(cluster.url), await engineOn(cluster.url)];
  const client = await clientOn(cluster.url);
  const [holder, beside] = [claimOf("sent again"), claimOf("beside that", { leaseMs: 5000 })];
  const fixed = claimOf("sent again", { leaseMs: 5000, fixed: true });
  await holding.claim(holder);
  await waiting.claim(beside);
  expect((await waiting.claim(fixed)).kind, "which it is never told").toBe("queued");
  await holding.release(holder);
  expect((await waiting.claim(fixed)).kind).toBe("granted");
  expect((await leaseOf(client, fixed)).ID).not.toBe((await leaseOf(client, beside)).ID);
  for (const claim of [fixed, beside]) expect(await waiting.release(claim)).toBe("released");
});

test("an extension counts from now: longer than before or shorter, and never back", async () => {
  const mine = await ownCluster();
  const { engine, counts } = await countedOn(mine.url);
  const client = await clientOn(mine.url);
  const fixed = claimOf("extended", { leaseMs: 60_000, fixed: true });
  await engine.claim(fixed);
  const extended = async (leaseMs: number): Promise<number> => {
    const [answer] = await engine.renew([{ ...fixed, leaseMs }]);
    if (answer?.kind !== "granted") throw new Error(`it is ${answer?.kind}`);
    expect(answer.leftMs).toBeGreaterThanOrEqual(leaseMs);
    return (await leaseOf(client, fixed)).TTL;
  };
  const long = await extended(300_000);
  expect(long).toBeGreaterThan(200);
  expect(await extended(5000), "not back").toBeGreaterThanOrEqual(long - 20);
  expect(await extended(5000), "nor as long again").toBeLessThanOrEqual(long + 1);
  expect(counts.calls.keepAlive, "nothing that is fixed is kept alive").toBeUndefined();
  expect(await engine.release({ ...fixed, tombstone: "never" })).toBe("released");
  await until("all its leases have ended", async () => (await leftovers(mine)).leases.length === 0);
});

test("pitfall 47: taken, refused, waited for in vain, lost, handed over: no lease of a fixed hold is left", async () => {
  const mine = await ownCluster();
  const [one, two] = [await locksOn(mine.url), await locksOn(mine.url)];
  const fixed = { renew: false, leaseMs: 15_000 };
  for (let n = 0; n < 5; n += 1) await (await one.mutex("m").acquire(fixed)).release();
  const hold = await one.mutex("m").acquire(fixed);
  expect(await two.mutex("m").tryAcquire(fixed)).toBeNull();
  await expect(two.mutex("m").acquire({ ...fixed, waitMs: 300 })).rejects.toThrow();
  const next = two.mutex("m").acquire(fixed);
  await until("it waits", async () => (await waiters(one, "m")) === 1);
  await hold.release();
  const handed = await one.adopt((await next).handOver());
  await handed.extend(20_000);
  await handed.release();
  const lost = await one.mutex("lost").acquire({ ...fixed, leaseMs: 500 });
  await until("it is lost", () => lost.state === "lost");
  await Promise.all([one.close(), two.close()]);
  // The lease of tombstones, one for each client, lasts two minutes at most.
  const client = await clientOn(mine.url);
  const long = async (): Promise<number[]> => {
    const ids = (await leftovers(mine)).leases.map((id) => BigInt(`0x${id}`));
    const lefts = await Promise.all(ids.map(async (ID) => (await client.call("leaseTimeToLive", { ID })).TTL));
    return lefts.filter((seconds) => seconds <= 60);
  };
  // What stood in the client's book when it closed ends by itself.
  await until("only tombstones are left", async () => (await long()).length === 0, 45_000);
}, 120_000);
