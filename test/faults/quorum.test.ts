import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import {
  EngineRefusedError,
  EngineUnavailableError,
  InvalidOptionError,
  LockLostError,
} from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import { QuorumNotReached } from "../../src/engines/quorum/index.js";
import type { Locks } from "../../src/locks.js";
import { movableClock } from "../servers/clock-shim.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { command, type RedisServer, restartRedis, startRedis } from "../servers/redis.js";
import { at, locksOn, startFive, TEST_MS } from "./quorum-rig.js";
import { renewed, states } from "./rig.js";

/** A counter that only the lock protects: read, wait, write. It counts how many times that was done, and what it shows. */
function loadOn(clients: readonly Locks[]) {
  const seen = { counter: 0, turns: 0, tokens: [] as number[] };
  const state = { over: false };
  const worker = async (locks: Locks): Promise<void> => {
    while (!state.over) {
      const hold = await locks.mutex("load").acquire({ leaseMs: 15_000, waitMs: 60_000 });
      const read = seen.counter;
      await sleep(2);
      hold.throwIfLost();
      seen.counter = read + 1;
      seen.turns += 1;
      seen.tokens.push(hold.token);
      await hold.release();
    }
  };
  const working = Promise.all(clients.flatMap((locks) => [worker(locks), worker(locks)]));
  return {
    async progress(what: string): Promise<void> {
      const { turns } = seen;
      await until(`work goes on ${what}`, () => seen.turns > turns + 10, 60_000);
    },
    async stop() {
      state.over = true;
      await working;
      return seen;
    },
  };
}

