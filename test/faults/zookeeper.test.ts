import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import {
  EngineRefusedError,
  EngineUnavailableError,
  InvalidOptionError,
  LockLostError,
} from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { CODE, ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { zookeeperEngine } from "../../src/engines/zookeeper/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { Child } from "../process/child.js";
import { pause, quickFolder, until } from "../servers/process.js";
import { curatorJava, fourLetters, javaClasspath, startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
import { SESSION_MS } from "../virtual/lockstep/zookeeper.js";
import {
  claimOf,
  counts,
  engineOn,
  figure,
  listening,
  locksOn,
  ownServer,
  proxyTo,
  rawOn,
  stateOf,
  urlOf,
  waiters,
  wireOn,
} from "./zookeeper-rig.js";

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper()), 60_000);
afterAll(() => server?.running.stop());

const url = (): string => urlOf(server.port);
const SLOW_MS = 60_000;

/** Who holds is told of its loss before the next one is granted, by `state`, which compares clocks. */
async function nextAfter(lost: Hold, granting: Promise<Hold>): Promise<{ next: Hold; before: string }> {
  const { signal } = lost;
  const next = await granting;
  const before = lost.state;
  await until("the signal", () => signal.aborted);
  return { next, before };
}

const isConnected = (engine: Engine): Promise<boolean> =>
  engine.renew([]).then(
    () => true,
    () => false,
  );

describe("a client that is cut off", () => {
  for (const [how, what] of [
    ["cut", "the connection breaks"],
    ["stall", "the wire goes silent"],
  ] as const) {
    test(`pitfall 2: ${what}: told before the next holder, and back with a new session`, {
      timeout: SLOW_MS,
    }, async () => {
      const proxy = await proxyTo(server.port);
      const far = await locksOn(urlOf(proxy.port), { leaseMs: 3000, callTimeoutMs: 1000 });
      const near = await locksOn(url(), { leaseMs: 10_000, sessionTimeoutMs: 10_000 });
      const name = `cut off ${how}`;
      const lost = await far.mutex(name).acquire();
      const states: string[] = [];
      far.on("jeopardy", () => states.push("jeopardy"));
      far.on("lost", () => states.push("lost"));
      // It waits for something else, too: that position is lost, and the claim joins again.
      const other = await near.mutex(`${name} too`).acquire();
      const warnings: string[] = [];
      far.on("warning", ({ message }) => warnings.push(message));
      // With a lease that outlasts the session.
      const waiting = far.mutex(`${name} too`).acquire({ leaseMs: 20_000 });
      waiting.catch(() => {});
      await until("it waits", async () => (await waiters(near, `${name} too`)) === 1);
      proxy[how]();
      const { next, before } = await nextAfter(lost, near.mutex(name).acquire());
      expect(before).toBe("lost");
      // A process that stood still at that moment finds out about both at once.
      expect([["jeopardy", "lost"], ["lost"]]).toContainEqual(states);
      expect(() => lost.throwIfLost()).toThrow(LockLostError);
      expect(next.token).toBeGreaterThan(lost.token);
      await until("its position is gone", async () => (await waiters(near, `${name} too`)) === 0);
      proxy.heal();
      await until("it waits again", async () => (await waiters(near, `${name} too`)) === 1);
      expect(warnings.join()).toMatch(/lost their position/);
      await other.release();
      await (await waiting).release();
      await next.release();
      await (await far.mutex(name).acquire()).release();
    });
  }

  test(
    "a short break costs nothing: the same session, the same hold, the same position in the queue",
    async () => {
      const proxy = await proxyTo(server.port);
      const far = await locksOn(urlOf(proxy.port), { callTimeoutMs: 1000, sessionTimeoutMs: 20_000 });
      const near = await locksOn(url());
      const hold = await far.mutex("short").acquire();
      const blocking = await near.mutex("short too").acquire();
      const waiting = far.mutex("short too").acquire();
      await until("it waits", async () => (await waiters(near, "short too")) === 1);
      const [waiter] = (await stateOf(near, "short too"))?.waiters ?? [];
      for (let n = 0; n < 3; n += 1) {
        proxy.cut();
        await sleep(100);
        proxy.heal();
        await sleep(300);
      }
      // What changed while it was away is found out.
      proxy.cut();
      await blocking.release();
      proxy.heal();
      const next = await waiting;
      expect(next.id).toBe(waiter?.id);
      hold.throwIfLost();
      await hold.release();
      await next.release();
    },
    SLOW_MS,
  );

  test(
    "a fixed lease outlasts many sessions, and ends with the one that ends",
    async () => {
      const proxy = await proxyTo(server.port);
      const locks = await locksOn(urlOf(proxy.port), { sessionTimeoutMs: 6000, callTimeoutMs: 1500 });
      const hold = await locks.mutex("fixed").acquire({ renew: false, leaseMs: 60_000 });
      await sleep(12_000);
      hold.throwIfLost();
      proxy.stall();
      const near = await locksOn(url(), { leaseMs: 2000 });
      const { next, before } = await nextAfter(hold, near.mutex("fixed").acquire());
      expect(before).toBe("lost");
      await next.release();
    },
    SLOW_MS,
  );

  test("nobody answers: the first connection fails in time, and says which store", async () => {
    const mine = await proxyTo(server.port);
    mine.cut();
    const refused = connect(urlOf(mine.port), { callTimeoutMs: 500 });
    await expect(refused).rejects.toBeInstanceOf(EngineUnavailableError);
    await expect(connect("zookeeper://u:secret@:1/x")).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(connect("zookeeper://u:secret@:1/x")).rejects.not.toThrow(/secret/);
  });
});

