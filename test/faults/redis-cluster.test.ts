import { setTimeout as sleep } from "node:timers/promises";
import * as ioredis from "ioredis";
import { Redis } from "ioredis";
import * as ioredis5 from "ioredis5";
import { createCluster } from "redis";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { SystemClock } from "../../src/core/clock.js";
import { EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import { connectIoredis, ioredisDriver } from "../../src/engines/redis/drivers/ioredis.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import { parseRedisUrl } from "../../src/engines/redis/url.js";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import { type ClusterSet, command, startCluster } from "../servers/redis.js";
import { closing, engineOn, listening, locksOn } from "./redis-rig.js";

let cluster: ClusterSet;
beforeAll(async () => void (cluster = await startCluster()), 60_000);
afterAll(() => cluster?.stop());

const direct = (port: number): Redis => {
  const client = new Redis(port);
  onTestFinished(() => client.disconnect());
  return client;
};

/** Moves the slot of a key, slowly, to the next node, as an operator's tool does; `before` its first key goes. */
async function migrate(key: string, everyMs: number, before = async (): Promise<void> => {}): Promise<void> {
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
  await before();
  for (;;) {
    const keys = (await source?.call("cluster", "getkeysinslot", slot, "20")) as string[];
    if (keys.length === 0) break;
    await source?.call("migrate", "127.0.0.1", String(port), "", "0", "5000", "KEYS", ...keys);
    await sleep(everyMs);
  }
  for (const client of [target, source, ...clients])
    await client?.call("cluster", "setslot", slot, "node", ids[to] ?? "");
}

test.each([
  ["ioredis", ioredis],
  ["ioredis 5", ioredis5],
])(
  "pitfall 63: a Cluster that we made sends nothing again when a connection ends, one that was handed in says that it may (%s)",
  async (_, library) => {
    const driver = await connectIoredis(library, parseRedisUrl(cluster.url, undefined), {
      clock: new SystemClock(),
      closed: undefined,
    });
    onTestFinished(() => driver.close());
    expect(driver.resends).toBe(false);
    const handedIn = new library.Cluster(cluster.servers.map(({ port }) => ({ host: "127.0.0.1", port })));
    onTestFinished(() => handedIn.disconnect());
    expect(ioredisDriver(handedIn).resends).toBe(true);

    const nodes = cluster.servers.map(({ port }) => direct(port));
    const blocked = async (): Promise<number> => {
      const lists = await Promise.all(nodes.map((node) => node.call("client", "list")));
      return lists
        .join("\n")
        .split("\n")
        .filter((line) => line.includes("cmd=blpop")).length;
    };
    const outcome = driver.call("sent once", ["blpop", "sent once", "0"]).then(
      () => "answered",
      () => "failed",
    );
    await until("the server has the command", async () => (await blocked()) === 1);
    for (const node of nodes) await node.call("client", "kill", "type", "normal", "skipme", "yes").catch(() => {});
    expect(await outcome).toBe("failed");
    // And what is asked next finds a connection again.
    await until("the Cluster answers", () =>
      driver.call("sent once", ["get", "sent once"]).then(
        () => true,
        () => false,
      ),
    );
    expect(await blocked()).toBe(0);
  },
);

async function nodeRedisLocks({ servers } = cluster): Promise<Locks> {
  const client = createCluster({ rootNodes: servers.map(({ url }) => ({ url })) });
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

test("pitfall 40: who comes to a held name whose slot begins to move does not end the hold", async () => {
  const [a, b] = [await locksOn(cluster.url), await locksOn(cluster.url)];
  const lost: string[] = [];
  a.on("lost", ({ name }) => lost.push(name));
  const queued: string[] = [];
  a.on("queued", ({ name }) => queued.push(name));
  const name = (what: string): string => `{second}:${what}`;
  const byHand = { renew: false, leaseMs: 10_000 };
  // One name is new, one was idle, one has been waited for.
  await (await b.mutex(name("idle")).acquire()).release();
  const early = await b.mutex(name("contended")).acquire();
  const mutexes = ["new", "idle", "contended"].map((what) => ({ of: (locks: Locks) => locks.mutex(name(what)) }));
  const holding = mutexes.map(({ of }) => of(a).acquire(byHand));
  await until("it waits", () => queued.length === 1);
  await early.release();
  const holds = await Promise.all(holding);
  const permit = await a.semaphore(name("permits"), 2).acquire(byHand);
  const waiting: Promise<Hold>[] = [];
  await migrate("{second}", 100, async () => {
    waiting.push(...mutexes.map(({ of }) => of(b).acquire()));
    for (const { of } of mutexes) expect(await of(b).tryAcquire()).toBeNull();
    await (await b.semaphore(name("permits"), 2).acquire()).release();
    for (const hold of [...holds, permit]) await hold.extend(20_000);
  });
  for (const hold of [...holds, permit]) await hold.extend(30_000);
  expect(lost).toEqual([]);
  await Promise.all([...holds, permit].map((hold) => hold.release()));
  for (const [n, next] of (await Promise.all(waiting)).entries()) {
    expect(next.token).toBeGreaterThan(holds[n]?.token ?? 0);
    await next.release();
  }
}, 60_000);

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

test.each([
  ["ioredis", (set: ClusterSet) => locksOn(set.url, { callTimeoutMs: 2000 })],
  ["node-redis", (set: ClusterSet) => nodeRedisLocks(set)],
])(
  "a primary dies and its replica takes over: claims go on there, and what lives on other nodes is not touched (%s)",
  async (_library, open) => {
    const set = await startCluster({ replica: true });
    onTestFinished(() => set.stop());
    const locks = await open(set);
    expect(locks.guarantees.exclusion).toBe("until-failover");
    const lost: string[] = [];
    locks.on("lost", ({ name }) => lost.push(name));
    const [dying, ...others] = set.servers;
    const isOn = async (port: number, name: string): Promise<boolean> =>
      (await command(port, `EXISTS "holdfast:lock:${name}"`)).startsWith(":1");
    const names = Array.from({ length: 30 }, (_, n) => `failover:${n}`);
    const holds = await Promise.all(names.map((name) => locks.mutex(name).acquire({ leaseMs: 20_000 })));
    const there = await Promise.all(names.map((name) => isOn(dying?.port ?? 0, name)));
    expect(new Set(there)).toEqual(new Set([true, false]));
    const replica = others.at(-1)?.port ?? 0;
    await until("the replica has them", async () => {
      const info = await command(replica, "INFO replication");
      return info.includes("master_link_status:up") && (await command(replica, "DBSIZE")).trim() !== ":0";
    });
    await dying?.running.end("SIGKILL");
    const tokens = await Promise.all(
      Array.from({ length: 30 }, async (_, n) => {
        const hold = await locks.mutex(`failover:new:${n}`).acquire();
        await hold.release();
        return hold.token;
      }),
    );
    expect(tokens).toHaveLength(30);
    expect(await command(replica, "ROLE")).toContain("master");
    await Promise.all(holds.map((hold) => hold.release()));
    // Replication is asynchronous: a grant that the replica did not have is lost, and its holder is told. None elsewhere is.
    const elsewhere = new Set(names.filter((_, n) => !there[n]));
    expect(lost.filter((name) => elsewhere.has(name))).toEqual([]);
  },
  120_000,
);
