import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { inspect, promisify } from "node:util";
import type { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import { InvalidOptionError, UnsupportedError } from "../../src/core/errors.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import type { Locks } from "../../src/locks.js";
import { selfSigned } from "../servers/certificate.js";
import { startEtcd } from "../servers/etcd.js";
import { startMariadb } from "../servers/mariadb.js";
import { Proxy } from "../servers/proxy.js";
import { command, startRedis } from "../servers/redis.js";
import { SHARED_STORES, type Store } from "../servers/stores.js";
import { startZooKeeper } from "../servers/zookeeper.js";
import { Child } from "./child.js";

const BUILT = resolve(import.meta.dirname, "../../dist/index.js");
const LIMIT = { timeout: 100_000 };
const LEASE_MS = 3_000;
/** Longer than the lease, so that nobody keeps it without heartbeats. */
const BUSY_MS = 4_500;
const acquire = { leaseMs: LEASE_MS };
const worker: ConnectOptions = { renewIn: "worker", stallMs: 60_000 };

const stores: Record<string, Store> = {};
beforeAll(async () => {
  for (const [name, start] of Object.entries(SHARED_STORES)) stores[name] = await start();
  const etcd = await startEtcd();
  stores.etcd = { url: etcd.url, stop: () => etcd.stop() };
  const { url, running } = await startMariadb();
  stores.mysql = { url, stop: () => running.stop() };
  const members = await Promise.all([startRedis(), startRedis(), startRedis()]);
  const hosts = members.map(({ port }) => `127.0.0.1:${port}`);
  stores.quorum = {
    url: `redlock://${hosts.join(",")}`,
    stop: () => Promise.all(members.map((member) => member.running.stop())),
  };
}, 100_000);
afterAll(async () => void (await Promise.all(Object.values(stores).map((store) => store.stop()))));

const urlOf = (name: string): string => stores[name]?.url ?? "";

async function held(store: string, name: string, settings: ConnectOptions): Promise<Child> {
  const child = new Child({ url: urlOf(store), name, acquire, connect: settings });
  await child.tells("held");
  return child;
}

const nextThread = (): Promise<Worker> => new Promise((tell) => process.once("worker", tell));
const next = (locks: Locks, event: Parameters<Locks["on"]>[0]): Promise<unknown> =>
  new Promise((tell) => locks.on(event, tell));

/** In this process, by what is built: a thread cannot run the sources. */
async function here(url: string, callTimeoutMs = 2_000): Promise<{ locks: Locks; thread: Worker }> {
  const built = (await import(pathToFileURL(BUILT).href)) as { connect: typeof connect };
  const starting = nextThread();
  const locks = await built.connect(url, { ...worker, callTimeoutMs });
  onTestFinished(() => locks.close());
  return { locks, thread: await starting };
}

describe('renewIn: "worker"', LIMIT, () => {
  test("a synchronous loop longer than the lease keeps the lock, on every store whose holds live by lease", async () => {
    await Promise.all(
      Object.keys(stores).map(async (store) => {
        const child = await held(store, "kept", worker);
        child.say(`busy ${BUSY_MS}`);
        const other = await connect(urlOf(store));
        // The other program waits meanwhile: it is not let in before the release.
        const next = other.mutex("kept").acquire();
        let isNext = false;
        void next.then(() => (isNext = true));
        expect(await child.tells("checked")).toMatchObject({ held: true });
        expect(isNext).toBe(false);
        child.say("release");
        await child.tells("released");
        await (await next).release();
        child.say("exit");
        await child.exited();
        await other.close();
      }),
    );
  });

  test("without it, or past maxHoldMs, the same loop loses the lock, and says so in the same turn", async () => {
    const long = { url: urlOf("redis"), name: "long", acquire: { ...acquire, maxHoldMs: 500 }, connect: worker };
    const children = [await held("redis", "lost", {}), new Child(long)];
    await Promise.all(
      children.map(async (child) => {
        await child.tells("held");
        child.say(`busy ${BUSY_MS}`);
        expect(await child.tells("checked")).toMatchObject({ held: false, code: "HOLDFAST_LOCK_LOST" });
      }),
    );
  });

  test("a program that hangs loses its lock while it hangs", async () => {
    const child = await held("redis", "hung", { renewIn: "worker", stallMs: 1_000 });
    child.say("busy 60000");
    const other = await connect(urlOf("redis"));
    const hold = await other.mutex("hung").acquire({ waitMs: 40_000 });
    expect(child.told.map(({ event }) => event)).toEqual(["ready", "held"]);
    await hold.release();
    await other.close();
  });

  test("a process stopped past its lease knows at once that its lock is lost", async () => {
    const child = await held("redis", "stopped", worker);
    child.signal("SIGSTOP");
    await sleep(LEASE_MS + 500);
    child.say("check");
    child.signal("SIGCONT");
    expect(await child.tells("checked")).toMatchObject({ held: false, code: "HOLDFAST_LOCK_LOST" });
  });

  test.each([...Object.keys(SHARED_STORES), "etcd", "mysql", "quorum"])(
    "%s: when the thread ends that is told, and the program's own thread renews",
    async (store) => {
      const { locks, thread } = await here(urlOf(store));
      const renewed = next(locks, "renewed");
      const hold = await locks.mutex("ended").acquire({ leaseMs: 12_000 });
      // By the other thread first: it may have to be taken back from it.
      await renewed;
      const [warned, again] = [next(locks, "warning"), next(locks, "renewed")];
      await thread.terminate();
      expect(await warned).toMatchObject({ message: expect.stringMatching(/thread that renews has ended/) });
      expect(await again).toMatchObject({ id: hold.id });
      hold.throwIfLost();
      await hold.release();
    },
  );

  test("an error in the thread ends it and not the program, and is told", async () => {
    const { locks, thread } = await here(urlOf("redis"));
    const hold = await locks.mutex("failed").acquire({ leaseMs: 12_000 });
    const [warned, renewed] = [next(locks, "warning"), next(locks, "renewed")];
    thread.postMessage(null, []);
    expect(await warned).toMatchObject({ cause: expect.any(TypeError) });
    expect(await renewed).toMatchObject({ id: hold.id });
  });

  test("each locks object has a thread of its own: closing one leaves what the other holds", async () => {
    const [one, two] = [await here(urlOf("redis")), await here(urlOf("redis"))];
    expect(one.thread).not.toBe(two.thread);
    const hold = await two.locks.mutex("other").acquire({ leaseMs: 6_000 });
    await one.locks.mutex("one").acquire({ leaseMs: 6_000 });
    await one.locks.close();
    expect(await next(two.locks, "renewed")).toMatchObject({ id: hold.id });
    expect(two.thread.threadId).toBeGreaterThan(0);
    hold.throwIfLost();
  });

  test("while it drains, what is held is renewed; then the thread ends", async () => {
    const { locks, thread } = await here(urlOf("redis"));
    const hold = await locks.mutex("draining").acquire({ leaseMs: 6_000 });
    const drained = locks.drain({ graceMs: 600_000 });
    expect(hold.draining.aborted).toBe(true);
    for (let n = 0; n < 2; n += 1) expect(await next(locks, "renewed")).toMatchObject({ id: hold.id });
    await hold.release();
    await drained;
    expect(thread.threadId).toBe(-1);
  });

  test("closing while the store stands still and a heartbeat is under way ends within the limit, and so does the thread", async () => {
    const proxy = await Proxy.to(Number(new URL(urlOf("redis")).port));
    onTestFinished(() => proxy.close());
    const { locks, thread } = await here(`redis://127.0.0.1:${proxy.port}`);
    const hold = await locks.mutex("stalled").acquire({ leaseMs: 3_000 });
    await next(locks, "renewed");
    proxy.stall();
    // Of the thread: nothing else is asked for.
    expect(await next(locks, "unavailable")).toMatchObject({ doing: "renewing" });
    await locks.close();
    expect(thread.threadId).toBe(-1);
    expect(hold.state).toBe("lost");
  });

  test("it starts in a program that was given as a text, and does not keep a program alive that holds nothing", async () => {
    const code = `
      const { connect } = await import(${JSON.stringify(pathToFileURL(BUILT).href)});
      const locks = await connect(process.argv[1], { renewIn: "worker" });
      const hold = await locks.mutex("text").acquire({ leaseMs: 1500 });
      const event = await new Promise((tell) => locks.on("renewed", tell));
      await hold.release();
      console.log(event.id === hold.id);`;
    const running = promisify(execFile)(process.execPath, ["--input-type=module", "-e", code, urlOf("sqlite")], {
      timeout: 60_000,
    });
    expect((await running).stdout).toBe("true\n");
  });

  test("a program that has closed ends, long before its thread would have been cut off", async () => {
    const code = `
      const { connect } = await import(${JSON.stringify(pathToFileURL(BUILT).href)});
      const locks = await connect(process.argv[1], { renewIn: "worker", callTimeoutMs: 3_600_000 });
      await locks.mutex("closed").acquire();
      await locks.close();
      console.log("closed");`;
    const running = promisify(execFile)(process.execPath, ["--input-type=module", "-e", code, urlOf("sqlite")], {
      timeout: 60_000,
    });
    expect((await running).stdout).toBe("closed\n");
  });

  test("closing ends the thread, long before it would be cut off, and is no reason to warn", async () => {
    const { locks, thread } = await here(urlOf("redis"), 600_000);
    await locks.mutex("closing").acquire({ leaseMs: 1_000 });
    const warnings: unknown[] = [];
    locks.on("warning", (warning) => void warnings.push(warning));
    await locks.close();
    expect(thread.threadId).toBe(-1);
    expect(warnings).toEqual([]);
  });

  test("what the store says to the thread is told here: that a hold is gone, and that there is no answer", async () => {
    const server = await startRedis();
    onTestFinished(() => server.running.stop());
    const { locks } = await here(server.url);
    const hold = await locks.mutex("removed").acquire({ leaseMs: 1_500 });
    await next(locks, "renewed");
    await command(server.port, "FLUSHALL");
    expect(await next(locks, "lost")).toMatchObject({ id: hold.id, reason: "gone" });
    await locks.mutex("unheard").acquire({ leaseMs: 1_500 });
    // The id that is gone may still be on its way out of the store: that release fails too, and says so first.
    const unavailable = new Promise((tell) =>
      locks.on("unavailable", (event) => event.doing === "renewing" && tell(event)),
    );
    await server.running.stop();
    expect(await unavailable).toMatchObject({ engine: "redis", cause: expect.any(Error) });
  });

  test("where the thread cannot connect, connecting fails, and the thread has ended", async () => {
    const proxy = await Proxy.to(Number(new URL(urlOf("redis")).port));
    onTestFinished(() => proxy.close());
    const starting = nextThread();
    void starting.then(() => proxy.shutOutNew());
    await expect(here(`redis://127.0.0.1:${proxy.port}`)).rejects.toThrow(/connecting the thread that renews/);
    expect((await starting).threadId).toBe(-1);
  });

  test("where the thread ends before it is connected, connecting fails", async () => {
    void nextThread().then((thread) => thread.terminate());
    await expect(here(urlOf("redis"))).rejects.toThrow(/connecting the thread that renews/);
  });

  test("what cannot be renewed by another thread is refused, with the reason", async () => {
    const { port, running } = await startZooKeeper();
    await expect(connect(`zookeeper://127.0.0.1:${port}`, { renewIn: "worker" })).rejects.toThrow(
      /session of its connection/,
    );
    await running.stop();
    await expect(connect("memory:", { renewIn: "worker" })).rejects.toThrow(UnsupportedError);
    await expect(connect(memoryEngine(), { renewIn: "worker" })).rejects.toThrow(/cannot be sent to another thread/);
    await expect(connect("memory:", { stallMs: 1000 })).rejects.toThrow(InvalidOptionError);
    await expect(connect("memory:", { renewIn: "both" as "main" })).rejects.toThrow(InvalidOptionError);
  });

  test("an option that is a function is refused by its name: what stands in the function is not shown", async () => {
    const credentials = async () => ({ username: "postgres", password: "in-the-source" });
    const refused = connect(urlOf("postgres").replace("postgres@", ""), { renewIn: "worker", credentials });
    const error: unknown = await refused.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(InvalidOptionError);
    expect(inspect(error)).toMatch(/credentials cannot be sent to another thread/);
    expect(inspect(error)).not.toContain("in-the-source");
  });

  test("certificates may be bytes", async () => {
    const { cert, key, remove } = selfSigned();
    const etcd = await startEtcd(1, [], { ca: cert, cert, key });
    onTestFinished(async () => {
      await etcd.stop();
      remove();
    });
    const built = (await import(pathToFileURL(BUILT).href)) as { connect: typeof connect };
    const locks = await built.connect(etcd.url, { ...worker, tls: { ca: readFileSync(cert) } });
    onTestFinished(() => locks.close());
    const hold = await locks.mutex("bytes").acquire(acquire);
    expect(await next(locks, "renewed")).toMatchObject({ id: hold.id });
  });
});