describe("answers that are lost", () => {
  test(
    "pitfall 17: a node whose creation was not answered is found again by its id, or taken out",
    async () => {
      const proxy = await proxyTo(server.port);
      const [far, near] = [await engineOn(urlOf(proxy.port)), await engineOn(url())];
      const raw = await rawOn(server.port);
      const nodes = async (name: string) => (await raw.children(`/locks/${name}`))?.names ?? [];
      const [kept, left] = [claimOf("kept"), claimOf("left")];
      // The folders are there, and stay: one request, and its answer is lost.
      expect((await near.claim(claimOf("first"))).kind).toBe("granted");
      for (const { name } of [kept, left]) await raw.create(`/locks/${name}`, Buffer.alloc(0), "persistent");
      for (const claim of [kept, left]) {
        await until("it is connected", () => isConnected(far));
        proxy.deafen();
        const asking = far.claim(claim);
        asking.catch(() => {});
        await until("it is there", async () => (await nodes(claim.name)).some((node) => node.includes(claim.id)));
        proxy.cut();
        await expect(asking).rejects.toThrow(/connection loss/);
        proxy.heal();
      }
      await until("it is connected again", async () => {
        const answer = await far.claim(kept).catch(() => null);
        return answer?.kind === "granted";
      });
      expect((await nodes("kept")).filter((node) => node.includes(kept.id))).toHaveLength(1);
      expect(await far.release(left)).toBe("released");
      expect((await nodes("left")).filter((node) => node.includes(`${left.id}-lock`))).toEqual([]);
      // Whoever sends it again: a tombstone is there.
      expect((await near.claim(left)).kind).toBe("gone");
      expect(await far.release(kept)).toBe("released");
    },
    SLOW_MS,
  );

  test(
    "a downgrade whose answer is lost takes effect once, and keeps token and position",
    async () => {
      const proxy = await proxyTo(server.port);
      const far = await engineOn(urlOf(proxy.port));
      const raw = await rawOn(server.port);
      const writer = claimOf("downgrade", { capacity: 1_048_576, units: 1_048_576 });
      const { token } = (await far.claim(writer)) as { token: number };
      const [before = ""] = (await raw.children("/locks/downgrade"))?.names ?? [];
      const events = listening(far);
      // By then it watches its own node.
      await pause(500);
      proxy.deafen();
      const shrinking = far.resize(writer, 1);
      shrinking.catch(() => {});
      const after = before.replace("__WRIT__", "__READ__");
      await until("it is a reader", async () => (await raw.exists(`/locks/downgrade/${after}`)) !== null);
      proxy.cut();
      proxy.heal();
      // Connected again, it hears that its old node went: no loss, as long as it may stand in the new one.
      await pause(1500);
      expect(events.filter(({ kind }) => kind === "lost")).toEqual([]);
      await until("it is known", async () => (await far.resize(writer, 1).catch(() => null)) === "resized");
      expect((await raw.children("/locks/downgrade"))?.names).toEqual([after]);
      expect((await far.renew([writer]))[0]).toMatchObject({ kind: "granted", token, floor: token });
      expect(await far.release(writer)).toBe("released");
    },
    SLOW_MS,
  );
});

