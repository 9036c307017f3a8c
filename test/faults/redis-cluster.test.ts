import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { createCluster } from "redis";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import { type ClusterSet, startCluster } from "../servers/redis.js";
import { closing, engineOn, listening, locksOn } from "./redis-rig.js";

let cluster: ClusterSet;
beforeAll(async () => void (cluster = await startCluster()), 60_000);
afterAll(() => cluster?.stop());

const direct = (port: number): Redis => {
  const client = new Redis(port);
  onTestFinished(() => client.disconnect());
  return client;
};

/** Moves the slot of a key, slowly, to the next node, as an operator's tool does. */
async function migrate(key: string, everyMs: number): Promise<void> {
  const clients = cluster.servers.map(({ port }) => direct(port));
  const ids = await Promise.all(clients.map(async (client) => String(await client.call("cluster", "myid"))));
  const slot = String(await clients[0]?.call("cluster", "keyslot", key));
  const nodes = String(await clients[0]?.call("cluster", "nodes")).split("\n");
  const owner = nodes.find((line) =>
    line
      .split(" ")
      .slice(8)
      .some((range) => {
        const [from, to = from] = range.split("-").map(Number);
        return Number(slot) >= (from ?? 0) && Number(slot) <= (to ?? 0);
      }),
  );
  const from = ids.indexOf(owner?.split(" ")[0] ?? "");
  const to = (from + 1) % ids.length;
  const [source, target, port] = [clients[from], clients[to], cluster.servers[to]?.port];
  await target?.call("cluster", "setslot", slot, "importing", ids[from] ?? "");
  await source?.call("cluster", "setslot", slot, "migrating", ids[to] ?? "");
  for (;;) {
    const keys = (await source?.call("cluster", "getkeysinslot", slot, "20")) as string[];
    if (keys.length === 0) break;
    await source?.call("migrate", "127.0.0.1", String(port), "", "0", "5000", "KEYS", ...keys);
    await sleep(everyMs);
  }
  for (const client of [target, source, ...clients])
    await client?.call("cluster", "setslot", slot, "node", ids[to] ?? "");
}

async function nodeRedisLocks(): Promise<Locks> {
  const client = createCluster({ rootNodes: cluster.servers.map(({ url }) => ({ url })) });
  client.on("error", () => {});
  await client.connect();
  onTestFinished(() => client.destroy());
  const locks = await connect(closing(await redisEngine(client)));
  onTestFinished(() => locks.close());
  return locks;
}

test.each([
  ["ioredis", () => locksOn(cluster.url)],
  ["node-redis", () => nodeRedisLocks()],
])(
  "pitfall 40: a slot moves while holds live in it, and none is lost (%s)",
  async (library, open) => {
    const locks = await open();
    const lost: string[] = [];
    locks.on("lost", ({ name }) => lost.push(name));
    const names = Array.from({ length: 200 }, (_, n) => `{${library}}:${n}`);
    const holds = await Promise.all(names.map((name) => locks.mutex(name).acquire({ leaseMs: 5000 })));
    const state = { over: false };
    // Others come and go meanwhile, also names that are new in the slot, and one waits in a queue that moves.
    const waiting = locks.mutex(names[0] ?? "").acquire();
    const traffic = (async () => {
      let pairs = 0;
      for (; !state.over || pairs < 10; pairs += 1)
        await (await locks.mutex(`{${library}}:new ${pairs % 50}`).acquire()).release();
      return pairs;
    })();
    // So slowly that every lease has to be renewed on the way.
    await migrate(`{${library}}`, 600);
    state.over = true;
    await traffic;
    expect(lost).toEqual([]);
    for (const hold of holds) hold.throwIfLost();
    await Promise.all(holds.map((hold) => hold.release()));
    await (await waiting).release();
  },
  60_000,
);

