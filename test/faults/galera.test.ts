import { setTimeout as pause } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Locks } from "../../src/locks.js";
import { type MariadbServer, query, startGalera } from "../servers/mariadb.js";
import { until } from "../servers/process.js";
import { inSomeTries } from "./rig.js";

/** Clients of one Galera cluster, each at a node of its own. */

let nodes: readonly [MariadbServer, MariadbServer, MariadbServer];
beforeAll(async () => {
  nodes = (await startGalera(3)) as [MariadbServer, MariadbServer, MariadbServer];
}, 180_000);
afterAll(async () => {
  for (const { running } of nodes) await running.stop();
});

const opened: Locks[] = [];
afterEach(async () => {
  for (const locks of opened.splice(0)) await locks.close();
});

/** One at each node. */
async function clients(): Promise<[Locks, Locks, Locks]> {
  for (const { url } of nodes) opened.push(await connect(url, { wake: "poll", callTimeoutMs: 60_000 }));
  return opened.slice(-3) as [Locks, Locks, Locks];
}

const numberOf = async (url: string, status: string): Promise<number> => {
  const [row] = await query(url, `SHOW STATUS LIKE '${status}'`);
  return Number(row?.Value);
};

test("one holds at a time, and tokens rise, while nodes decide at the same moment and all but one of them are turned down", async () => {
  const all = await clients();
  let [counter, inside] = [0, 0];
  const tokens: number[] = [];
  const HOLDS = 10;
  const work = async (locks: Locks): Promise<void> => {
    for (let got = 0; got < HOLDS; ) {
      // A node that is turned down again and again takes its time, and a grant must outlast that.
      const hold = await locks.mutex("hot").tryAcquire({ leaseMs: 60_000 });
      if (hold === null) continue;
      expect((inside += 1)).toBe(1);
      const before = counter;
      await pause(1);
      counter = before + 1;
      tokens.push(hold.token);
      got += 1;
      inside -= 1;
      await hold.release();
    }
  };
  await Promise.all(all.map(work));
  expect(counter).toBe(all.length * HOLDS);
  expect(tokens).toEqual(tokens.toSorted((one, two) => one - two));
  expect(new Set(tokens).size).toBe(tokens.length);
  const turnedDown = nodes.flatMap(({ url }) => [
    numberOf(url, "wsrep_local_cert_failures"),
    numberOf(url, "wsrep_local_bf_aborts"),
  ]);
  expect((await Promise.all(turnedDown)).reduce((sum, one) => sum + one)).toBeGreaterThan(0);
}, 120_000);

test("who waits at another node is served in order of arrival, and finds out by asking", async () => {
  const [first, second, third] = await clients();
  const hold = await first.mutex("queue").acquire();
  const served: string[] = [];
  const waiting: Promise<void>[] = [];
  for (const [locks, who] of [
    [third, "third"],
    [second, "second"],
  ] as const) {
    waiting.push(locks.mutex("queue").using(() => void served.push(who)));
    await until(`the ${who} waits`, async () => {
      for await (const { waiters } of first.inspect({ name: "queue" })) return waiters.length === waiting.length;
      return false;
    });
  }
  await hold.release();
  await Promise.all(waiting);
  expect(served).toEqual(["third", "second"]);
}, 120_000);

test("a node that has not caught up says nothing of what another was told", async () => {
  const [first, second, third] = await clients();
  for (let n = 1; n <= 40; n += 1) {
    await first.counter("seen").add(1);
    expect(await second.counter("seen").get()).toBe(n);
    const hold = await second.mutex("passed on").acquire();
    const adopted = await third.adopt(hold.handOver());
    expect(adopted.token).toBe(hold.token);
    await adopted.release();
  }
}, 120_000);

// The last ones: they leave fewer nodes behind.
test("a node that is killed: its holder is told in time, the others go on, and its lock passes on after the lease", async () => {
  const [first, second, third] = await clients();
  // The others notice after five seconds, and answer nothing until then.
  const kept = await first.mutex("kept").acquire({ leaseMs: 60_000 });
  const lost = await third.mutex("lost").acquire({ leaseMs: 4_000 });
  const told = new Promise<number>((resolve) => {
    lost.signal.addEventListener("abort", () => resolve(performance.now()));
  });
  nodes[2].running.signal("SIGKILL");
  const next = await second.mutex("lost").acquire({ waitMs: 60_000 });
  expect(await told).toBeLessThan(performance.now());
  expect(() => lost.throwIfLost()).toThrow(/lost/i);
  expect(next.token).toBeGreaterThan(lost.token);
  expect(kept.state).toBe("held");
  await kept.release();
  await next.release();
}, 120_000);

test("a node without the majority grants nothing, and its holder is told; back among the others it serves again", async () => {
  const { url } = nodes[0];
  const locks = await inSomeTries(() => connect(url, { leaseMs: 3_000, callTimeoutMs: 1_000, wake: "poll" }));
  opened.push(locks);
  const hold = await locks.mutex("cut").acquire();
  nodes[1].running.signal("SIGSTOP");
  await new Promise((resolve) => hold.signal.addEventListener("abort", resolve));
  await expect(locks.mutex("other").acquire({ waitMs: 500 })).rejects.toThrow();
  nodes[1].running.signal("SIGCONT");
  const again = await locks.mutex("cut").acquire({ waitMs: 60_000 });
  expect(again.token).toBeGreaterThan(hold.token);
  await again.release();
}, 120_000);