describe("processes", () => {
  const settings = { sessionTimeoutMs: 2000, leaseMs: 2000 };

  test(
    "pitfall 12: stopped past its session: it knows at once, and the lock has passed on",
    async () => {
      const child = new Child({ url: url(), name: "stopped", connect: settings });
      const { token } = await child.tells("held");
      child.signal("SIGSTOP");
      const locks = await locksOn(url());
      const next = await locks.mutex("stopped").acquire();
      expect(next.token).toBeGreaterThan(token as number);
      child.say("check");
      child.signal("SIGCONT");
      expect(await child.tells("checked")).toMatchObject({ held: false, code: "HOLDFAST_LOCK_LOST" });
      next.throwIfLost();
      await next.release();
      child.say("exit");
      await child.exited();
    },
    SLOW_MS,
  );

  test(
    "killed: its lock passes on when its session ends",
    async () => {
      const child = new Child({ url: url(), name: "killed", connect: settings });
      await child.tells("held");
      child.signal("SIGKILL");
      const locks = await locksOn(url());
      await (await locks.mutex("killed").acquire()).release();
    },
    SLOW_MS,
  );

  test(
    "one that ends well leaves its locks at once",
    async () => {
      const child = new Child({ url: url(), name: "well", connect: { sessionTimeoutMs: 10_000 } });
      await child.tells("held");
      child.say("exit");
      await child.exited();
      const locks = await locksOn(url());
      expect(await stateOf(locks, "well"), "before its session would have ended").toBeUndefined();
      await (await locks.mutex("well").acquire()).release();
    },
    SLOW_MS,
  );
});