test("pitfall 40: recipes whose locks and cells lie in a slot that moves count, meet and lead on", async () => {
  const [a, b] = [await locksOn(cluster.url), await locksOn(cluster.url)];
  const clients = [a, b];
  const lost: string[] = [];
  for (const locks of clients) locks.on("lost", ({ name }) => lost.push(name));
  const name = (recipe: string): string => `{recipes}:${recipe}`;
  // So many that the slot moves in several steps, with everything below on the way.
  await Promise.all(Array.from({ length: 120 }, (_, n) => a.counter(name(`counter ${n}`)).add(n)));
  const term = await a.election(name("leader")).campaign({ leaseMs: 5000 });
  const terms: number[] = [];
  const lead = async (value: string): Promise<void> => {
    const one = await a.election(name("terms")).campaign({ value });
    terms.push(one.token);
    await one.resign();
  };
  await lead("first");
  const seen: number[] = [];
  const stop = new AbortController();
  const observing = (async () => {
    for await (const { token } of b.election(name("terms")).observe({ signal: stop.signal })) seen.push(token);
  })().catch(() => {});
  await until("the observer looks", () => seen.length === 1);
  const moving = { over: false };
  const untilMoved = async (work: (round: number) => Promise<unknown>): Promise<number> => {
    for (let round = 0; ; round += 1) {
      if (moving.over && round > 10) return round;
      await work(round);
    }
  };
  const counting = clients.map((locks) => untilMoved(() => locks.counter(name("counter")).add()));
  const electing = untilMoved(async (round) => {
    await lead(`${round}`);
    // An observer may be 32 terms behind, no more.
    await until("the observer follows", () => seen.length > terms.length - 16);
  });
  const both = (locks: Locks) => locks.all([locks.mutex(name("x")), locks.semaphore(name("y"), 1)]);
  let inside = 0;
  const excluding = clients.map((locks) =>
    untilMoved(() =>
      both(locks).using(async () => {
        inside += 1;
        expect(inside).toBe(1);
        await sleep(1);
        inside -= 1;
      }),
    ),
  );
  const rounds = 30;
  const meeting = clients.map(async (locks) => {
    for (let round = 0; round < rounds; round += 1) {
      await locks.barrier(name("barrier"), 2).wait({ waitMs: 20_000 });
      await locks.latch(name(`latch ${round}`), 2).countDown();
      await locks.latch(name(`latch ${round}`), 2).wait({ waitMs: 20_000 });
    }
  });
  await migrate("{recipes}", 800);
  moving.over = true;
  const added = await Promise.all(counting);
  expect(await b.counter(name("counter")).get()).toBe(added.reduce((sum, count) => sum + count, 0));
  await electing;
  await Promise.all([...excluding, ...meeting]);
  await until("the observer has seen the last term", () => seen.at(-1) === terms.at(-1));
  expect(seen).toEqual(terms);
  expect(lost).toEqual([]);
  term.throwIfLost();
  await term.resign();
  stop.abort();
  await observing;
  for (const n of [0, 7, 119]) expect(await b.counter(name(`counter ${n}`)).get()).toBe(n);
}, 60_000);

test("pitfall 40: a name is one key, wherever its braces stand", async () => {
  const engine = await engineOn(cluster.url);
  const events = listening(engine);
  for (const name of ["{a}b", "a}{b", "{}", "}{", "{a", "plain"]) {
    const claim = { name, units: 1, capacity: 1, leaseMs: 5000, wait: true, owner: { client: "c", host: "h", pid: 1 } };
    const [one, two] = [`first-${name}-0123456789`, `second-${name}-0123456789`];
    expect((await engine.claim({ ...claim, id: one })).kind).toBe("granted");
    expect((await engine.claim({ ...claim, id: two })).kind).toBe("queued");
    expect(await engine.release({ name, id: one })).toBe("released");
    expect((await engine.renew([{ name, id: two }]))[0]?.kind).toBe("granted");
    expect(await engine.release({ name, id: two })).toBe("released");
  }
  expect(events.every((event) => event.kind === "granted")).toBe(true);
});

test("without replicas each name is on one server, and says so", async () => {
  const locks = await locksOn(cluster.url);
  expect(locks.guarantees.exclusion).toBe("single-server");
});

test("a node of a Cluster that is taken for a single server refuses for good, with advice", async () => {
  const locks = await locksOn(cluster.servers[0]?.url ?? "");
  // One of them is on another node.
  const acquiring = Promise.all(Array.from({ length: 20 }, (_, n) => locks.mutex(`elsewhere ${n}`).acquire()));
  await expect(acquiring).rejects.toBeInstanceOf(EngineRefusedError);
  await expect(acquiring).rejects.toThrow(/redis\+cluster:/);
});

test("a slot that nobody serves (CLUSTERDOWN): a claim goes on asking, and is served when somebody does", async () => {
  const locks = await locksOn(cluster.url, { callTimeoutMs: 2000 });
  const clients = cluster.servers.map(({ port }) => direct(port));
  const slot = String(await clients[0]?.call("cluster", "keyslot", "holdfast:lock:unserved"));
  const claimed = await Promise.all(
    clients.map((client) => client.call("cluster", "delslots", slot).catch(() => null)),
  );
  expect(claimed).toContain("OK");
  const failing = locks.mutex("unserved").acquire({ waitMs: 500 });
  await expect(failing).rejects.toBeInstanceOf(EngineUnavailableError);
  const waiting = locks.mutex("unserved").acquire();
  await clients[0]?.call("cluster", "addslots", slot);
  await (await waiting).release();
}, 60_000);