describe("five Redis servers", () => {
  test("two killed under load: it goes on; a third: it fails clearly; one back: it recovers", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    const clients = await Promise.all([locksOn(servers), locksOn(servers)]);
    const load = loadOn(clients);
    await load.progress("at first");
    await at(servers, 0).running.end();
    await at(servers, 1).running.end();
    await load.progress("without two of them");
    const { counter, turns, tokens } = await load.stop();
    expect(counter).toBe(turns);
    expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));

    await at(servers, 2).running.end();
    const [locks] = clients;
    const failing = at([locks], 0)?.mutex("m").acquire({ waitMs: 3000 });
    const error: unknown = await failing?.then(
      () => null,
      (cause: unknown) => cause,
    );
    expect(error).toBeInstanceOf(EngineUnavailableError);
    // pitfall 49: each member's vote and its reason.
    const { message, cause } = error as EngineUnavailableError;
    expect(message).toContain("quorum not reached (3 of 5 needed)");
    expect(message).toMatch(new RegExp(`127\\.0\\.0\\.1:${at(servers, 0).port} (failed|timed out)`));
    expect(message).toMatch(new RegExp(`127\\.0\\.0\\.1:${at(servers, 3).port} yes \\d+ ms`));
    expect((cause as QuorumNotReached).votes).toHaveLength(5);

    const waiting = at(clients, 1).mutex("m").acquire({ waitMs: 30_000 });
    await sleep(200);
    servers[0] = await restartRedis(at(servers, 0));
    await (await waiting).release();
  });

  test("pitfall 39: with two stopped servers nobody waits for them but once for the keeper of the order, and a hold goes on", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    // So long that whoever waited for a stopped one each time would wait longer than this test may take. The member that keeps the
    // order may be one of them, and so may the one that takes its place: each of those is waited for once.
    const locks = await locksOn(servers, { memberTimeoutMs: TEST_MS / 10 });
    const hold = await locks.mutex("held").acquire({ leaseMs: 9000 });
    for (const n of [0, 1]) at(servers, n).running.signal("SIGSTOP");
    onTestFinished(() => [0, 1].forEach((n) => at(servers, n).running.signal("SIGCONT")));
    const long = { leaseMs: 40 * TEST_MS };
    for (let n = 0; n < 20; n += 1) await (await locks.mutex("free").acquire(long)).release();
    await renewed(locks, 4);
    hold.throwIfLost();
    for (const n of [0, 1]) at(servers, n).running.signal("SIGCONT");
    await hold.release();
    // What was sent to the stopped ones is carried out when they go on, and is given back there too.
    await until("nothing is left anywhere", async () => {
      const rival = await locksOn(servers);
      const got = await Promise.all(["held", "free"].map((name) => rival.mutex(name).tryAcquire({ leaseMs: 1000 })));
      for (const one of got) await one?.release();
      await rival.close();
      return got.every((one) => one !== null);
    });
  });

  test("pitfall 38: a server that restarts without its data is repaired by the next renewal", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    const locks = await locksOn(servers);
    const hold = await locks.mutex("kept").acquire({ leaseMs: 15_000 });
    const { token } = hold;
    const key = "holdfast:lock:kept";
    await until("all have it", async () => {
      const found = await Promise.all(servers.map(({ port }) => command(port, `EXISTS ${key}`)));
      return found.every((answer) => answer.includes(":1"));
    });
    for (const n of [0, 1]) {
      await at(servers, n).running.end();
      servers[n] = await restartRedis(at(servers, n));
      expect(await command(at(servers, n).port, `EXISTS ${key}`)).toContain(":0");
      await until("the claim is back", async () =>
        (await command(at(servers, n).port, `EXISTS ${key}`)).includes(":1"),
      );
      expect(await command(at(servers, n).port, `GET ${key}`)).toContain(String(token));
    }
    // A majority that was restarted, one after the other, and still nobody else comes in.
    await at(servers, 2).running.end();
    const rival = await locksOn(servers);
    expect(await rival.mutex("kept").tryAcquire()).toBeNull();
    hold.throwIfLost();
    expect(hold.token).toBe(token);
    await hold.release();
  });

  test("restartGuardMs: a server that started a moment ago has no vote", { timeout: TEST_MS }, async () => {
    const servers = await startFive();
    const guarded = { restartGuardMs: 60_000 };
    const young = await locksOn(servers, guarded);
    const refused: unknown = await young
      .mutex("g")
      .acquire({ waitMs: 5000 })
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(EngineUnavailableError);
    expect(String(refused)).toMatch(/no vote yet: it started \d+ ms ago/);
    // Old enough for a guard of a second.
    await sleep(3500);
    const locks = await locksOn(servers, { restartGuardMs: 1000 });
    await (await locks.mutex("g").acquire({ waitMs: 20_000 })).release();
  });

  test("cut off from the majority: told before anybody else gets it, refused afterwards", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    const proxies = await Promise.all(servers.map(({ port }) => Proxy.to(port)));
    onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.close()))));
    const cutOff = await locksOn(proxies);
    const other = await locksOn(servers);
    const hold = await cutOff.mutex("cut").acquire({ leaseMs: 6000 });
    // One away: no matter.
    at(proxies, 0).cut();
    await renewed(cutOff, 4);
    hold.throwIfLost();
    // Three hear nothing more, and nobody is told.
    for (const n of [1, 2, 3]) at(proxies, n).stall();
    const next = await other.mutex("cut").acquire({ waitMs: 60_000 });
    // By its state, which compares clocks: the signal's timer may stand behind the grant in one phase.
    expect(hold.state).toBe("lost");
    expect(next.token).toBeGreaterThan(hold.token);
    await expect(hold.release()).rejects.toBeInstanceOf(LockLostError);
    next.throwIfLost();
    await next.release();
  });

  test("limit: clocks that jump free a lock that is held; the token refuses the stale write", {
    timeout: TEST_MS,
  }, async () => {
    const clocks = Array.from({ length: 5 }, () => movableClock());
    const servers = await Promise.all(clocks.map(({ env }) => startRedis([], undefined, env)));
    onTestFinished(async () => void (await Promise.all(servers.map((server) => server.running.stop()))));
    const [a, b] = [await locksOn(servers), await locksOn(servers)];
    const hold = await a.mutex("jump").acquire({ leaseMs: 40_000 });
    // One server's clock: a minority, no harm, and it is repaired with the next renewal.
    at(clocks, 0).moveTo(60);
    expect(await b.mutex("jump").tryAcquire()).toBeNull();
    // Three: two believe that they hold. A renewal in between may have repaired the first: then all three once more.
    let second: Hold | null = null;
    for (let seconds = 60; second === null; seconds += 60) {
      for (const n of [0, 1, 2]) at(clocks, n).moveTo(seconds);
      // Where the keeper of the order did not jump the first one still has its turn, and b finds out with a heartbeat.
      second = await b.mutex("jump").tryAcquire({ leaseMs: 6_000, waitMs: 8_000 });
    }
    hold.throwIfLost();
    let highest = 0;
    const guard = ({ token, floor }: { token: number; floor: number }): boolean => {
      if (token < highest) return false;
      highest = Math.max(highest, floor);
      return true;
    };
    expect(guard(hold)).toBe(true);
    expect(guard(second)).toBe(true);
    expect(guard(hold)).toBe(false);
    await second.release();
    await until("the first is told", () => hold.state === "lost", 30_000);
  });

  test("a member replaced by its replica that missed the claim: no harm; but one that stands on three alone is held twice", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    const primary = at(servers, 2);
    const [link, first, second] = [
      await Proxy.to(primary.port),
      await Proxy.to(at(servers, 0).port),
      await Proxy.to(at(servers, 1).port),
    ];
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(link.port)]);
    onTestFinished(async () => {
      await replica.running.stop();
      await Promise.all([link, first, second].map((proxy) => proxy.close()));
    });
    const a = await locksOn([first, second, ...servers.slice(2)]);
    const early = await a.mutex("early").acquire({ leaseMs: 60_000 });
    const replicated = async (name: string): Promise<boolean> =>
      (await command(replica.port, `EXISTS holdfast:lock:${name}`)).includes(":1");
    await until("the replica has the first claim", () => replicated("early"));
    // From here on it hears nothing, and neither it nor its primary is told so.
    link.stall();
    const whole = await a.mutex("whole").acquire({ leaseMs: 60_000 });
    // Three of five are enough for this one: it cannot reach the others.
    first.cut();
    second.cut();
    const barely = await a.mutex("barely").acquire({ leaseMs: 60_000 });
    expect([await replicated("whole"), await replicated("barely")]).toEqual([false, false]);
    await primary.running.end();
    await command(replica.port, "REPLICAOF NO ONE");
    const b = await locksOn([at(servers, 0), at(servers, 1), replica, at(servers, 3), at(servers, 4)]);
    for (const name of ["early", "whole"]) expect(await b.mutex(name).tryAcquire(), name).toBeNull();
    const twice = await b.mutex("barely").acquire({ waitMs: 10_000 });
    barely.throwIfLost();
    // Two believe that they hold; whoever is guarded by the token refuses the first one's late write.
    expect(twice.floor).toBeGreaterThan(barely.token);
    await twice.release();
    first.heal();
    second.heal();
    await early.release();
    await whole.release();
  });

  test("a downgrade that a minority missed is told to it with the next heartbeat", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    const link = await Proxy.to(at(servers, 0).port);
    onTestFinished(() => link.close());
    const a = await locksOn([{ port: link.port }, ...servers.slice(1)]);
    const b = await locksOn(servers);
    const writer = await a.readWrite("shrunk").write.acquire({ leaseMs: 6000 });
    const alone = await connect(at(servers, 0).url);
    onTestFinished(() => alone.close());
    const readable = async (): Promise<boolean> => {
      const reader = await alone.readWrite("shrunk").read.tryAcquire();
      await reader?.release();
      return reader !== null;
    };
    // A grant counts with three yes-votes: the first server's may be on its way.
    await until("the first server knows the writer", async () => !(await readable()));
    link.cut();
    await writer.downgrade();
    expect(await readable(), "it still knows a writer").toBe(false);
    await (await b.readWrite("shrunk").read.acquire({ waitMs: 10_000 })).release();
    link.heal();
    await until("the first server has heard", readable);
    writer.throwIfLost();
    await writer.release();
  });

  test("members without memory: a hold lives on and is given back, a claim is told why, and is served when there is room", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    const all = (line: string): Promise<unknown> => Promise.all(servers.map(({ port }) => command(port, line)));
    const locks = await locksOn(servers);
    const hold = await locks.mutex("held").acquire({ leaseMs: 6000 });
    await all("CONFIG SET maxmemory 1");
    // For longer than its lease.
    await renewed(locks, 4);
    hold.throwIfLost();
    const failing = locks.mutex("wanted").acquire({ waitMs: 1000 });
    await expect(failing).rejects.toBeInstanceOf(EngineUnavailableError);
    await expect(failing).rejects.toThrow(/memory is full/);
    await hold.release();
    expect(await states(locks)).toEqual([]);
    const waiting = locks.mutex("wanted").acquire();
    await all("CONFIG SET maxmemory 0");
    await (await waiting).release();
  });

  test("the connections to all members end again and again: the program lives, and the hold is kept", {
    timeout: TEST_MS,
  }, async () => {
    const servers = await startFive();
    const locks = await locksOn(servers);
    const hold = await locks.mutex("held").acquire({ leaseMs: 30_000 });
    const load = loadOn([locks]);
    for (let times = 0; times < 10; times += 1) {
      await Promise.all(servers.map(({ port }) => command(port, "CLIENT KILL TYPE normal")));
      await Promise.all(servers.map(({ port }) => command(port, "CLIENT KILL TYPE pubsub")));
      await load.progress("after the connections ended");
    }
    const { counter, turns } = await load.stop();
    expect(counter).toBe(turns);
    hold.throwIfLost();
    await hold.release();
  });
});

