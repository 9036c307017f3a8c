import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { type EtcdDriver, etcdClient, etcdEngine } from "../../src/engines/etcd/index.js";
import { Keys } from "../../src/engines/etcd/keys.js";
import type { KeyValue, TxnRequest } from "../../src/engines/etcd/messages.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { until } from "../servers/process.js";
import { claimOf, engineOn, listening, locksOn, standing, states, waiters } from "./etcd-rig.js";

/** The keys at which claims stand are used again and again: what was sent for one claim must never hit the next. */

let cluster: EtcdCluster;
beforeAll(async () => void (cluster = await startEtcd()), 60_000);
afterAll(() => cluster?.stop());

type Recorded = {
  readonly engine: Engine;
  readonly client: EtcdDriver;
  /** Every transaction that writes, in the order in which they were sent. */
  readonly sent: TxnRequest[];
  /** How many of them are not answered yet. */
  underWay: number;
  /** What becomes of a transaction that writes; without it, it is sent. */
  onWrite: ((request: TxnRequest, send: () => Promise<unknown>) => Promise<unknown>) | null;
};

async function recordedOn(url: string): Promise<Recorded> {
  const client = await etcdClient(url);
  const sent: TxnRequest[] = [];
  const hooks: Pick<Recorded, "onWrite" | "underWay"> = { onWrite: null, underWay: 0 };
  const writes = (request: TxnRequest): boolean =>
    [...(request.success ?? []), ...(request.failure ?? [])].some((op) => op.request_range === undefined);
  const recording: EtcdDriver = {
    async call(name, request) {
      const send = (): Promise<never> => client.call(name, request) as Promise<never>;
      if (name !== "txn" || !writes(request as TxnRequest)) return send();
      sent.push(request as TxnRequest);
      hooks.underWay += 1;
      try {
        return (await (hooks.onWrite?.(request as TxnRequest, send) ?? send())) as never;
      } finally {
        hooks.underWay -= 1;
      }
    },
    keepAlive: (lease) => client.keepAlive(lease),
    watch: (heard, ended) => client.watch(heard, ended),
    close: () => {},
  };
  const engine = await etcdEngine(recording);
  onTestFinished(async () => {
    await engine[Symbol.asyncDispose]();
    client.close();
  });
  return Object.assign(hooks, { engine, client, sent });
}

/** The keys of a name at which claims were put. */
function keysPut(sent: readonly TxnRequest[], name: string): Set<string> {
  const [from, to] = new Keys("holdfast/").claims(name);
  const puts = sent.flatMap(({ success = [] }) => success.flatMap(({ request_put: one }) => (one ? [one.key] : [])));
  return new Set(puts.filter((key) => key >= from && key < to));
}

async function queueOf(client: EtcdDriver, name: string): Promise<readonly KeyValue[]> {
  const [key, range_end] = new Keys("holdfast/").claims(name);
  return (await client.call("range", { key, range_end })).kvs;
}

/** Once more, as a copy that was under way all the time. */
async function copiesArrive(client: EtcdDriver, copies: readonly TxnRequest[]): Promise<void> {
  for (const copy of copies) await client.call("txn", copy).catch(() => {});
}

test("pitfall 47: a lock that is taken and given back again and again uses one key, not one for each claim", async () => {
  const { engine, sent, client } = await recordedOn(cluster.url);
  const locks = await locksOn(engine);
  for (let n = 0; n < 500; n += 1) await (await locks.mutex("pairs").acquire()).release();
  expect(keysPut(sent, "pairs").size).toBe(1);
  expect(await queueOf(client, "pairs")).toEqual([]);
});

test("pitfall 47: contenders use as many keys as claims stand at the same time", async () => {
  const recorded = [await recordedOn(cluster.url), await recordedOn(cluster.url)];
  const all = await Promise.all(recorded.map(({ engine }) => locksOn(engine)));
  let [inside, highest] = [0, 0];
  const contend = async (locks: (typeof all)[number]): Promise<void> => {
    for (let n = 0; n < 63; n += 1) {
      await locks.mutex("contended").using(async (hold) => {
        expect((inside += 1), "alone").toBe(1);
        expect(hold.token).toBeGreaterThan(highest);
        highest = hold.token;
        await Promise.resolve();
        inside -= 1;
      });
    }
  };
  await Promise.all(all.flatMap((locks) => Array.from({ length: 4 }, () => contend(locks))));
  const keys = new Set(recorded.flatMap(({ sent }) => [...keysPut(sent, "contended")]));
  expect(keys.size).toBeLessThanOrEqual(20);
});

