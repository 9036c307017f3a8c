import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Etcd3 } from "etcd3";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  EngineRefusedError,
  EngineUnavailableError,
  LockLostError,
  MisuseError,
  UnsupportedError,
} from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import { etcdClient, etcdEngine, type HeldCompare, openEtcd, whileHeld } from "../../src/engines/etcd/index.js";
import type { KeyValue, TxnRequest } from "../../src/engines/etcd/messages.js";
import { intercept } from "../../src/testing/intercept.js";
import { Child } from "../process/child.js";
import { type EtcdCluster, etcdctl, type Member, restart, startEtcd } from "../servers/etcd.js";
import { programsOf } from "../servers/packages.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import {
  claimOf,
  countedOn,
  engineOn,
  lateWatchesOn,
  leftovers,
  listening,
  locksOn,
  ownCluster,
  standing,
  states,
  waiters,
} from "./etcd-rig.js";
import { renewed } from "./rig.js";

let cluster: EtcdCluster;
beforeAll(async () => void (cluster = await startEtcd()), 60_000);
afterAll(() => cluster?.stop());

const member = (of = cluster): Member => {
  const [first] = of.members;
  if (first === undefined) throw new Error("no member");
  return first;
};

describe("what it costs", () => {
  test("pitfall 42: an uncontended lock is one transaction to take and one to give back, under one lease for all", async () => {
    const { engine, counts } = await countedOn(cluster.url);
    const locks = await locksOn(engine);
    await (await locks.mutex("warm").acquire()).release();
    const before = { ...counts.calls };
    for (let n = 0; n < 20; n += 1) await (await locks.mutex(`m${n}`).acquire()).release();
    expect((counts.calls.txn ?? 0) - (before.txn ?? 0)).toBe(40);
    expect(counts.calls.leaseGrant).toBe(before.leaseGrant);
    expect(counts.sent, "nothing is watched that ends at once").toBe(0);
  });

  test("pitfall 15: a release wakes one waiter: as many messages with 200 waiters as with 10", async () => {
    const cost = async (queue: number): Promise<number> => {
      const name = `queue of ${queue}`;
      const { engine, counts } = await countedOn(cluster.url);
      const events = listening(engine);
      const holder = claimOf(name, { leaseMs: 60_000 });
      await engine.claim(holder);
      const waiters = Array.from({ length: queue }, () => claimOf(name, { leaseMs: 60_000 }));
      for (const [n, claim] of waiters.entries()) {
        await engine.claim(claim);
        // Those that wait already must not end on a machine where this takes long.
        if (n % 20 === 0) await engine.renew(waiters.slice(0, n + 1));
      }
      const total = (): number => Object.values(counts.calls).reduce((a, b) => a + b) + counts.sent + counts.events;
      let before = -1;
      // Each claim is watched from a while on, which takes messages too.
      await until("all of them are watched", async () => {
        for (const { kind } of await engine.renew(waiters)) expect(kind).toBe("queued");
        before = total();
        await sleep(600);
        return total() === before;
      });
      let last = holder;
      for (const [n, next] of waiters.slice(0, 5).entries()) {
        await engine.release(last);
        await until("the next one is told", () => events.filter(({ kind }) => kind === "granted").length === n + 1);
        last = next;
      }
      await sleep(100);
      const cost = total() - before;
      await Promise.all(waiters.map((claim) => engine.release(claim)));
      return cost;
    };
    const [few, many] = [await cost(10), await cost(200)];
    expect(many).toBeLessThanOrEqual(few + 2);
  }, 120_000);

  test("the records of changed capacities cost one keep-alive each, however many names were resized", async () => {
    const { engine, counts } = await countedOn(cluster.url);
    const claims = ["resized 1", "resized 2", "resized 3"].map((name) => claimOf(name, { capacity: 2 }));
    for (const claim of claims) await engine.claim(claim);
    for (const { name } of claims) expect(await engine.setCapacity(name, 2, 5)).toEqual({ kind: "set" });
    const before = counts.calls.keepAlive ?? 0;
    for (let n = 0; n < 5; n += 1) for (const { kind } of await engine.renew(claims)) expect(kind).toBe("granted");
    // One for the lease of the claims at each renewal, and one for each record at the first.
    expect((counts.calls.keepAlive ?? 0) - before).toBe(5 + 3);
    for (const claim of claims) await engine.release(claim);
  });

  test("pitfall 47: nothing is left in the store, keys or leases, when everybody has gone", async () => {
    const mine = await ownCluster();
    const locks = await locksOn(mine.url, { leaseMs: 2000 });
    await Promise.all(
      Array.from({ length: 20 }, async (_, n) => {
        await locks.mutex(`m${n % 5}`).using(() => {});
        await locks.semaphore("s", 3).using({ permits: 1 + (n % 3) }, () => sleep(5));
        await locks.readWrite("rw").read.using(() => sleep(5));
        await locks.readWrite("rw").write.using(() => {});
      }),
    );
    const resized = locks.semaphore("resized", 2);
    const hold = await resized.acquire();
    await resized.resize(5);
    await hold.release();
    const aborted = new AbortController();
    const held = await locks.mutex("left").acquire();
    const waiting = locks.mutex("left").acquire({ signal: aborted.signal });
    await until("it waits", async () => (await waiters(locks, "left")) === 1);
    aborted.abort();
    await expect(waiting).rejects.toThrow();
    await held.release();
    await until("the claim is withdrawn", async () => (await states(locks)).length === 0);
    expect((await leftovers(mine)).keys.filter((key) => !key.includes("/%/tombstone/"))).toEqual([]);
    await locks.close();
    // Tombstones last one minute at least and two at most; their lease is all that is left. One that was granted and not answered in time
    // ends by itself.
    await until("the other leases have ended", async () => (await leftovers(mine)).leases.length <= 1);
    for (const lease of (await leftovers(mine)).leases) await etcdctl(member(mine), "lease", "revoke", lease);
    expect(await leftovers(mine)).toEqual({ keys: [], leases: [] });
  }, 60_000);
});

