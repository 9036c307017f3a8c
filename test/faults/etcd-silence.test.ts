import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { Timer } from "../../src/core/clock.js";
import { EngineUnavailableError } from "../../src/core/errors.js";
import { etcdClient, etcdEngine } from "../../src/engines/etcd/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { claimOf, engineOn, listening, locksOn, waiters } from "./etcd-rig.js";

/** Connections that go silent without a reset, as behind a firewall that forgot them: nobody is told, so it must be found out. */

let cluster: EtcdCluster;
let port = 0;
beforeAll(async () => {
  cluster = await startEtcd();
  port = cluster.members[0]?.port ?? 0;
}, 60_000);
afterAll(() => cluster?.stop());

async function silent(): Promise<{ proxy: Proxy; url: string }> {
  const proxy = await Proxy.to(port);
  onTestFinished(() => proxy.close());
  return { proxy, url: `etcd://127.0.0.1:${proxy.port}` };
}

const callTimeoutMs = 400;

/** A busy machine may take longer than that to connect. */
async function opened<T>(open: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await open();
    } catch (error) {
      if (tries === 20 || !(error instanceof EngineUnavailableError)) throw error;
    }
  }
}

test("a call that is not answered replaces its connection: the next one is answered, and the hold lives on", async () => {
  const { proxy, url } = await silent();
  const locks = await opened(() => locksOn(url, { callTimeoutMs, leaseMs: 20_000 }));
  const hold = await locks.mutex("held").acquire();
  for (let n = 0; n < 3; n += 1) {
    proxy.silence();
    await (await locks.mutex("asked").acquire()).release();
  }
  hold.throwIfLost();
  await hold.release();
});

test("a watch on a silent connection is found out although nothing else is asked, made anew, and a warning says so", async () => {
  const { proxy, url } = await silent();
  const [watching, writing] = [await opened(() => engineOn(url, { callTimeoutMs })), await engineOn(cluster.url)];
  const events = listening(watching);
  const seen: (string | null)[] = [];
  onTestFinished(watching.cells?.watch("cell", ({ value }) => seen.push(value)) ?? (() => {}));
  let version = 0;
  const write = async (value: string): Promise<void> => {
    const written = await writing.cells?.write({ name: "cell", operation: `write ${value}`, expected: version, value });
    version = written?.cell.version ?? 0;
  };
  await until("the watch stands", async () => {
    await write(`first ${version}`);
    return seen.length > 0;
  });
  for (const value of ["second", "third"]) {
    proxy.silence();
    await write(value);
    await until("it is heard", () => seen.at(-1) === value);
  }
  const warnings = events.flatMap((event) => (event.kind === "warning" ? event.message : []));
  expect(warnings.length).toBeGreaterThanOrEqual(2);
  expect(warnings[0]).toMatch(/watches in etcd ended \(no answer within 400 ms\)/);
}, 60_000);

test("a waiter whose connection goes silent is woken, and says so in a warning of the locks", async () => {
  const { proxy, url } = await silent();
  const [waiting, holding] = [
    await opened(() => locksOn(url, { callTimeoutMs, leaseMs: 60_000 })),
    await locksOn(cluster.url),
  ];
  const warnings: string[] = [];
  waiting.on("warning", ({ message }) => warnings.push(message));
  const silentWhileItWaits = async (): Promise<boolean> => {
    const hold = await holding.mutex("waited for").acquire();
    const next = waiting.mutex("waited for").acquire();
    await until("it waits", async () => (await waiters(holding, "waited for")) === 1);
    proxy.silence();
    await hold.release();
    await (await next).release();
    return warnings.length > 0;
  };
  // A watch that was still being made when the connection went silent has not ended: nothing is said of that one.
  await until("it is said that the watches ended", silentWhileItWaits);
}, 60_000);

test("a member that accepts connections and says nothing is left for another, by calls and by watches", async () => {
  const { proxy, url } = await silent();
  const both = `${url},127.0.0.1:${port}`;
  const [watching, holding] = [await opened(() => engineOn(both, { callTimeoutMs })), await engineOn(cluster.url)];
  const events = listening(watching);
  const [holder, waiter] = [claimOf("elsewhere", { leaseMs: 60_000 }), claimOf("elsewhere", { leaseMs: 60_000 })];
  await holding.claim(holder);
  expect((await watching.claim(waiter)).kind).toBe("queued");
  proxy.stall();
  // No call is made: only the watch can find out.
  await until("the waiter is asked to look", () => events.some((event) => event.kind === "wake"));
  expect((await watching.renew([waiter]))[0]?.kind).toBe("queued");
  await holding.release(holder);
  await until("the new watch tells", () => events.some((event) => event.kind === "granted"));
  await watching.release(waiter);
}, 60_000);

test("a client of one's own replaces its connections too, for all engines on it", async () => {
  const { proxy, url } = await silent();
  const client = await opened(() => etcdClient(url, { callTimeoutMs }));
  onTestFinished(() => client.close());
  const engines = [await etcdEngine(client), await etcdEngine(client, { prefix: "other/" })];
  const heard = engines.map((engine) => {
    onTestFinished(() => engine[Symbol.asyncDispose]());
    return listening(engine);
  });
  const holders = [await engineOn(cluster.url), await engineOn(cluster.url, { prefix: "other/" })];
  for (const [n, engine] of engines.entries()) {
    await holders[n]?.claim(claimOf("shared"));
    expect((await engine.claim(claimOf("shared"))).kind).toBe("queued");
  }
  // The answer to something sent after the watches shows that they stand.
  await client.call("range", { key: "shared" });
  proxy.silence();
  for (const events of heard) await until("it is told", () => events.some(({ kind }) => kind === "warning"));
  for (const engine of engines) expect((await engine.claim(claimOf("new"))).kind).toBe("granted");
}, 60_000);

/** Says when a call was answered: its time limit is taken back. And how often anybody asked to be woken. */
class CountingClock extends FakeClock {
  cancelled = 0;
  started = 0;

  override after(ms: number, run: () => void): Timer {
    this.started += 1;
    return super.after(ms, run);
  }

  override cancel(timer: Timer): void {
    this.cancelled += 1;
    super.cancel(timer);
  }
}

test("a connection that is quiet because nothing happens is asked once in a call's time limit, and stays", async () => {
  const { proxy, url } = await silent();
  const clock = new CountingClock();
  const client = await etcdClient(url, { clock, callTimeoutMs: 1000 });
  onTestFinished(() => client.close());
  let ended = false;
  let created = false;
  const stream = await client.watch(
    (response) => (created ||= response.created),
    () => (ended = true),
  );
  stream.send({ create_request: { key: "quiet", watch_id: 1 } });
  await until("it stands", () => created);
  for (let asked = 1; asked <= 5; asked += 1) {
    await clock.advance(1100);
    await until("it is asked and answers", () => clock.cancelled === asked);
  }
  expect([proxy.connections, ended]).toEqual([1, false]);
  expect(clock.started, "the time limit of each question, and when to look next").toBeLessThanOrEqual(16);
  stream.close();
  await clock.advance(5000);
  expect([clock.pending, clock.cancelled], "nobody listens, nobody looks").toEqual([0, 5]);
});