test("pitfall 22: nothing that was sent for one claim touches the next one at its key, however late it arrives", async () => {
  const recorded = await recordedOn(cluster.url);
  const { engine, client, sent } = recorded;
  const other = await engineOn(cluster.url);
  const name = "late copies";
  const permits = (units: number): ClaimRequest => claimOf(name, { capacity: 3, units, leaseMs: 5000 });
  // Granted, shrunk, extended, passed on by one that waited, dropped by a smaller capacity, released, ended.
  const [large, waiting] = [permits(3), permits(2)];
  expect((await engine.claim(large)).kind).toBe("granted");
  expect((await engine.claim(waiting)).kind).toBe("queued");
  const behind = permits(3);
  expect((await other.claim(behind)).kind).toBe("queued");
  expect(await engine.resize(large, 1)).toBe("resized");
  await until("the next one holds", async () => (await engine.renew([waiting]))[0]?.kind === "granted");
  expect((await engine.renew([{ ...large, leaseMs: 8000 }]))[0]?.kind).toBe("granted");
  const dropped = permits(3);
  expect((await engine.claim(dropped)).kind).toBe("queued");
  expect(await engine.setCapacity(name, 3, 2)).toEqual({ kind: "set" });
  expect((await engine.renew([dropped]))[0]?.kind).toBe("gone");
  expect((await other.renew([behind]))[0]?.kind).toBe("gone");
  for (const one of [large, waiting]) expect(await engine.release(one)).toBe("released");
  expect(await engine.release(dropped)).toBe("gone");
  const silent = claimOf(name, { leaseMs: 2000 });
  expect((await engine.claim(silent)).kind).toBe("granted");
  const { length } = sent;
  // Its key is used again when the engine knows that nothing is there.
  const isOver = (): boolean => sent.length > length && recorded.underWay === 0;
  await until("its time is over", async () => (await queueOf(client, name)).length === 0 && isOver(), 10_000);
  // Now others stand at the same keys.
  const copies = [...sent];
  const next = Array.from({ length: 3 }, () => claimOf(name));
  for (const claim of next) await engine.claim(claim);
  const before = await queueOf(client, name);
  for (const { key } of before) expect(keysPut(copies, name)).toContain(key);
  expect(before).toHaveLength(3);
  await copiesArrive(client, copies);
  expect(await queueOf(client, name)).toEqual(before);
  const kinds = (await engine.renew(next)).map(({ kind }) => kind);
  expect(kinds).toEqual(["granted", "queued", "queued"]);
  for (const claim of next) expect(await engine.release(claim)).toBe("released");
}, 30_000);

/** The first transaction that writes from now on is not sent, and not answered. */
function holdBack(recorded: Recorded): () => TxnRequest {
  let held: TxnRequest | null = null;
  recorded.onWrite = async (request) => {
    recorded.onWrite = null;
    held = request;
    throw new Error("the wire is cut");
  };
  return () => {
    if (held === null) throw new Error("nothing was sent");
    return held;
  };
}

const keyOf = (request: TxnRequest, name: string): string => [...keysPut([request], name)][0] ?? "no claim";

test("pitfall 62: copies of a claim that was not answered are for one key, where nobody else ever stands", async () => {
  const recorded = await recordedOn(cluster.url);
  const { engine, client, sent } = recorded;
  const name = "copies";
  const twice = claimOf(name);
  const first = holdBack(recorded);
  await expect(engine.claim(twice)).rejects.toThrow("the wire is cut");
  expect((await engine.claim(twice)).kind).toBe("granted");
  const stands = await queueOf(client, name);
  expect(stands.map(({ key }) => key)).toEqual([keyOf(first(), name)]);
  await copiesArrive(client, [first()]);
  expect(await queueOf(client, name)).toEqual(stands);
  expect(await engine.release(twice)).toBe("released");
  await copiesArrive(client, [first()]);
  expect(await queueOf(client, name), "a tombstone is in its way").toEqual([]);
  const next = claimOf(name);
  expect((await engine.claim(next)).kind).toBe("granted");
  const later = await queueOf(client, name);
  expect(later[0]?.key).not.toBe(stands[0]?.key);
  const tombstone = new Keys("holdfast/").tombstone(name, twice.id);
  await client.call("txn", { success: [{ request_delete_range: { key: tombstone } }] });
  await copiesArrive(client, [...sent]);
  expect(await queueOf(client, name), "longer than tombstones last").toEqual(later);
  expect(await engine.release(next)).toBe("released");
});