describe("leases that are shared", () => {
  test("pitfall 31: a claim nobody keeps alive ends although others of its length are renewed under the same lease", async () => {
    const engine = await engineOn(cluster.url);
    const [kept, left] = [claimOf("kept", { leaseMs: 6000 }), claimOf("left", { leaseMs: 6000 })];
    await engine.claim(kept);
    await engine.claim(left);
    await until("it has ended", async () => {
      expect((await engine.renew([kept]))[0]?.kind).toBe("granted");
      return (await states(engine, { name: "left" })).length === 0;
    });
    expect((await engine.renew([left]))[0]?.kind).toBe("gone");
    await engine.release(kept);
  });

  test("a lease that ended while nobody used it is asked for anew, behind the caller's back", async () => {
    const client = await etcdClient(cluster.url);
    onTestFinished(() => client.close());
    const engine = await engineOn(cluster.url);
    const first = claimOf("idle");
    await engine.claim(first);
    const { lease } = await standing(client, first);
    await client.call("leaseRevoke", { ID: lease });
    expect((await engine.claim(claimOf("idle"))).kind).toBe("granted");
    expect((await engine.renew([first]))[0]?.kind).toBe("gone");
  });

  test("pitfall 41: two claims of one client on one lease exclude each other", async () => {
    const engine = await engineOn(cluster.url);
    const [one, two] = [claimOf("same"), claimOf("same")];
    expect((await engine.claim(one)).kind).toBe("granted");
    expect((await engine.claim(two)).kind).toBe("queued");
    expect(await engine.release(two)).toBe("released");
    expect((await engine.renew([one]))[0]?.kind).toBe("granted");
    await engine.release(one);
  });

  test("a hold is told at once when its lease is revoked or its key deleted by hand", async () => {
    const locks = await locksOn(cluster.url);
    const hold = await locks.mutex("by hand").acquire({ leaseMs: 60_000 });
    await sleep(400);
    await etcdctl(member(), "del", "holdfast/by hand/", "--prefix");
    // A renewal, which would tell it too, is due after twenty seconds.
    await until("it is told", () => hold.state === "lost", 15_000);
    expect(() => hold.throwIfLost()).toThrow(LockLostError);
  });
});