describe("members", () => {
  test("the same server twice, a replica, one member and a wrong password are refused; credentials are not told", {
    timeout: TEST_MS,
  }, async () => {
    const [one, two] = await startFive();
    if (one === undefined || two === undefined) throw new Error("no servers");
    const again = `redis://127.0.0.1:${one.port}`;
    await expect(connect([one.url, two.url, again])).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(connect([one.url, two.url, again])).rejects.toThrow(/are the same server/);
    await expect(connect([one.url])).rejects.toBeInstanceOf(InvalidOptionError);
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(one.port)]);
    onTestFinished(() => replica.running.stop());
    await expect(connect([one.url, two.url, replica.url])).rejects.toThrow(/replica/);
    const wrong = `redlock://user:secret@127.0.0.1:${one.port},127.0.0.1:${two.port},127.0.0.1:1`;
    const error: unknown = await connect(wrong).catch((cause: unknown) => cause);
    expect(String(error)).not.toContain("secret");
  });

  test("warnings say what replicas, an even number and too few members cost", { timeout: TEST_MS }, async () => {
    const servers = await startFive();
    const primary = at(servers, 0);
    const replica = await startRedis(["--replicaof", "127.0.0.1", String(primary.port)]);
    onTestFinished(() => replica.running.stop());
    await until("the replica is in step", async () =>
      (await command(primary.port, "INFO replication")).includes("state=online"),
    );
    const warnings: string[] = [];
    const listen = async (members: readonly RedisServer[]): Promise<void> => {
      const locks = await locksOn(members);
      locks.on("warning", ({ message }) => warnings.push(message));
    };
    const warned = (text: string): Promise<void> => until(text, () => warnings.join("\n").includes(text));
    await listen(servers.slice(0, 4));
    await warned("4 members survives 1 failures, as one of 3 does");
    await warned(`127.0.0.1:${primary.port} has replicas`);
    warnings.length = 0;
    await listen(servers.slice(1, 3));
    await warned("stops as soon as one of them is away");
  });

  test("a member that is away at the start joins later", { timeout: TEST_MS }, async () => {
    const servers = await startFive();
    for (const n of [0, 1]) await at(servers, n).running.end();
    const locks = await locksOn(servers);
    const warnings: string[] = [];
    locks.on("warning", ({ message }) => warnings.push(message));
    await (await locks.mutex("late").acquire({ waitMs: 30_000 })).release();
    for (const n of [0, 1]) servers[n] = await restartRedis(at(servers, n));
    await until("both are here", () => warnings.filter((text) => text.includes("is here now")).length === 2);
    await at(servers, 2).running.end();
    await at(servers, 3).running.end();
    await (await locks.mutex("late").acquire({ waitMs: 30_000 })).release();
    for (const n of [0, 1, 4]) await at(servers, n).running.end();
    await expect(connect(`redlock://${servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`)).rejects.toThrow(
      /quorum not reached/,
    );
  });

  test("a member that wants another password from now on: said once, listed in the votes, and used again when that is mended", {
    timeout: TEST_MS,
  }, async () => {
    const servers = (await startFive()).slice(0, 3);
    const locks = await locksOn(servers);
    const warnings: string[] = [];
    locks.on("warning", ({ message }) => warnings.push(message));
    const { port } = at(servers, 0);
    const said = (text: string): number =>
      warnings.filter((message) => message.includes(`127.0.0.1:${port}`) && message.includes(text)).length;
    const turn = async (): Promise<void> => (await locks.mutex("m").acquire({ waitMs: 20_000 })).release();
    await turn();
    const admin = new Redis({ host: "127.0.0.1", port });
    onTestFinished(() => admin.disconnect());
    await admin.config("SET", "requirepass", "other");
    // This connection keeps its rights; the client's new ones have none.
    for (const type of ["normal", "pubsub"] as const) await admin.call("CLIENT", "KILL", "TYPE", type, "SKIPME", "yes");
    await until("it is noticed", async () => {
      await turn();
      return said("is away") > 0;
    });
    for (let n = 0; n < 20; n += 1) await turn();
    expect(said("is away")).toBe(1);
    // The other two are enough until one of them goes.
    await at(servers, 1).running.end();
    const failed: unknown = await locks
      .mutex("m")
      .acquire({ waitMs: 1000 })
      .catch((error: unknown) => error);
    const vote = ((failed as EngineUnavailableError).cause as QuorumNotReached).votes.find(({ member }) =>
      member.endsWith(String(port)),
    );
    expect(vote?.vote).toMatch(/NOAUTH|not connected/);
    await admin.config("SET", "requirepass", "");
    await turn();
    expect(said("answers again")).toBe(1);
  });
});
