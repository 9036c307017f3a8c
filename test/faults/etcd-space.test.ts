import { expect, onTestFinished, test } from "vitest";
import { EngineRefusedError } from "../../src/core/errors.js";
import { type EtcdCluster, etcdctl, type Member } from "../servers/etcd.js";
import { until } from "../servers/process.js";
import { claimOf, engineOn, listening, locksOn, ownCluster, states, waiters } from "./etcd-rig.js";

/** etcd's quota is used up: nothing may be written until somebody makes room, everything may be removed and kept alive. */

type Small = {
  readonly cluster: EtcdCluster;
  readonly fill: () => Promise<void>;
  readonly makeRoom: () => Promise<void>;
};

async function smallCluster(): Promise<Small> {
  const cluster = await ownCluster(1, ["--quota-backend-bytes", String(2 ** 21)]);
  const [member] = cluster.members as [Member];
  const ctl = (...args: readonly string[]): Promise<string> => etcdctl(member, ...args);
  return {
    cluster,
    async fill() {
      for (let n = 0; n < 200; n += 1) {
        const filled = await ctl("put", `fill${n}`, "x".repeat(100_000)).catch(() => "full");
        if (filled === "full") return;
      }
      throw new Error("it never gets full");
    },
    async makeRoom() {
      await ctl("del", "fill", "--prefix");
      const [, revision = ""] = /"revision":(\d+)/.exec(await ctl("get", "fill", "-w", "json")) ?? [];
      await ctl("compact", revision, "--physical");
      await ctl("defrag");
      await ctl("alarm", "disarm");
    },
  };
}

test("a hold granted after waiting is renewed without space, for as long as a waiter is, and for its own time once there is room", async () => {
  const { cluster, fill, makeRoom } = await smallCluster();
  const [holding, waiting] = [await engineOn(cluster.url), await engineOn(cluster.url)];
  const [holder, waiter] = [claimOf("handed over"), claimOf("handed over", { leaseMs: 30_000 })];
  await holding.claim(holder);
  expect((await waiting.claim(waiter)).kind).toBe("queued");
  await fill();
  expect(await holding.release(holder)).toBe("released");
  for (let n = 0; n < 3; n += 1) {
    const [renewed] = await waiting.renew([waiter]);
    if (renewed?.kind !== "granted") throw new Error(`it is ${renewed?.kind}`);
    expect(renewed.leftMs).toBeLessThanOrEqual(10_000);
  }
  await makeRoom();
  const [renewed] = await waiting.renew([waiter]);
  if (renewed?.kind !== "granted") throw new Error(`it is ${renewed?.kind}`);
  expect(renewed.leftMs).toBeGreaterThan(10_000);
  expect(await waiting.release(waiter)).toBe("released");
}, 60_000);

test("without space a lock is handed over, the new holder keeps it, and claims are taken again once there is room", async () => {
  const { cluster, fill, makeRoom } = await smallCluster();
  const [one, two] = [await locksOn(cluster.url), await locksOn(cluster.url, { leaseMs: 30_000 })];
  const hold = await one.mutex("kept").acquire();
  const next = two.mutex("kept").acquire();
  await until("it waits", async () => (await waiters(one, "kept")) === 1);
  await fill();
  await hold.release();
  const held = await next;
  let renewed = 0;
  two.on("renewed", () => (renewed += 1));
  // The second one counts from the first: more than the lease that it waited under.
  await until("it is renewed", () => renewed >= 2, 30_000);
  expect(held.state).toBe("held");
  const refused = await one
    .mutex("other")
    .acquire()
    .catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(EngineRefusedError);
  expect(String(refused)).toMatch(/quota is used up.*disarm/);
  await makeRoom();
  await (await one.mutex("other").acquire()).release();
  await held.release();
}, 60_000);

test("without space a hold of fixed length that was waited for is refused with advice, and leaves the way free", async () => {
  const { cluster, fill } = await smallCluster();
  const [one, two] = [await locksOn(cluster.url), await locksOn(cluster.url)];
  const hold = await one.mutex("fixed").acquire();
  const fixed = two
    .mutex("fixed")
    .acquire({ renew: false })
    .catch((error: unknown) => error);
  await until("it waits", async () => (await waiters(one, "fixed")) === 1);
  const behind = one.mutex("fixed").acquire();
  await until("the next one waits", async () => (await waiters(one, "fixed")) === 2);
  let withdrawn = 0;
  two.on("withdrawn", () => (withdrawn += 1));
  await fill();
  await hold.release();
  const refused = await fixed;
  expect(refused).toBeInstanceOf(EngineRefusedError);
  expect(String(refused)).toMatch(/quota/);
  await until("its claim is taken out of the store", () => withdrawn === 1, 5000);
  await (await behind).release();
}, 60_000);

test("without space permits pass on to all that fit, and claims are released by their owner, by force and by closing", async () => {
  const { cluster, fill } = await smallCluster();
  const [holding, waiting] = [await engineOn(cluster.url), await engineOn(cluster.url)];
  const events = listening(waiting);
  const all = claimOf("permits", { capacity: 2, units: 2 });
  const waiters = [claimOf("permits", { capacity: 2 }), claimOf("permits", { capacity: 2 })] as const;
  await holding.claim(all);
  for (const claim of waiters) expect((await waiting.claim(claim)).kind).toBe("queued");
  const unsettled = claimOf("unsettled");
  await holding.claim(unsettled);
  const locks = await locksOn(cluster.url);
  await locks.mutex("closing").acquire();
  await fill();
  expect(await holding.release(all)).toBe("released");
  await until("the first is told", () => events.some((one) => one.kind === "granted" && one.id === waiters[0].id));
  expect((await waiting.renew(waiters)).map(({ kind }) => kind)).toEqual(["granted", "granted"]);
  expect(await waiting.release(waiters[0])).toBe("released");
  expect(await holding.release(waiters[1]), "by force").toBe("released");
  expect(await waiting.release(waiters[1]), "no tombstone could be left").toBe("gone");
  expect(await holding.release(unsettled)).toBe("released");
  await locks.close();
  expect(await states(holding)).toEqual([]);
  onTestFinished(() => expect(events.filter(({ kind }) => kind === "warning")).toEqual([]));
}, 60_000);