test("pitfall 54: a claim withdrawn before it was answered never comes to life, and takes nothing with it", async () => {
  const recorded = await recordedOn(cluster.url);
  const { engine, client } = recorded;
  const name = "withdrawn";
  const holder = claimOf(name);
  await engine.claim(holder);
  const late = claimOf(name);
  const waits = holdBack(recorded);
  await expect(engine.claim(late)).rejects.toThrow("the wire is cut");
  expect(await engine.release(late)).toBe("gone");
  await copiesArrive(client, [waits()]);
  expect(await queueOf(client, name)).toHaveLength(1);
  // The same, but it had arrived, and only the answer was lost.
  const arrived = claimOf(name);
  recorded.onWrite = async (_request, send) => {
    recorded.onWrite = null;
    await send();
    throw new Error("the answer is lost");
  };
  await expect(engine.claim(arrived)).rejects.toThrow("the answer is lost");
  expect(await queueOf(client, name)).toHaveLength(2);
  expect(await engine.release(arrived)).toBe("released");
  expect(await queueOf(client, name)).toHaveLength(1);
  const waiter = claimOf(name);
  expect((await engine.claim(waiter)).kind).toBe("queued");
  expect((await standing(client, waiter)).key).not.toBe(keyOf(waits(), name));
  await engine.release(holder);
  expect((await engine.renew([waiter]))[0]?.kind).toBe("granted");
  expect(await engine.release(waiter)).toBe("released");
});

test("pitfall 17: a claim that was never answered and never withdrawn ends by itself, and its end hits nobody else", async () => {
  const recorded = await recordedOn(cluster.url);
  const { engine, client, sent } = recorded;
  const name = "never answered";
  const left = claimOf(name, { leaseMs: 2000 });
  const copy = holdBack(recorded);
  await expect(engine.claim(left)).rejects.toThrow("the wire is cut");
  await copiesArrive(client, [copy()]);
  expect(await queueOf(client, name)).toHaveLength(1);
  const before = sent.length;
  await until("it is taken out", async () => (await queueOf(client, name)).length === 0, 10_000);
  const ending = sent.slice(before);
  expect(ending.length).toBeGreaterThan(0);
  const next = claimOf(name, { leaseMs: 20_000 });
  expect((await engine.claim(next)).kind).toBe("granted");
  const stands = await queueOf(client, name);
  await copiesArrive(client, ending);
  expect(await queueOf(client, name)).toEqual(stands);
  expect(await engine.release(next)).toBe("released");
}, 30_000);

test("pitfall 24: a claim that another engine took over keeps its key, and whoever made it takes another", async () => {
  const { engine, client } = await recordedOn(cluster.url);
  const other = await engineOn(cluster.url);
  const name = "taken over";
  const claim = claimOf(name, { leaseMs: 6000 });
  await engine.claim(claim);
  const { key } = await standing(client, claim);
  for (let n = 0; n < 6; n += 1) {
    expect((await other.renew([claim]))[0]?.kind).toBe("granted");
    await sleep(1500);
  }
  const waiter = claimOf(name);
  expect((await engine.claim(waiter)).kind).toBe("queued");
  expect((await standing(client, waiter)).key).not.toBe(key);
  expect((await standing(client, claim)).key).toBe(key);
  expect(await other.release(claim)).toBe("released");
  expect((await engine.renew([waiter]))[0]?.kind).toBe("granted");
  expect(await other.release(waiter), "found by its id, wherever it stands").toBe("released");
  expect((await engine.renew([waiter]))[0]?.kind).toBe("gone");
}, 30_000);

test("a key of ours that somebody else wrote is left to them", async () => {
  const { engine, client } = await recordedOn(cluster.url);
  const events = listening(engine);
  const name = "overwritten";
  const [first, second] = [claimOf(name), claimOf(name)];
  await engine.claim(first);
  const { key } = await standing(client, first);
  await engine.release(first);
  await client.call("txn", { success: [{ request_put: { key, value: Buffer.from("mine") } }] });
  await expect(engine.claim(second)).rejects.toThrow("somebody else wrote at this claim's key");
  expect((await engine.claim(second)).kind).toBe("queued");
  expect(await waiters(engine, name)).toBe(1);
  expect((await states(engine, { name }))[0]?.holders[0]?.owner.host).toBe("unknown");
  await client.call("txn", { success: [{ request_delete_range: { key } }] });
  await until("it is told", () => events.some((event) => event.kind === "granted" && event.id === second.id));
  expect(await engine.release(second)).toBe("released");
});