describe("the nodes", () => {
  test(
    "pitfall 47: everything idle disappears: folders, tombstones with their session, watches",
    async () => {
      const mine = await ownServer();
      const before = await counts(mine.port);
      const locks = await locksOn(urlOf(mine.port));
      for (let n = 0; n < 50; n += 1) {
        await (await locks.mutex(`m ${n}`).acquire()).release();
        await (await locks.readWrite(`rw ${n}`).write.acquire()).release();
        await (await locks.semaphore(`s ${n}`, 3).acquire({ permits: 2 })).release();
        const hold = await locks.mutex(`t ${n}`).acquire();
        await expect(locks.mutex(`t ${n}`).acquire({ waitMs: 5 })).rejects.toThrow();
        await hold.release();
      }
      await until("watches are given up", async () => (await counts(mine.port)).watches < 20);
      await locks.close();
      await until("only the server's own nodes are left, and the base with its layout version", async () => {
        const after = await counts(mine.port);
        return after.nodes === before.nodes + 2 && after.watches === 0;
      });
    },
    SLOW_MS,
  );

  test("a thousand waiters: served in order, two watches each, and as many messages each as with ten", async () => {
    const mine = await ownServer({ lines: [`maxSessionTimeout=${SESSION_MS}`] });
    const perHandOver: number[] = [];
    for (const many of [10, 1000]) {
      // However long a busy machine takes, no time passes: no lease ends, no call is late, and the only messages are those of
      // the claims, without heartbeats or pings.
      const clock = new FakeClock();
      const locks = await locksOn(urlOf(mine.port), { sessionTimeoutMs: SESSION_MS, clock });
      const name = `queue of ${many}`;
      const first = await locks.mutex(name).acquire();
      const tokens: number[] = [];
      const all = Promise.all(
        Array.from({ length: many }, async () => {
          const hold = await locks.mutex(name).acquire();
          tokens.push(hold.token);
          await hold.release();
        }),
      );
      // If this test fails before it waits for them, they are rejected when it closes the locks.
      all.catch(() => {});
      let queued = 0;
      locks.on("queued", () => (queued += 1));
      // A server that stood still for a while closes connections; a client makes another one only when some time has passed.
      const stuckAt = performance.now() + 60_000;
      const waits = async (): Promise<boolean> => {
        if (performance.now() > stuckAt) await clock.advance(100);
        return queued === many;
      };
      await until("all wait", waits, 600_000);
      expect((await stateOf(locks, name))?.waiters).toHaveLength(many);
      const { watches, messages } = await counts(mine.port);
      expect(watches).toBeLessThanOrEqual(2 * many + 2);
      const byPath = await fourLetters(mine.port, "wchp", 60_000);
      const most = Math.max(...byPath.split(/^\//m).map((lines) => lines.split("\n\t").length - 1));
      expect(most).toBe(1);
      await first.release();
      await all;
      perHandOver.push(((await counts(mine.port)).messages - messages) / many);
      expect(tokens).toEqual(tokens.toSorted((one, two) => one - two));
      await locks.close();
    }
    const [ten = 0, thousand = 0] = perHandOver;
    expect(thousand).toBeLessThan(1.5 * ten);
  }, 1_200_000);

  test("pitfall 56: of two holders either one's leaving wakes the first in the queue, and then the next", async () => {
    const [a, b] = [
      await engineOn(url(), { sessionTimeoutMs: 10_000 }),
      await engineOn(url(), { sessionTimeoutMs: 10_000 }),
    ];
    const events = listening(b);
    const ask = { capacity: 2, leaseMs: 2000 };
    const holders = [claimOf("two", ask), claimOf("two", ask)];
    const waiting = [claimOf("two", ask), claimOf("two", ask)];
    for (const claim of holders) expect((await a.claim(claim)).kind).toBe("granted");
    for (const claim of waiting) expect((await b.claim(claim)).kind).toBe("queued");
    const woken = (id: string | undefined) => events.some((event) => event.kind !== "warning" && event.id === id);
    const [one, two] = holders;
    if (one === undefined || two === undefined) throw new Error("two");
    expect(await a.release(one)).toBe("released");
    await until("the first in the queue", () => woken(waiting[0]?.id), 1500);
    expect(woken(waiting[1]?.id)).toBe(false);
    expect(await a.release(two)).toBe("released");
    await until("the next", () => woken(waiting[1]?.id), 1500);
  });

  const still = (): Promise<Engine> => engineOn(url(), { clock: new FakeClock(), sessionTimeoutMs: 10_000 });

  test("a claim that another client removes right after it came is known to be gone, and who waits for it is told", async () => {
    // Its clock stands still: nothing is watched after a while.
    const [a, b] = [await still(), await engineOn(url())];
    const events = listening(a);
    const told = (kind: string, id: string) =>
      events.some((event) => event.kind === kind && "id" in event && event.id === id);
    const ask = { leaseMs: 5000 };
    const [first, second, third, fourth, fifth] = Array.from({ length: 5 }, () => claimOf("removed", ask));
    if (!first || !second || !third || !fourth || !fifth) throw new Error("five");
    for (const _ of [1, 2]) {
      expect((await a.claim(first)).kind).toBe("granted");
      await a.release({ ...first, tombstone: "never" });
    }
    expect((await a.claim(second)).kind).toBe("granted");
    expect(await b.release(second)).toBe("released");
    expect(await a.claim(third), "nobody is before it").toMatchObject({ kind: "granted", leftMs: 5000 });
    expect((await a.claim(fourth)).kind).toBe("queued");
    expect(await b.release(third)).toBe("released");
    await until("it holds", () => told("granted", fourth.id));
    expect(await b.release(fourth)).toBe("released");
    await until("it is lost", () => told("lost", fourth.id));
    expect(await a.claim(fifth)).toMatchObject({ kind: "granted", leftMs: 5000 });
  });

  test("pitfall 1: a claim that shrank is not taken for one that left", async () => {
    const [a, b] = [await still(), await still()];
    const events = listening(b);
    const ask = { units: READERS_MAX, capacity: READERS_MAX, leaseMs: 5000 };
    const [writer, next] = [claimOf("shrinks", ask), claimOf("shrinks", ask)];
    for (const _ of [1, 2]) {
      const before = claimOf("shrinks", ask);
      expect((await b.claim(before)).kind).toBe("granted");
      await b.release({ ...before, tombstone: "never" });
    }
    expect((await a.claim(writer)).kind).toBe("granted");
    expect((await b.claim(next)).kind).toBe("queued");
    expect((await b.renew([next]))[0]?.kind).toBe("queued");
    expect(await a.resize(writer, 1)).toBe("resized");
    expect((await b.renew([next]))[0]?.kind, "a reader is in its way").toBe("queued");
    expect(events.filter(({ kind }) => kind === "granted")).toEqual([]);
    expect((await b.claim(claimOf("shrinks", { ...ask, wait: false }))).kind).toBe("busy");
    expect(await a.release(writer)).toBe("released");
    await until("it holds", () => events.some(({ kind }) => kind === "granted"));
  });

  test("who waits for a writer of its own client is told when that becomes a reader", async () => {
    const engine = await still();
    const events = listening(engine);
    const ask = { capacity: READERS_MAX, leaseMs: 5000 };
    const [writer, reader] = [
      claimOf("becomes", { ...ask, units: READERS_MAX }),
      claimOf("becomes", { ...ask, units: 1 }),
    ];
    expect((await engine.claim(writer)).kind).toBe("granted");
    expect((await engine.claim(reader)).kind).toBe("queued");
    expect(await engine.resize(writer, 1)).toBe("resized");
    await until("it holds", () => events.some(({ kind }) => kind === "granted"));
  });

  test.each([
    ["creation", "create"],
    ["removal, because another has its id,", "remove"],
  ] as const)(
    "a claim whose %s was not answered does not take another client's node with the same chosen id for its own",
    async (_, verb) => {
      const engine = await engineOn(url());
      const client = wireOn(server.port);
      let lost = 0;
      const answered = async <T>(call: Promise<T>, may: boolean): Promise<T> => {
        const answer = await call;
        if (!may || lost > 0) return answer;
        lost += 1;
        throw new ZooKeeperError(CODE.connectionLoss, "using an unreliable connection");
      };
      const [create, remove] = [client.create.bind(client), client.remove.bind(client)];
      client.create = (path, data, mode) =>
        answered(create(path, data, mode), verb === "create" && mode === "ephemeral-sequential");
      client.remove = (path, version) => answered(remove(path, version), verb === "remove");
      const other = await zookeeperEngine(client, { base: "/locks" });
      onTestFinished(async () => {
        await other[Symbol.asyncDispose]();
        await client.close();
      });
      const claim = { ...claimOf("chosen twice", { leaseMs: 60_000 }), chosen: true as const };
      expect((await engine.claim(claim)).kind).toBe("granted");
      await expect(other.claim(claim)).rejects.toThrow();
      expect(await other.claim(claim)).toMatchObject({ kind: "granted", leftMs: 0 });
      expect((await (await rawOn(server.port)).children("/locks/chosen twice"))?.names, "its own is gone").toHaveLength(
        1,
      );
      expect((await engine.renew([claim]))[0]).toMatchObject({ kind: "granted" });
      expect(await engine.release(claim)).toBe("released");
    },
  );

  test(
    "pitfall 33: beyond sequence number 2³¹ the order is kept, although the server's numbers are none any more",
    async () => {
      const folder = mkdtempSync(join(quickFolder(), "holdfast-"));
      mkdirSync(join(folder, "data"));
      const program = resolve(import.meta.dirname, "../servers/java/Sequence.java");
      const args = ["-cp", javaClasspath(), program, join(folder, "data"), String(2 ** 31 - 4)];
      execFileSync(curatorJava(), args, { stdio: "ignore" });
      const mine = await ownServer({ folder });
      const engines = [
        await engineOn(`zookeeper://127.0.0.1:${mine.port}/wrap`),
        await engineOn(`zookeeper://127.0.0.1:${mine.port}/wrap`),
      ];
      const claims = Array.from({ length: 12 }, () => claimOf("n"));
      // One by one the server gives out the last number again and again; several at once, numbers that go back.
      const answers = [];
      for (const [n, claim] of claims.slice(0, 7).entries()) answers.push(await engines[n % 2]?.claim(claim));
      answers.push(...(await Promise.all(claims.slice(7).map(async (claim, n) => engines[(n + 7) % 2]?.claim(claim)))));
      expect(answers.filter((answer) => answer?.kind === "granted")).toHaveLength(1);
      const raw = await rawOn(mine.port);
      const nodes = (await raw.children("/wrap/n"))?.names ?? [];
      const numbers = nodes.map((node) => Number(/(?:lock-)(-?\d+)$/.exec(node)?.[1]));
      expect(new Set(numbers).size).toBeLessThan(numbers.length);
      const created = await Promise.all(
        nodes.map(async (node) => ({ node, at: (await raw.exists(`/wrap/n/${node}`))?.czxid ?? 0 })),
      );
      const order = created.toSorted((one, two) => one.at - two.at).map(({ node }) => node);
      const served: string[] = [];
      for (let left = claims.length; left > 0; left -= 1) {
        const renewals = await engines[0]?.renew(claims);
        const granted = claims.filter((_, n) => renewals?.[n]?.kind === "granted");
        expect(granted).toHaveLength(1);
        const [holder] = granted;
        if (holder === undefined) break;
        served.push(order.find((node) => node.includes(holder.id)) ?? "");
        expect(await engines[claims.indexOf(holder) % 2]?.release({ ...holder, tombstone: "never" })).toBe("released");
      }
      expect(served).toEqual(order);
    },
    SLOW_MS,
  );

  test("pitfall 41: one session, many claims; each has a node and an id of its own", async () => {
    const engine = await engineOn(url());
    const [one, two] = [claimOf("same session"), claimOf("same session")];
    expect((await engine.claim(one)).kind).toBe("granted");
    expect((await engine.claim(two)).kind).toBe("queued");
    expect((await engine.claim({ ...claimOf("same session"), wait: false })).kind).toBe("busy");
    for (const claim of [two, one]) expect(await engine.release(claim)).toBe("released");
  });

  test("pitfall 42: a session per client, not per lock: fifty locks are one connection and few messages each", async () => {
    // Folders that stay: on a slow machine some would be gone before they are used again.
    const mine = await ownServer({ properties: { "znode.container.checkIntervalMs": "600000" } });
    const engine = await engineOn(urlOf(mine.port), { sessionTimeoutMs: 10_000 });
    const claims = Array.from({ length: 50 }, (_, n) => claimOf(`lock ${n}`));
    for (const claim of claims) await engine.claim(claim);
    expect(await figure(mine.port, "zk_num_alive_connections")).toBeLessThanOrEqual(2);
    for (const claim of claims) await engine.release({ ...claim, tombstone: "never" });
    const perLock = async (): Promise<number> => {
      const { messages } = await counts(mine.port);
      for (const { name } of claims) {
        const claim = claimOf(name);
        await engine.claim(claim);
        await engine.release({ ...claim, tombstone: "never" });
      }
      return ((await counts(mine.port)).messages - messages) / claims.length;
    };
    // Created, listed, removed; two folders watched, and no tombstone: six questions and their answers; the rest is counting.
    expect(await perLock()).toBeLessThan(14);
    // Created and removed.
    expect(await perLock()).toBeLessThan(6);
  });

  test("pitfall 1: a claim that was taken out while it waited is not granted, though it is its turn", async () => {
    const [a, b] = [await engineOn(url()), await engineOn(url())];
    const events = listening(b);
    const [holder, waiter] = [claimOf("taken out"), claimOf("taken out")];
    await a.claim(holder);
    await b.claim(waiter);
    const raw = await rawOn(server.port);
    const nodes = (await raw.children("/locks/taken out"))?.names ?? [];
    // Both in one step: the news that the holder left finds the waiter gone.
    await raw.transact(
      nodes.map((node) => ({ kind: "remove", path: `/locks/taken out/${node}`, version: -1 }) as const),
    );
    await until("told", () => events.length > 0);
    await sleep(200);
    expect(events).toEqual([{ kind: "lost", name: "taken out", id: waiter.id }]);
    expect((await b.renew([waiter]))[0]?.kind).toBe("gone");
    expect(await b.release(waiter)).toBe("gone");
  });

  test(
    "pitfall 43: what an ended session asked for does nothing in the next one",
    async () => {
      const proxy = await proxyTo(server.port);
      const [far, near] = [await engineOn(urlOf(proxy.port), { sessionTimeoutMs: 1500 }), await engineOn(url())];
      const events = listening(far);
      const holder = claimOf("epochs");
      const [old, young] = [claimOf("epochs", { leaseMs: 60_000 }), claimOf("epochs")];
      await near.claim(holder);
      expect((await far.claim(old)).kind).toBe("queued");
      proxy.cut();
      const raw = await rawOn(server.port);
      await until("its node is gone", async () => (await raw.children("/locks/epochs"))?.names.length === 1);
      proxy.heal();
      await until("it is told", () => events.some((event) => event.kind === "lost" && event.id === old.id));
      await until("it is connected", async () => (await far.claim(young).catch(() => null))?.kind === "queued");
      expect((await far.renew([old]))[0]?.kind).toBe("gone");
      expect(await near.release(holder)).toBe("released");
      await until("the new claim's turn", () =>
        events.some((event) => event.kind !== "warning" && event.id === young.id),
      );
      await sleep(200);
      expect(events.filter((event) => event.kind === "granted" && event.id === old.id)).toEqual([]);
      expect(await far.release(young)).toBe("released");
    },
    SLOW_MS,
  );

  test(
    "a cell's watcher goes on in a new session",
    async () => {
      const proxy = await proxyTo(server.port);
      const [far, near] = [await engineOn(urlOf(proxy.port), { sessionTimeoutMs: 1500 }), await engineOn(url())];
      const seen: (string | null)[] = [];
      far.cells?.watch("watched", (cell) => seen.push(cell.value));
      await sleep(300);
      proxy.cut();
      await sleep(3000);
      proxy.heal();
      await until("it is connected", () => isConnected(far));
      await near.cells?.write({ name: "watched", operation: "one", expected: 0, value: "after" });
      await until("told", () => seen.includes("after"));
      const { version = 0 } = (await near.cells?.read("watched")) ?? {};
      await near.cells?.write({ name: "watched", operation: "two", expected: version, value: null });
    },
    SLOW_MS,
  );

  test("a downgrade whose answer is lost, and then a release: nothing stays", async () => {
    const proxy = await proxyTo(server.port);
    const far = await engineOn(urlOf(proxy.port));
    const raw = await rawOn(server.port);
    const writer = claimOf("shrunk", { capacity: 1_048_576, units: 1_048_576 });
    await far.claim(writer);
    proxy.deafen();
    far.resize(writer, 1).catch(() => {});
    await until("it is a reader", async () =>
      ((await raw.children("/locks/shrunk"))?.names ?? []).some((node) => node.includes("__READ__")),
    );
    proxy.cut();
    proxy.heal();
    await until("it is released", async () => (await far.release(writer).catch(() => null)) === "released");
    expect(((await raw.children("/locks/shrunk"))?.names ?? []).filter((node) => !node.startsWith("~"))).toEqual([]);
  });

  test("a claim that others' programs left open is shown, and its owner is told when it is forced out", async () => {
    const [a, b] = [await engineOn(url()), await engineOn(url())];
    const events = listening(a);
    const claim = claimOf("forced");
    await a.claim(claim);
    expect(await b.release(claim)).toBe("released");
    await until("told", () => events.some(({ kind }) => kind === "lost"));
    expect((await a.renew([claim]))[0]?.kind).toBe("gone");
  });
});

describe("rights", () => {
  test("digest: who gave another password, or none, is refused and told what to do, without the password", async () => {
    const base = `127.0.0.1:${server.port}/rights`;
    const locks = await locksOn(`zookeeper://user:pass%20word@${base}`);
    const same = await locksOn(`zookeeper://user:pass%20word@${base}`);
    const hold = await locks.mutex("private").acquire();
    expect(await same.mutex("private").tryAcquire()).toBeNull();
    for (const who of ["", "user:wrong-secret@"]) {
      const refused = await locksOn(`zookeeper://${who}${base}`).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(EngineRefusedError);
      expect(String(refused)).toMatch(/no auth/);
      expect(String(refused)).not.toMatch(/secret|pass word/);
    }
    await hold.release();
  });

  test("an acl of one's own is set on every node", async () => {
    const acl = [{ perms: 31, scheme: "ip", id: "127.0.0.1" }];
    const locks = await locksOn(`${url()}-acl`, { acl });
    await (await locks.mutex("m").acquire()).release();
    const wrong = locksOn(url(), { acl: "everybody" as "open" });
    await expect(wrong).rejects.toBeInstanceOf(InvalidOptionError);
  });
});