describe("others on the same name", () => {
  test("etcdctl lock excludes ours and is excluded by ours", async () => {
    const locks = await locksOn(cluster.url);
    const folder = mkdtempSync(join(tmpdir(), "holdfast-counter-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, "counter");
    writeFileSync(file, "0");
    const ROUNDS = 15;
    const theirs = async (): Promise<void> => {
      // Read, wait, write: whoever comes between is overwritten.
      const script = 'n=$(cat "$1"); sleep 0.01; echo $((n + 1)) > "$1"';
      for (let n = 0; n < ROUNDS; n += 1) {
        await etcdctl(member(), "lock", "holdfast/counter%2Fshared", "--", "sh", "-c", script, "sh", file);
      }
    };
    const ours = async (): Promise<void> => {
      for (let n = 0; n < ROUNDS; n += 1) {
        await locks.mutex("counter/shared").using(async (hold) => {
          const value = Number(readFileSync(file, "utf8"));
          await sleep(10);
          hold.throwIfLost();
          writeFileSync(file, `${value + 1}`);
        });
      }
    };
    await Promise.all([theirs(), theirs(), ours(), ours()]);
    expect(Number(readFileSync(file, "utf8"))).toBe(4 * ROUNDS);
  }, 60_000);

  test("a lock held by etcdctl shows in inspect, blocks readers and permits too, and passes on when it ends", async () => {
    const locks = await locksOn(cluster.url);
    const foreign = lockedByEtcdctl("holdfast/foreign");
    await until("etcdctl holds it", async () => (await states(locks, { name: "foreign" })).length === 1);
    expect(await locks.readWrite("foreign").read.tryAcquire()).toBeNull();
    expect(await locks.semaphore("foreign", 5).tryAcquire()).toBeNull();
    const waiting = locks.mutex("foreign").acquire();
    await until("ours waits", async () => (await waiters(locks, "foreign")) === 1);
    foreign.kill("SIGTERM");
    const hold = await waiting;
    expect(hold.token).toBeGreaterThan(0);
    await hold.release();
  });
});

function lockedByEtcdctl(name: string): ChildProcess {
  const { etcdctl: program = "" } = programsOf("etcd");
  const args = ["--endpoints", `127.0.0.1:${member().port}`, "lock", name];
  const child = spawn(program, args, { stdio: "ignore", env: { ...process.env, ETCDCTL_API: "3" } });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

describe("the wire", () => {
  test("pitfall 2: a client cut off past its lease is told before the other one is granted", async () => {
    const proxy = await Proxy.to(member().port);
    onTestFinished(() => proxy.close());
    const cut = await locksOn(`etcd://127.0.0.1:${proxy.port}`, { leaseMs: 3000, callTimeoutMs: 1000 });
    const other = await locksOn(cluster.url);
    const hold = await cut.mutex("cut").acquire();
    const waiting = other.mutex("cut").acquire();
    await sleep(200);
    proxy.stall();
    const next = await waiting;
    // By its state, which compares clocks: on a busy machine the signal's timer may stand behind the grant in one phase.
    expect(hold.state).toBe("lost");
    expect(next.token).toBeGreaterThan(hold.token);
    await next.release();
  }, 30_000);

  test("pitfall 14: a push that is lost costs one heartbeat, not the lease", async () => {
    const proxy = await Proxy.to(member().port);
    onTestFinished(() => proxy.close());
    let answered = 0;
    const engine = intercept(await engineOn(`etcd://127.0.0.1:${proxy.port}`), {
      async renew(call) {
        const answers = await call();
        answered += 1;
        return answers;
      },
    });
    const waiting = await locksOn(engine, { leaseMs: 60_000 });
    const holding = await locksOn(cluster.url);
    const hold = await holding.mutex("lost push").acquire();
    const next = waiting.mutex("lost push").acquire();
    await until("it waits", async () => (await waiters(holding, "lost push")) === 1);
    proxy.cut();
    await hold.release();
    await sleep(300);
    proxy.heal();
    const before = answered;
    const served = await next;
    expect(answered - before).toBeLessThanOrEqual(2);
    await served.release();
  }, 60_000);

  test("pitfall 43: after a reconnect every waiter is watched again, by the new stream alone", async () => {
    const proxy = await Proxy.to(member().port);
    onTestFinished(() => proxy.close());
    let answered = 0;
    let deaf = false;
    const engine = intercept(await engineOn(`etcd://127.0.0.1:${proxy.port}`), {
      async renew(call) {
        const answers = deaf ? await new Promise<never>(() => {}) : await call();
        answered += 1;
        return answers;
      },
    });
    const waiting = await locksOn(engine, { leaseMs: 60_000 });
    const holding = await locksOn(cluster.url);
    const holds = await Promise.all([0, 1, 2].map((n) => holding.mutex(`again ${n}`).acquire()));
    const nexts = [0, 1, 2].map((n) => waiting.mutex(`again ${n}`).acquire());
    await until("all wait", async () =>
      (await states(holding, { prefix: "again" })).every((s) => s.waiters.length === 1),
    );
    proxy.cut();
    await sleep(200);
    const before = answered;
    proxy.heal();
    await until("it is connected, and has asked how things stand", () => answered > before);
    // From here on nobody asks: whoever is served was told.
    deaf = true;
    await Promise.all(holds.map((hold) => hold.release()));
    const served = await Promise.all(nexts);
    deaf = false;
    expect(new Set(served.map((hold) => hold.name)).size).toBe(3);
    for (const hold of served) await hold.release();
  }, 60_000);

  test("pitfall 17: a wait that is left while the wire is down is withdrawn when it is back", async () => {
    const proxy = await Proxy.to(member().port);
    onTestFinished(() => proxy.close());
    const leaving = await locksOn(`etcd://127.0.0.1:${proxy.port}`, { leaseMs: 20_000, callTimeoutMs: 1000 });
    const holding = await locksOn(cluster.url);
    const hold = await holding.mutex("leave").acquire();
    const waiting = leaving.mutex("leave").acquire({ waitMs: 6000 });
    await until("it waits", async () => (await waiters(holding, "leave")) === 1);
    proxy.stall();
    await expect(waiting).rejects.toThrow();
    expect(await waiters(holding, "leave")).toBe(1);
    proxy.heal();
    await until("it is withdrawn", async () => (await waiters(holding, "leave")) === 0);
    await hold.release();
  }, 60_000);

  test("a server that is away is told within the time limit, and used again when it is back", async () => {
    const mine = await ownCluster();
    const locks = await locksOn(mine.url, { callTimeoutMs: 1500 });
    await member(mine).running.end();
    await expect(locks.mutex("away").acquire({ waitMs: 1000 })).rejects.toThrow(EngineUnavailableError);
    await expect(openEtcd(mine.url, { callTimeoutMs: 500 })).rejects.toThrow(EngineUnavailableError);
    await restart(member(mine));
    await (await locks.mutex("away").acquire({ waitMs: 10_000 })).release();
  }, 40_000);

  test("a hold survives a restart of the server within its lease", async () => {
    const mine = await ownCluster();
    const locks = await locksOn(mine.url, { leaseMs: 30_000, callTimeoutMs: 1000 });
    const hold = await locks.mutex("restart").acquire();
    await member(mine).running.end();
    await sleep(1000);
    await restart(member(mine));
    await renewed(locks, 1);
    expect(hold.state).toBe("held");
    hold.throwIfLost();
    await hold.release();
  }, 120_000);
});

describe("waiting", () => {
  const compact = async (): Promise<void> => {
    // Twice: a watch that begins at the very revision that is compacted is not cancelled.
    for (const value of ["x", "y"]) await etcdctl(member(), "put", "elsewhere", value);
    const [, revision = ""] = /"revision":(\d+)/.exec(await etcdctl(member(), "get", "elsewhere", "-w", "json")) ?? [];
    await etcdctl(member(), "compact", revision);
  };

  test("compaction during a long wait disturbs no watch that stands", async () => {
    const [holding, waiting] = [await engineOn(cluster.url), await engineOn(cluster.url)];
    const events = listening(waiting);
    const [one, two, three] = [claimOf("compact"), claimOf("compact"), claimOf("compact")];
    await holding.claim(one);
    await waiting.claim(two);
    await waiting.claim(three);
    await compact();
    await holding.release(one);
    await until("the first is told", () => events.some((event) => event.kind === "granted" && event.id === two.id));
    await compact();
    await waiting.release(two);
    await until("the second is told", () => events.some((event) => event.kind === "granted" && event.id === three.id));
    await waiting.release(three);
  });

  test("compaction overtakes watches on their way: they are cancelled, their owners look again and are granted in order", async () => {
    const holding = await engineOn(cluster.url);
    const { engine: waiting, letGo, cancelled } = await lateWatchesOn(cluster.url);
    const events = listening(waiting);
    const heard = (kind: string): string[] => events.flatMap((one) => (one.kind === kind && "id" in one ? one.id : []));
    const queue = [claimOf("late"), claimOf("late"), claimOf("late")] as const;
    const [holder, ...waiters] = queue;
    await holding.claim(holder);
    for (const claim of waiters) expect((await waiting.claim(claim)).kind).toBe("queued");
    await compact();
    letGo();
    await until("etcd has cancelled them", () => cancelled() >= waiters.length);
    await until("each is asked to look", () => waiters.every(({ id }) => heard("wake").includes(id)));
    // As the core does when it is woken. Nobody polls from here on: only a watch that stands can tell them.
    for (const answer of await waiting.renew(waiters)) expect(answer.kind).toBe("queued");
    for (const [n, before] of queue.slice(0, -1).entries()) {
      await (n === 0 ? holding : waiting).release(before);
      await until("the next is told", () => heard("granted").length === n + 1);
    }
    expect(heard("granted")).toEqual(waiters.map(({ id }) => id));
    await waiting.release(queue[2]);
  });

  test("pitfall 56: any permit holder that leaves makes room for the first waiter, and the next is then the first", async () => {
    const [a, b] = [await engineOn(cluster.url), await engineOn(cluster.url)];
    const events = listening(b);
    const ask = { capacity: 3, leaseMs: 60_000 };
    const [one, two, three] = [claimOf("permits", ask), claimOf("permits", ask), claimOf("permits", ask)];
    for (const claim of [one, two, three]) expect((await a.claim(claim)).kind).toBe("granted");
    const [first, second] = [claimOf("permits", ask), claimOf("permits", ask)];
    for (const claim of [first, second]) expect((await b.claim(claim)).kind).toBe("queued");
    const told = (id: string): boolean => events.some((event) => event.kind === "granted" && event.id === id);
    await a.release(two);
    await until("the first waiter is told", () => told(first.id), 5000);
    await a.release(one);
    await until("the second waiter is told", () => told(second.id), 5000);
    for (const claim of [three, first, second]) await b.release(claim);
  });

  test("pitfall 56: a holder that makes room for two waiters at once is followed by both", async () => {
    const [a, b] = [await engineOn(cluster.url), await engineOn(cluster.url)];
    const events = listening(b);
    const ask = (units: number) => claimOf("room for two", { units, capacity: 3, leaseMs: 60_000 });
    const [stays, leaves, first, second] = [ask(1), ask(2), ask(1), ask(1)];
    for (const claim of [stays, leaves]) expect((await a.claim(claim)).kind).toBe("granted");
    for (const claim of [first, second]) expect((await b.claim(claim)).kind).toBe("queued");
    // Nobody polls: the second is told by a change of the first, behind which nobody waits any more.
    await a.release(leaves);
    for (const { id } of [first, second]) {
      const told = (): boolean => events.some((event) => event.kind === "granted" && event.id === id);
      await until("it is told", told, 5000);
    }
    for (const claim of [stays, first, second]) await b.release(claim);
  });

  test("pitfall 56: the first to wait after a capacity was lowered is told when any of the many holders makes room", async () => {
    const [a, b] = [await engineOn(cluster.url), await engineOn(cluster.url)];
    const events = listening(b);
    const holders = Array.from({ length: 6 }, () => claimOf("lowered", { capacity: 6, leaseMs: 60_000 }));
    for (const claim of holders) expect((await a.claim(claim)).kind).toBe("granted");
    expect(await a.setCapacity("lowered", 6, 2)).toEqual({ kind: "set" });
    const ask = { capacity: 2, leaseMs: 60_000 };
    const [first, second] = [claimOf("lowered", ask), claimOf("lowered", ask)];
    for (const claim of [first, second]) expect((await b.claim(claim)).kind).toBe("queued");
    // Nobody polls: only a watch can tell. The youngest holder, which stands before them, stays.
    const told = (id: string): boolean => events.some((event) => event.kind === "granted" && event.id === id);
    for (const claim of holders.slice(0, 5)) await a.release(claim);
    await until("the first waiter is told", () => told(first.id), 5000);
    expect(told(second.id)).toBe(false);
    await b.release(first);
    await until("the second waiter is told", () => told(second.id), 5000);
    for (const claim of [second, ...holders.slice(5)]) await b.release(claim);
  });

  test("a capacity is lowered under 97 holders, refused under more with advice, and raised under any number", async () => {
    const engine = await engineOn(cluster.url);
    const claims = Array.from({ length: 98 }, () => claimOf("crowd", { capacity: 200, leaseMs: 60_000 }));
    for (const claim of claims) expect((await engine.claim(claim)).kind).toBe("granted");
    const refused = await engine.setCapacity("crowd", 200, 150).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(EngineRefusedError);
    expect(String(refused)).toMatch(/98 holders.*97/);
    expect(String(refused)).toMatch(/Lower the capacity when fewer hold it/);
    expect(await engine.setCapacity("crowd", 200, 300)).toEqual({ kind: "set" });
    await engine.release(claims.pop() ?? claimOf("crowd"));
    expect(await engine.setCapacity("crowd", 300, 50)).toEqual({ kind: "set" });
    const late = claimOf("crowd", { capacity: 50, wait: false });
    expect((await engine.claim(late)).kind, "97 hold on, and there is no room").toBe("busy");
    for (const { kind } of await engine.renew(claims)) expect(kind).toBe("granted");
    await Promise.all(claims.map((claim) => engine.release(claim)));
  }, 60_000);

  test("a lower capacity drops every waiter that never fits, also when it is stopped half way and sent again", async () => {
    const client = await etcdClient(cluster.url);
    onTestFinished(() => client.close());
    let failing = 1;
    const onlyRemoves = (request: object): boolean =>
      (request as TxnRequest).success?.every((op) => op.request_delete_range !== undefined) === true;
    const engine = await etcdEngine({
      call: (name, request) =>
        onlyRemoves(request) && failing-- > 0
          ? Promise.reject(new Error("the wire is cut"))
          : client.call(name, request),
      keepAlive: (lease) => client.keepAlive(lease),
      watch: (heard, ended) => client.watch(heard, ended),
      close: () => {},
    });
    onTestFinished(() => engine[Symbol.asyncDispose]());
    const holder = claimOf("large", { capacity: 5, units: 5 });
    await engine.claim(holder);
    const large = Array.from({ length: 110 }, () => claimOf("large", { capacity: 5, units: 3 }));
    for (const claim of large) expect((await engine.claim(claim)).kind).toBe("queued");
    const small = claimOf("large", { capacity: 5, units: 1 });
    await engine.claim(small);
    await expect(engine.setCapacity("large", 5, 2)).rejects.toThrow("the wire is cut");
    expect(await engine.setCapacity("large", 5, 2)).toEqual({ kind: "set" });
    for (const { kind } of await engine.renew(large)) expect(kind).toBe("gone");
    await engine.release(holder);
    expect((await engine.renew([small]))[0]?.kind, "nobody is in its way").toBe("granted");
    await engine.release(small);
  }, 60_000);

  test("readers behind a writer are told together when it leaves or becomes a reader", async () => {
    const engine = await engineOn(cluster.url);
    const events = listening(engine);
    const [a, b] = [await locksOn(cluster.url), await locksOn(engine, { leaseMs: 60_000 })];
    const writer = await a.readWrite("doc").write.acquire();
    const readers = Array.from({ length: 5 }, () => b.readWrite("doc").read.acquire());
    await until("they wait", async () => (await waiters(a, "doc")) === 5);
    await writer.downgrade();
    const held = await Promise.all(readers);
    const told = (): Set<unknown> => new Set(events.map((event) => (event.kind === "granted" ? event.id : "")));
    await until("each of them was told by the store", () => held.every(({ id }) => told().has(id)));
    for (const hold of [...held, writer]) await hold.release();
  });

  test("pitfall 1: a waiter whose claim ended is not granted when its turn comes", async () => {
    const [a, b] = [await engineOn(cluster.url), await engineOn(cluster.url)];
    const events = listening(b);
    const [holder, waiter] = [claimOf("ended"), claimOf("ended")];
    await a.claim(holder);
    await b.claim(waiter);
    const client = await etcdClient(cluster.url);
    onTestFinished(() => client.close());
    await etcdctl(member(), "del", (await standing(client, waiter)).key);
    await a.release(holder);
    await until("it is told that it lost its position", () => events.some((event) => event.kind === "lost"));
    expect(events.filter((event) => event.kind === "granted")).toEqual([]);
    expect((await b.renew([waiter]))[0]?.kind).toBe("gone");
  });

  test("pitfall 1: a waiter that is next goes by what one watch tells of both: told late, all at once, it is not misled", async () => {
    const holding = await engineOn(cluster.url);
    const client = await etcdClient(cluster.url);
    onTestFinished(() => client.close());
    const remove = (...gone: readonly KeyValue[]): Promise<object> =>
      client.call("txn", { success: gone.map(({ key }) => ({ request_delete_range: { key } })) });
    const ways: readonly [string, (own: KeyValue, before: KeyValue) => Promise<unknown>][] = [
      ["granted", async (_own, before) => remove(before)],
      ["lost", async (own, before) => [await remove(own), await remove(before)]],
      ["lost", async (own, before) => remove(own, before)],
      ["lost", async (own, before) => [await remove(before), await remove(own)]],
    ];
    for (const [told, leave] of ways) {
      const { engine: waiting, letGo } = await lateWatchesOn(cluster.url);
      const events = listening(waiting);
      const [holder, waiter] = [claimOf("told late"), claimOf("told late")];
      await holding.claim(holder);
      expect((await waiting.claim(waiter)).kind).toBe("queued");
      const before = await standing(client, holder);
      await leave(await standing(client, waiter), before);
      letGo();
      await until("it is told", () => events.some((event) => "id" in event && event.id === waiter.id));
      expect(events.map(({ kind }) => kind)).toEqual([told]);
      await waiting.release(waiter);
      await holding.release(holder);
    }
  });

  test("pitfall 56: who is next looks at all that hold when the capacity was raised before its turn came", async () => {
    const holding = await engineOn(cluster.url);
    const { engine: waiting, letGo } = await lateWatchesOn(cluster.url);
    const events = listening(waiting);
    const [holder, next, last] = [claimOf("raised"), claimOf("raised", { exact: true }), claimOf("raised")];
    await holding.claim(holder);
    expect((await waiting.claim(next)).kind).toBe("queued");
    expect((await holding.claim(last)).kind).toBe("queued");
    expect(await holding.setCapacity("raised", 1, 2)).toEqual({ kind: "set" });
    await holding.release(holder);
    letGo();
    await until("it is told", () => events.length > 0);
    const [event] = events;
    if (event?.kind !== "granted") throw new Error(`it is ${event?.kind}`);
    const renewed = (await holding.renew([last]))[0];
    if (renewed?.kind !== "granted") throw new Error(`the last is ${renewed?.kind}`);
    expect(event.live, "both hold").toEqual([event.token, renewed.token]);
    for (const claim of [next, last]) await waiting.release(claim);
  });

  test("pitfall 15: who is next is granted by the event itself, without asking, whoever joins behind it", async () => {
    const holding = await engineOn(cluster.url);
    const { engine: waiting, counts } = await countedOn(cluster.url);
    const events = listening(waiting);
    const [holder, waiter] = [claimOf("by event"), claimOf("by event")];
    const behind = Array.from({ length: 5 }, () => claimOf("by event"));
    await holding.claim(holder);
    expect((await waiting.claim(waiter)).kind).toBe("queued");
    for (const claim of behind) await holding.claim(claim);
    await sleep(400);
    const before = { ...counts.calls };
    await holding.release(holder);
    await until("it is told", () => events.length > 0);
    expect(events).toMatchObject([{ kind: "granted", id: waiter.id }]);
    expect(counts.calls).toEqual(before);
    for (const claim of [waiter, ...behind]) await holding.release(claim);
  });

  test("a thousand waiters are served in the order in which they came", async () => {
    const locks = await locksOn(cluster.url, { leaseMs: 60_000, callTimeoutMs: 20_000 });
    const hold = await locks.mutex("queue").acquire();
    let queued = 0;
    locks.on("queued", () => (queued += 1));
    const served: number[] = [];
    const all = Array.from({ length: 1000 }, async () => {
      const next = await locks.mutex("queue").acquire();
      served.push(next.token);
      await next.release();
    });
    await until("all wait", () => queued === 1000, 90_000);
    const [state] = await states(locks, { name: "queue" });
    expect(state?.waiters).toHaveLength(1000);
    await hold.release();
    await Promise.all(all);
    expect(served).toHaveLength(1000);
    expect(served).toEqual(served.toSorted((a, b) => a - b));
  }, 180_000);
});

describe("processes", () => {
  test("a holder that is killed frees its lock when its lease ends, and not before", async () => {
    const child = new Child({ url: cluster.url, name: "killed", acquire: { leaseMs: 3000 } });
    const { token } = await child.tells("held");
    const locks = await locksOn(cluster.url);
    child.signal("SIGKILL");
    await child.exited();
    const start = performance.now();
    // By the store, after that: so many whole seconds are left of the dead one's lease, or it is over already.
    const leftMs = (await states(locks, { name: "killed" }))[0]?.holders[0]?.leftMs ?? 0;
    const hold = await locks.mutex("killed").acquire();
    expect(performance.now() - start).toBeGreaterThan(leftMs - 1000);
    expect(hold.token).toBeGreaterThan(Number(token));
    await hold.release();
  }, 30_000);

  test("a holder that was stopped past its lease finds that it lost, by its clock", async () => {
    const child = new Child({ url: cluster.url, name: "stopped", acquire: { leaseMs: 3000 } });
    const { token } = await child.tells("held");
    child.signal("SIGSTOP");
    const locks = await locksOn(cluster.url);
    const hold = await locks.mutex("stopped").acquire();
    expect(hold.token).toBeGreaterThan(Number(token));
    child.signal("SIGCONT");
    child.say("check");
    expect(await child.tells("checked")).toMatchObject({ held: false });
    hold.throwIfLost();
    await hold.release();
    child.say("exit");
    await child.exited();
  }, 30_000);
});

describe("a store that is not what it was", () => {
  test("a learner has no vote: a server with one guarantees no more than a server alone", async () => {
    const mine = await ownCluster();
    expect((await engineOn(mine.url)).guarantees.exclusion).toBe("single-server");
    await etcdctl(member(mine), "member", "add", "learner", "--learner", "--peer-urls", "http://127.0.0.1:9");
    expect((await engineOn(mine.url)).guarantees.exclusion).toBe("single-server");
  });

  test("pitfall 33: after a restore from a backup, whose revisions are lower, nothing is granted and holders are told", async () => {
    const mine = await ownCluster();
    const backup = join(member(mine).folder, "backup");
    await etcdctl(member(mine), "snapshot", "save", backup);
    const locks = await locksOn(mine.url, { callTimeoutMs: 1000 });
    for (let n = 0; n < 10; n += 1) await (await locks.mutex("old").acquire()).release();
    const hold = await locks.mutex("held").acquire({ leaseMs: 60_000 });
    await member(mine).running.end();
    rmSync(join(member(mine).folder, "data"), { recursive: true });
    await etcdctl(
      member(mine),
      "snapshot",
      "restore",
      backup,
      "--data-dir",
      join(member(mine).folder, "data"),
      ...restored(mine),
    );
    await restart(member(mine));
    const refused = await locks
      .mutex("old")
      .acquire({ waitMs: 10_000 })
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(EngineRefusedError);
    expect(String(refused)).toMatch(/went back|another cluster/);
    await until("the holder is told", () => hold.state === "lost");
  }, 60_000);

  test("a quota that is used up refuses claims with advice, and lets holders go on and let go", async () => {
    const mine = await ownCluster(1, ["--quota-backend-bytes", String(2 ** 21)]);
    const locks = await locksOn(mine.url);
    const hold = await locks.mutex("full").acquire({ leaseMs: 12_000 });
    const engine = await engineOn(mine.url);
    const unsettled = claimOf("unsettled", { leaseMs: 120_000 });
    await engine.claim(unsettled);
    for (let n = 0; n < 200; n += 1) {
      const filled = await etcdctl(member(mine), "put", `fill${n}`, "x".repeat(100_000)).catch(() => "full");
      if (filled === "full") break;
    }
    const refused = await locks
      .mutex("other")
      .acquire({ waitMs: 5000 })
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(EngineRefusedError);
    expect(String(refused)).toMatch(/quota/);
    // Keep-alives need no space.
    await renewed(locks, 4);
    hold.throwIfLost();
    await hold.release();
    expect(await engine.release(unsettled)).toBe("released");
  }, 60_000);
});

function restored(of: EtcdCluster): string[] {
  const { args, name } = member(of);
  const value = (flag: string): string => args[args.indexOf(flag) + 1] ?? "";
  const peers = value("--initial-advertise-peer-urls");
  return ["--name", name, "--initial-cluster", value("--initial-cluster"), "--initial-advertise-peer-urls", peers];
}

describe("beside it", () => {
  test("whileHeld lets a transaction of the package etcd3 through while the hold lives, and not afterwards", async () => {
    const client = new Etcd3({ hosts: `http://127.0.0.1:${member().port}` });
    onTestFinished(() => client.close());
    const locks = await locksOn(cluster.url, { tokenBase: 1000 });
    const hold = await locks.mutex("a/b").acquire();
    const held = whileHeld(hold);
    // Both ways to say it there: as the messages are, and with its builder.
    const put = { request_put: { key: Buffer.from("guarded"), value: Buffer.from("x") } };
    const txn = async (compare: HeldCompare): Promise<boolean> =>
      // oxlint-disable-next-line typescript/no-unsafe-enum-assignment -- the numbers that etcd gives them, whoever names them
      (await client.kv.txn({ compare: [compare], success: [put] })).succeeded;
    const raw = (): Promise<boolean> => txn(held);
    const built = async (): Promise<boolean> => {
      const compared = client.if(held.key, "Create", "==", Number(held.create_revision));
      return (await compared.then(client.put("guarded").value("y")).commit()).succeeded;
    };
    expect([await raw(), await built()]).toEqual([true, true]);
    await hold.release();
    expect([await raw(), await built()]).toEqual([false, false]);
    expect(await txn(whileHeld(hold)), "nor asked for afterwards").toBe(false);
    const next = await locks.mutex("a/b").acquire();
    expect(whileHeld(next).key, "which stands at the same key").toEqual(held.key);
    expect([await raw(), await built()], "nor for the next holder").toEqual([false, false]);
    expect(await txn(whileHeld(next))).toBe(true);
    const other = await locksOn(cluster.url, { prefix: "other/" });
    const elsewhere = await other.mutex("a/b").acquire();
    expect(await txn(whileHeld(elsewhere))).toBe(true);
    const inMemory = await (await locksOn("memory:")).mutex("a/b").acquire();
    for (const none of [inMemory, { name: "a/b", id: next.id, token: next.token } as Hold]) {
      expect(() => whileHeld(none)).toThrow(MisuseError);
      expect(() => whileHeld(none)).toThrow(/no hold of a lock in etcd.*holdfast\/fence/);
    }
    for (const one of [next, elsewhere]) await one.release();
  });

  test("without the client library the error says what to install", async () => {
    const load = (): Promise<unknown> =>
      Promise.reject(Object.assign(new Error("Cannot find package '@grpc/grpc-js'"), { code: "ERR_MODULE_NOT_FOUND" }));
    await expect(openEtcd(cluster.url, {}, load)).rejects.toThrow(UnsupportedError);
    await expect(openEtcd(cluster.url, {}, load)).rejects.toThrow("npm install @grpc/grpc-js");
  });
});
