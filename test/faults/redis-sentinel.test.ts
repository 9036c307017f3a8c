import { setTimeout as sleep } from "node:timers/promises";
import { createSentinel } from "redis";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { EngineRefusedError } from "../../src/core/errors.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import { until } from "../servers/process.js";
import { restartRedis, type SentinelSet, startSentinelSet } from "../servers/redis.js";
import { claimOf, closing, engineOn, listening, locksOn, states, waiters } from "./redis-rig.js";

let set: SentinelSet;
beforeAll(async () => void (set = await startSentinelSet()), 60_000);
afterAll(() => set?.stop());

/** The servers that are not the primary now. */
async function replicas() {
  const primary = await set.primaryPort();
  return set.servers.filter(({ port }) => port !== primary);
}

test("with replicas it guarantees exclusion until a fail-over, and says so", async () => {
  const locks = await locksOn(set.url);
  expect(locks.guarantees).toMatchObject({ exclusion: "until-failover", token: "monotonic-if-clocks", wake: "push" });
  await expect(locksOn(set.url, { require: { exclusion: "single-server" } })).rejects.toThrow(/until-failover/);
});

test("ack: a grant counts when the replicas have it", async () => {
  const port = await set.primaryPort();
  for (const ack of [1, 2, "majority"] as const) {
    const locks = await locksOn(`redis://127.0.0.1:${port}`, { ack });
    const holds = await Promise.all(
      Array.from({ length: 20 }, (_, n) => locks.mutex(`acked ${n}`).acquire({ waitMs: 10_000 })),
    );
    await Promise.all(holds.map((hold) => hold.release()));
  }
});

test("pitfall 37: an unmet ack undoes the grant and fails with the numbers; renewals do not count either", async () => {
  const port = await set.primaryPort();
  const url = `redis://127.0.0.1:${port}`;
  const locks = await locksOn(url, { ack: 2, ackTimeoutMs: 2000 });
  const plain = await locksOn(url);
  const hold = await locks.mutex("renewed").acquire({ leaseMs: 1500 });
  const [stopped] = await replicas();
  stopped?.running.signal("SIGSTOP");
  onTestFinished(() => stopped?.running.signal("SIGCONT"));
  const acquiring = locks.mutex("unmet").acquire();
  await expect(acquiring).rejects.toBeInstanceOf(EngineRefusedError);
  await expect(acquiring).rejects.toThrow(/1 of 2 replicas/);
  expect(await states(plain, { name: "unmet" })).toEqual([]);
  await until("the hold whose renewals nobody acknowledges is lost", () => hold.state === "lost");
  stopped?.running.signal("SIGCONT");
  await until("it works again", () =>
    locks
      .mutex("unmet")
      .acquire({ waitMs: 10_000 })
      .then(
        (again) => again.release().then(() => true),
        () => false,
      ),
  );
});

test("pitfall 37: a pushed grant counts only after its own acknowledged confirmation", async () => {
  const port = await set.primaryPort();
  const [a, b] = [await engineOn(`redis://127.0.0.1:${port}`), await engineOn(`redis://127.0.0.1:${port}`, { ack: 1 })];
  const events = listening(b);
  const [holder, waiter] = [claimOf("pushed"), claimOf("pushed")];
  await a.claim(holder);
  expect((await b.claim(waiter)).kind).toBe("queued");
  const behind = claimOf("pushed");
  // Told who stands before it, its client would let it go on without the replicas.
  expect(await b.claim(behind)).not.toHaveProperty("ahead");
  expect(await b.release(behind)).toBe("released");
  await a.release(holder);
  await until("it is woken", () => events.length > 0);
  expect(events).toEqual([{ kind: "wake", name: "pushed", id: waiter.id }]);
  expect((await b.renew([waiter]))[0]?.kind).toBe("granted");
  expect(await b.release(waiter)).toBe("released");

  // Handed over while the replicas are away: undone, and whoever waits is told the numbers.
  const [c, d] = [
    await locksOn(`redis://127.0.0.1:${port}`),
    await locksOn(`redis://127.0.0.1:${port}`, { ack: 2, ackTimeoutMs: 2000 }),
  ];
  const first = await c.mutex("handed").acquire();
  const waiting = d.mutex("handed").acquire({ waitMs: 15_000 });
  const failed = expect(waiting).rejects.toThrow(/1 of 2 replicas/);
  await until("it waits", async () => (await waiters(c, "handed")) === 1);
  const [stopped] = await replicas();
  stopped?.running.signal("SIGSTOP");
  onTestFinished(() => stopped?.running.signal("SIGCONT"));
  await first.release();
  await failed;
  expect(await states(c, { name: "handed" })).toEqual([]);
});

test("node-redis through Sentinel takes, waits and is pushed to", async () => {
  const client = createSentinel({ name: "main", sentinelRootNodes: [...set.sentinels] });
  client.on("error", () => {});
  await client.connect();
  onTestFinished(() => client.destroy());
  const engine = closing(await redisEngine(client));
  const events = listening(engine);
  const [one, two] = [claimOf("node-redis"), claimOf("node-redis")];
  expect((await engine.claim(one)).kind).toBe("granted");
  expect((await engine.claim(two)).kind).toBe("queued");
  expect(await engine.release(one)).toBe("released");
  await until("the push", () => events.length > 0);
  expect(events[0]).toMatchObject({ kind: "granted", id: two.id });
  expect(await engine.release(two)).toBe("released");
  expect(engine.guarantees.exclusion).toBe("until-failover");
});

test("C8: the primary is killed under load: work goes on at the promoted replica, no token comes twice", async () => {
  const before = await set.primaryPort();
  const clients = await Promise.all(
    Array.from({ length: 3 }, () => locksOn(set.url, { callTimeoutMs: 1000, leaseMs: 2000 })),
  );
  const tokens: number[] = [];
  const accepted: number[] = [];
  let highest = 0;
  const state = { over: false };
  // Also when the test fails: a closed client refuses at once, and the loops below would never let the event loop go on.
  onTestFinished(() => void (state.over = true));
  const work = clients.flatMap((locks) =>
    Array.from({ length: 3 }, async () => {
      while (!state.over) {
        const hold = await locks
          .mutex("busy")
          .acquire()
          .catch(() => null);
        if (hold === null) continue;
        tokens.push(hold.token);
        await sleep(2);
        // The resource: refuses what is older than what it has seen.
        if (hold.token >= highest) accepted.push((highest = hold.token));
        await hold.release().catch(() => {});
      }
    }),
  );
  await until("they work", () => tokens.length > 50);
  const primary = set.servers.find(({ port }) => port === before);
  await primary?.running.end();
  await until("a replica is promoted", async () => ![0, before].includes(await set.primaryPort()), 30_000);
  const atPromotion = tokens.length;
  const highestBefore = highest;
  await until("the work goes on", () => tokens.length > atPromotion + 100, 30_000);
  state.over = true;
  await Promise.all(work);
  expect(new Set(tokens).size).toBe(tokens.length);
  // The promoted replica may have missed grants: its tokens are above theirs all the same, so that the resource takes its writes.
  expect(accepted.filter((token) => token > highestBefore).length).toBeGreaterThan(50);
  if (primary !== undefined) primary.running = (await restartRedis(primary)).running;
}, 90_000);
