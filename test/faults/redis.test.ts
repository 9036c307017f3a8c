import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { EngineRefusedError, EngineUnavailableError, NotSentError, UnsupportedError } from "../../src/core/errors.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import { stateOf } from "../../src/testing/conformance/kit.js";
import { Child } from "../process/child.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { command, type RedisServer, restartRedis, startRedis } from "../servers/redis.js";
import { calls, claimOf, engineOn, listening, locksOn, ownServer, states, waiters } from "./redis-rig.js";
import { inSomeTries } from "./rig.js";

let server: RedisServer;
beforeAll(async () => void (server = await startRedis()), 60_000);
afterAll(() => server?.running.stop());

const open = (url = server.url, options: Parameters<typeof engineOn>[1] = {}) => engineOn(url, options);
const connected = (url = server.url, options: Parameters<typeof locksOn>[1] = {}) => locksOn(url, options);

describe("the scripts on a server", () => {
  test("an uncontended lock is one command to take and one to give back", async () => {
    const mine = await ownServer();
    const locks = await connected(mine.url);
    await (await locks.mutex("warm").acquire()).release();
    const before = await calls(mine.port, "evalsha");
    for (let n = 0; n < 10; n += 1) await (await locks.mutex("m").acquire()).release();
    expect((await calls(mine.port, "evalsha")) - before).toBe(20);
  });

  test("a release that is sent twice in one call hands over once", async () => {
    const engine = await open();
    const pushed: unknown[] = [];
    engine.listen((event) => pushed.push(event));
    const [first, next, last] = [claimOf("twice"), claimOf("twice", { wait: true }), claimOf("twice", { wait: true })];
    await engine.claim(first);
    for (const waiter of [next, last]) await engine.claim(waiter);
    const leave = { ...first, tombstone: "never" } as const;
    expect(await Promise.all([engine.release(leave), engine.release(leave)])).toEqual(["released", "gone"]);
    await until("the next one is told", async () => pushed.length > 0);
    const [renewal, behind] = await engine.renew([next, last]);
    expect(pushed).toEqual([expect.objectContaining({ kind: "granted", id: next.id })]);
    expect(renewal).toMatchObject({ kind: "granted", token: (pushed[0] as { token: number }).token });
    expect(behind).toMatchObject({ kind: "queued" });
    for (const claim of [next, last]) expect(await engine.release(claim)).toBe("released");
  });

  test("what a server forgot is loaded again, also within a batch", async () => {
    const engine = await open();
    await engine.claim(claimOf("flush"));
    expect(await command(server.port, "SCRIPT FLUSH")).toContain("OK");
    const claims = Array.from({ length: 5 }, (_, n) => claimOf(`flush ${n}`));
    const answers = await Promise.all(claims.map((claim) => engine.claim(claim)));
    expect(answers.every(({ kind }) => kind === "granted")).toBe(true);
    expect(await Promise.all(claims.map((claim) => engine.release(claim)))).toEqual(claims.map(() => "released"));
  });

  test("one foreign key in a batch is refused, the others are served", async () => {
    const engine = await open();
    await command(server.port, "SET holdfast:lock:foreign x");
    const claims = ["before", "foreign", "after"].map((name) => claimOf(name));
    const answers = await Promise.allSettled(claims.map((claim) => engine.claim(claim)));
    expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    const [, refused] = answers;
    expect(refused).toMatchObject({ reason: expect.any(EngineRefusedError) });
    const renewals = await engine.renew(claims);
    expect(renewals.map(({ kind }) => kind)).toEqual(["granted", "unknown", "granted"]);
    const releases = await Promise.allSettled(claims.map((claim) => engine.release(claim)));
    expect(releases.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    for await (const { name } of engine.inspect()) expect(name).not.toBe("foreign");
  });

  test("pitfall 58: tokens of today are whole numbers in answers, pushes, keys and inspect", async () => {
    const [a, b] = [await open(), await open()];
    const events = listening(b);
    const [one, two] = [claimOf("whole", { exact: true }), claimOf("whole", { exact: true })];
    const first = await a.claim(one);
    await b.claim(two);
    await a.release(one);
    await until("the push", () => events.length > 0);
    const [renewal] = await b.renew([two]);
    const tokens = [first, events[0], renewal].map((told) => (told as { token: number }).token);
    for (const token of tokens) expect(token).toBeGreaterThan(1.7e15);
    expect(new Set(tokens).size).toBe(2);
    expect(await command(server.port, "HGETALL holdfast:lock:whole")).not.toMatch(/e\+/);
    await b.release(two);
  });

  test("what a client of before wrote shows no times, until it is granted by one of today", async () => {
    const engine = await open();
    const raw = new Redis(server.url);
    onTestFinished(() => raw.disconnect());
    const key = "holdfast:lock:of before";
    const [alone, beside, next] = [
      claimOf("of before", { tokenAtLeast: 7 }),
      claimOf("of before"),
      claimOf("of before"),
    ];
    await engine.claim(alone);
    const times = async (): Promise<unknown> => {
      const state = await stateOf(engine, "of before");
      return [
        ...(state?.holders ?? []).map(({ heldMs }) => heldMs),
        ...(state?.waiters ?? []).map((one) => one.waitingMs),
      ];
    };
    expect(await times()).toEqual([expect.any(Number)]);
    // Its heartbeat wrote the time of that heartbeat.
    await raw.set(
      key,
      ((await raw.get(key)) ?? "").replace(/^\d+/, (second) => String(Number(second) + 1)),
      "KEEPTTL",
    );
    expect(await times()).toEqual([undefined]);
    expect((await engine.renew([alone]))[0]).toMatchObject({ kind: "granted" });
    expect(await times()).toEqual([undefined]);
    // Moves into a hash, where a request has the token that it suggests.
    await engine.claim(beside);
    await engine.claim(next);
    expect(await times()).toEqual([undefined, expect.any(Number), expect.any(Number)]);
    for (const suggested of ["0", "1797000000000000"]) {
      const field = `c:${beside.id}`;
      await raw.hset(key, field, ((await raw.hget(key, field)) ?? "").replace(/^(\d+) \d+/, `$1 ${suggested}`));
      expect(await times()).toEqual([undefined, undefined, expect.any(Number)]);
    }
    expect(await engine.release(alone)).toBe("released");
    expect(await times()).toEqual([expect.any(Number), expect.any(Number)]);
    for (const claim of [beside, next]) expect(await engine.release(claim)).toBe("released");
  });

  test("pitfall 34: the token is minted in the step that queues the claim, and the hand-over grants it in one more", async () => {
    const mine = await ownServer();
    const [a, b] = [await open(mine.url), await open(mine.url)];
    const [one, two] = [claimOf("m"), claimOf("m")];
    await a.claim(one);
    const { token } = (await b.claim(two)) as { token: number };
    const before = await calls(mine.port, "evalsha");
    await a.release(one);
    expect((await calls(mine.port, "evalsha")) - before).toBe(1);
    const [state] = await states(a, { name: "m" });
    expect(state?.holders.map((holder) => [holder.id, holder.token])).toEqual([[two.id, token]]);
    expect(state?.lastToken).toBe(token);
  });

  test("pitfall 36: leases and tokens go by the server's clock, whatever the client's says", async () => {
    const wrong = {
      now: () => 0,
      wallMs: () => 0,
      after: (ms: number, run: () => void) => setTimeout(run, ms),
      cancel: (timer: object) => clearTimeout(timer as NodeJS.Timeout),
    };
    const engine = await open(server.url, { clock: wrong });
    const claim = claimOf("clock", { leaseMs: 400 });
    const granted = await engine.claim(claim);
    expect(granted).toMatchObject({ kind: "granted", leftMs: 400 });
    expect((granted as { token: number }).token).toBeGreaterThan(1.7e15);
    await sleep(600);
    expect((await engine.renew([claim]))[0]?.kind).toBe("gone");
  });

  test("pitfall 50: a claim that is asked again carries the time left in that very step", async () => {
    const engine = await open();
    const claim = claimOf("again", { leaseMs: 5000 });
    const first = (await engine.claim(claim)) as { leftMs: number; token: number };
    await sleep(300);
    const second = (await engine.claim(claim)) as { leftMs: number; token: number };
    expect(second.token).toBe(first.token);
    expect(second.leftMs).toBeLessThanOrEqual(first.leftMs - 290);
    await engine.release(claim);
  });

  test("pitfall 54, 62: a claim that arrives after its release, known or not, is gone", async () => {
    const engine = await open();
    const [never, twice] = [claimOf("late"), claimOf("late")];
    await engine.release(never);
    expect((await engine.claim(never)).kind).toBe("gone");
    await engine.claim(twice);
    await engine.release(twice);
    expect((await engine.claim(twice)).kind).toBe("gone");
    const ttl = Number(/:(-?\d+)/.exec(await command(server.port, "PTTL holdfast:lock:late"))?.[1]);
    expect(ttl).toBeGreaterThan(60_000);
  });

  test("pitfall 61: queued answers and pushes carry the claim's own token, by which a stale push is known", async () => {
    const [a, b] = [await open(), await open()];
    const events = listening(b);
    const [one, two] = [claimOf("stale"), claimOf("stale")];
    const first = (await a.claim(one)) as { token: number };
    const { token } = (await b.claim(two)) as { token: number };
    expect(token).toBeGreaterThan(first.token);
    await a.release(one);
    await until("the push", () => events.length > 0);
    expect(events[0]).toMatchObject({ kind: "granted", id: two.id, token });
    await b.release(two);
  });
});

describe("keys", () => {
  test("pitfall 32, 47: ten thousand names leave no key behind after their idle time", async () => {
    const mine = await ownServer();
    const engine = await open(mine.url, { idleMs: 300 });
    for (let from = 0; from < 10_000; from += 1000) {
      const claims = Array.from({ length: 1000 }, (_, n) => claimOf(`leak ${from + n}`, { leaseMs: 1000 }));
      await Promise.all(claims.map((claim) => engine.claim(claim)));
      // Half are given back, half are abandoned, with a waiter each that is abandoned too.
      await Promise.all(
        claims.map((claim, n) =>
          n % 2
            ? engine.release({ ...claim, tombstone: "never" })
            : engine.claim(claimOf(claim.name, { leaseMs: 1000 })),
        ),
      );
    }
    await until(
      "no key is left but the layout's version",
      async () => (await command(mine.port, "DBSIZE")) === ":1\r\n",
    );
  });

  test.each([
    "1",
    "hello",
    "123456789012345",
    "0x123456789abcdef0",
    "1.7948967169000000",
    " 1794896716900000",
    "-1794896716900000",
    "",
  ])("a string %j of another program is refused, and stays", async (text) => {
    const engine = await open();
    const client = new Redis(server.port);
    onTestFinished(() => client.disconnect());
    await client.set("holdfast:lock:another program", text);
    const claim = claimOf("another program");
    for (const wait of [false, true]) {
      await expect(engine.claim({ ...claim, wait })).rejects.toBeInstanceOf(EngineRefusedError);
    }
    await expect(engine.release(claim)).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(engine.renew([claim])).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(engine.setCapacity("another program", 1, 2)).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(stateOf(engine, "another program")).rejects.toBeInstanceOf(EngineRefusedError);
    expect(await client.get("holdfast:lock:another program")).toBe(text);
  });

  test.each(["not JSON", '"text"', "null", '{"client":1}', '{"client":"c","host":"h","pid":1,"label":{}}'])(
    "a claim whose owner another program wrote as %s is shown, and told to who waits",
    async (owner) => {
      const engine = await open();
      const client = new Redis(server.port);
      onTestFinished(() => client.disconnect());
      const held = claimOf(`owner ${owner}`, { leaseMs: 60_000 });
      const key = `holdfast:lock:${held.name}`;
      await engine.claim(held);
      const written = JSON.stringify(held.owner);
      const value = String(await client.get(key));
      expect(value).toContain(written);
      await client.set(
        key,
        value.replace(written, () => owner),
      );
      const unknown = { client: owner, host: "unknown", pid: 0 };
      expect(await stateOf(engine, held.name)).toMatchObject({ holders: [{ id: held.id, owner: unknown }] });
      const busy = await engine.claim(claimOf(held.name, { wait: false }));
      expect(busy).toMatchObject({ kind: "busy", holder: unknown });
      await engine.release({ ...held, tombstone: "never" });
    },
  );

  test("an idle name keeps its last token, and nothing else", async () => {
    const engine = await open();
    const claim = claimOf("idle");
    const { token } = (await engine.claim(claim)) as { token: number };
    await engine.release({ ...claim, tombstone: "never" });
    expect(await command(server.port, "GET holdfast:lock:idle")).toContain(`$16\r\n${token}\r\n`);
  });

  test("the token does not go back when the server's clock does, while its record lasts", async () => {
    const engine = await open();
    const high = claimOf("high", { tokenAtLeast: 8e15 });
    await engine.claim(high);
    await engine.release({ ...high, tombstone: "never" });
    expect(await engine.claim(claimOf("high"))).toMatchObject({ token: 8e15 + 1 });
  });

  test("tombstones of the last minute are kept, older ones are cleared by the traffic of the name", async () => {
    const engine = await open();
    for (let n = 0; n < 50; n += 1) await engine.release(claimOf("tombstones"));
    const count = async (): Promise<number> =>
      (await command(server.port, "HKEYS holdfast:lock:tombstones"))
        .split("\r\n")
        .filter((line) => line.startsWith("t:")).length;
    expect(await count()).toBe(50);
    // As if a minute had passed.
    const old = (await command(server.port, "HKEYS holdfast:lock:tombstones")).match(/t:[\w-]+/g) ?? [];
    for (const field of old) await command(server.port, `HSET holdfast:lock:tombstones ${field} 1`);
    for (let n = 0; n < 50; n += 1) await engine.release(claimOf("tombstones"));
    expect(await count()).toBe(50);
  });

  test.each([
    ["a claim", (engine: Engine, name: string) => engine.claim(claimOf(name))],
    ["a renewal", (engine: Engine, name: string) => engine.renew([claimOf(name)])],
    [
      "a release without a tombstone",
      (engine: Engine, name: string) => engine.release({ ...claimOf(name), tombstone: "never" }),
    ],
    ["inspect", (engine: Engine, name: string) => states(engine, { name })],
  ])("tombstones that are over are cleared by whatever comes next: %s", async (what, touch) => {
    const engine = await open();
    for (const held of [false, true]) {
      const name = `over ${what} ${held}`;
      const key = `holdfast:lock:${name}`;
      const client = new Redis(server.port);
      onTestFinished(() => client.disconnect());
      const holder = claimOf(name);
      const late = Array.from({ length: 150 }, () => claimOf(name));
      for (const claim of late) await engine.release(claim);
      if (held) await engine.claim(holder);
      // As if a minute had passed.
      const tombstones = (await client.hkeys(key)).filter((field) => field.startsWith("t:"));
      expect(tombstones.length).toBe(150);
      await client.hset(key, Object.fromEntries([...tombstones, "tombstonesEnd"].map((field) => [field, "1"])));
      for (let n = 0; n < 2; n += 1) await touch(engine, name);
      const left = (await client.hkeys(key)).filter((field) => /^(t|x):|^tomb/.test(field));
      expect(left).toEqual([]);
      if (held) expect((await engine.renew([holder]))[0]?.kind).toBe("granted");
    }
  });

  test("the renewals of a hold that nobody waits for clear tombstones that are over, and a tombstone counts for its time only", async () => {
    const engine = await open();
    const client = new Redis(server.port);
    onTestFinished(() => client.disconnect());
    const [holder, late] = [claimOf("renewed tombstones"), claimOf("renewed tombstones")];
    await engine.release(late);
    await engine.claim(holder);
    expect((await engine.claim(late)).kind).toBe("gone");
    const key = "holdfast:lock:renewed tombstones";
    await client.hset(key, { [`t:${late.id}`]: "1", tombstonesEnd: "1" });
    expect((await engine.claim({ ...late, wait: false })).kind).toBe("busy");
    await engine.renew([holder]);
    expect((await client.hkeys(key)).filter((field) => field.startsWith("t"))).toEqual([]);
    expect(await engine.release(holder)).toBe("released");
  });

  test("a tombstone that is over and left anew is cleared away when that is over, too", async () => {
    const engine = await open();
    const client = new Redis(server.port);
    onTestFinished(() => client.disconnect());
    const [again, other] = [claimOf("tombstone anew"), claimOf("tombstone anew")];
    const key = "holdfast:lock:tombstone anew";
    const over = (id: string) => client.hset(key, { [`t:${id}`]: "1", tombstonesEnd: "1" });
    for (const behind of [[], [other]]) {
      for (const claim of [...behind, again]) await engine.release(claim);
      await over(again.id);
      expect(await engine.release(again)).toBe("gone");
      expect(await engine.release(again)).toBe("revoked");
      for (const { id } of [...behind, again]) await over(id);
      await engine.claim(claimOf("tombstone anew", { leaseMs: 100 }));
      expect((await client.hkeys(key)).filter((field) => /^(t|x):|^tomb/.test(field))).toEqual([]);
      await client.del(key);
    }
  });

  test("among tombstones that count, one whose time is over does not: it may be claimed, and a renewal or release says gone", async () => {
    const engine = await open();
    const client = new Redis(server.port);
    onTestFinished(() => client.disconnect());
    const [counts, over] = [claimOf("one tombstone"), claimOf("one tombstone")];
    const releaseAll = async (): Promise<void> => {
      for (const claim of [counts, over]) await engine.release(claim);
      await client.hset("holdfast:lock:one tombstone", { [`t:${over.id}`]: "1" });
    };
    await releaseAll();
    expect(await engine.renew([counts, over])).toEqual([{ kind: "gone", revoked: true }, { kind: "gone" }]);
    expect(await engine.release({ ...over, tombstone: "never" })).toBe("gone");
    expect((await engine.claim(counts)).kind).toBe("gone");
    expect((await engine.claim(over)).kind).toBe("granted");
    await releaseAll();
    const holder = claimOf("one tombstone");
    await engine.claim(holder);
    expect((await engine.claim(over)).kind).toBe("queued");
    for (const claim of [over, holder]) await engine.release(claim);
  });

  test("a prefix of its own, and that of the client library, keep programs apart", async () => {
    const client = new Redis(server.port, { keyPrefix: "app:" });
    onTestFinished(() => client.disconnect());
    const engine = await redisEngine(client, { prefix: "locks/" });
    onTestFinished(() => engine[Symbol.asyncDispose]());
    const events = listening(engine);
    const [one, two] = [claimOf("p*[x]"), claimOf("p*[x]")];
    await engine.claim(one);
    await engine.claim(two);
    expect(await command(server.port, 'EXISTS "app:locks/lock:p*[x]"')).toBe(":1\r\n");
    await engine.release(one);
    await until("the push", () => events.length > 0);
    expect(events[0]).toMatchObject({ kind: "granted", name: "p*[x]", id: two.id });
    const found = await states(engine, { prefix: "p*" });
    expect(found.map(({ name }) => name)).toEqual(["p*[x]"]);
    await engine.release(two);
  });
});

describe("waiting", () => {
  test("pitfall 13: one subscribed connection, whatever the number of names", async () => {
    const mine = await ownServer();
    const [a, b] = [await connected(mine.url), await connected(mine.url)];
    const holds = await Promise.all(Array.from({ length: 300 }, (_, n) => a.mutex(`n${n}`).acquire()));
    const waiting = Promise.all(Array.from({ length: 300 }, (_, n) => b.mutex(`n${n}`).acquire()));
    await until("all wait", async () => (await states(a)).every(({ waiters }) => waiters.length === 1));
    expect(await command(mine.port, "CLIENT LIST TYPE pubsub")).toMatch(/^(?!.*sub=[2-9]).*$/s);
    expect((await command(mine.port, "CLIENT LIST")).match(/^id=|\nid=/g)?.length).toBeLessThanOrEqual(5);
    await Promise.all(holds.map((hold) => hold.release()));
    await Promise.all((await waiting).map((hold) => hold.release()));
  });

  test("pitfall 14: a client that hears nothing is served by its own heartbeats", async () => {
    const a = await connected();
    const b = await connected(server.url, { wake: "poll" });
    expect([a.guarantees.wake, b.guarantees.wake]).toEqual(["push", "poll"]);
    const hold = await a.mutex("deaf").acquire();
    const waiting = b.mutex("deaf").acquire({ leaseMs: 1500 });
    await until("b waits", async () => (await waiters(a, "deaf")) === 1);
    await hold.release();
    await (await waiting).release();
  });

  test("pitfall 15: a release tells one claim of one client, and nobody else", async () => {
    const engines = [await open(), await open(), await open()] as const;
    const heard = engines.map(listening);
    const queue = engines.map(() => claimOf("herd"));
    for (const [n, claim] of queue.entries()) await engines[n]?.claim(claim);
    await engines[0].release(queue[0] ?? claimOf(""));
    await until("the push", () => heard[1]?.length === 1);
    await sleep(100);
    expect(heard.map((events) => events.length)).toEqual([0, 1, 0]);
    await engines[1].release(queue[1] ?? claimOf(""));
    await until("the next push", () => heard[2]?.length === 1);
    expect(heard.map((events) => events.length)).toEqual([0, 1, 1]);
    await engines[2].release(queue[2] ?? claimOf(""));
  });

  test("pitfall 16: dead waiters are dropped by the server's clock, live ones keep their order", async () => {
    const engine = await open();
    const holder = claimOf("fair");
    await engine.claim(holder);
    const queue = Array.from({ length: 12 }, (_, n) => claimOf("fair", n % 3 ? { leaseMs: 300 } : {}));
    for (const claim of queue) await engine.claim(claim);
    const alive = queue.filter((_, n) => n % 3 === 0);
    await sleep(500);
    const order: string[] = [];
    let current = holder;
    for (let n = 0; n < alive.length; n += 1) {
      await engine.release(current);
      const [state] = await states(engine, { name: "fair" });
      const id = state?.holders[0]?.id ?? "";
      order.push(id);
      current = queue.find((claim) => claim.id === id) ?? holder;
    }
    expect(order).toEqual(alive.map(({ id }) => id));
    await engine.release(current);
    expect(await states(engine, { name: "fair" })).toEqual([]);
  });

  test("who queues behind the dead is told that it is first, and the queue stays whole", async () => {
    const engine = await open();
    const holder = claimOf("front");
    await engine.claim(holder);
    for (let n = 0; n < 3; n += 1) await engine.claim(claimOf("front", { leaseMs: 200 }));
    await sleep(400);
    const [first, second] = [claimOf("front"), claimOf("front")];
    expect(await engine.claim(first)).toMatchObject({ kind: "queued", nextMs: expect.any(Number) });
    expect(await engine.claim(second)).toMatchObject({ kind: "queued", nextMs: null });
    expect((await engine.renew([first, second])).map(({ kind }) => kind)).toEqual(["queued", "queued"]);
    for (const claim of [holder, first, second]) expect(await engine.release(claim)).toBe("released");
    expect(await states(engine, { name: "front" })).toEqual([]);
  });

  test("pitfall 59: a push that overtakes the queued answer finds its listener", async () => {
    const [a, b] = [await connected(), await connected()];
    for (let n = 0; n < 50; n += 1) {
      const hold = await a.mutex("overtaken").acquire();
      const waiting = b.mutex("overtaken").acquire();
      // Sent at the same moment: the push may come before the answer, or the claim after the release.
      await hold.release();
      await (await waiting).release();
    }
  });

  test("C4: a crashed holder's lock passes on when its lease ends", async () => {
    const child = new Child({ url: server.url, name: "crashed", acquire: { leaseMs: 1500 } });
    await child.tells("held");
    const locks = await connected();
    child.signal("SIGKILL");
    await child.exited();
    const askedAt = performance.now();
    // By the server, after that: so much is left of the dead one's lease, or it is over already.
    const leftMs = (await states(locks, { name: "crashed" }))[0]?.holders[0]?.leftMs ?? 0;
    const hold = await locks.mutex("crashed").acquire({ waitMs: 60_000 });
    expect(performance.now() - askedAt).toBeGreaterThanOrEqual(leftMs - 20);
    await hold.release();
  });

  test("a holder stopped past its lease is told when it wakes, and cannot release the next one's lock", async () => {
    const child = new Child({ url: server.url, name: "stopped", acquire: { leaseMs: 1000 } });
    const held = await child.tells("held");
    child.signal("SIGSTOP");
    const locks = await connected();
    const hold = await locks.mutex("stopped").acquire({ waitMs: 15_000 });
    expect(hold.token).toBeGreaterThan(held["token"] as number);
    child.say("check");
    child.signal("SIGCONT");
    expect(await child.tells("checked")).toMatchObject({ held: false });
    hold.throwIfLost();
    child.say("exit");
    await child.exited();
    hold.throwIfLost();
    await hold.release();
  });
});

describe("connections and servers that fail", () => {
  test("a server that is away: waiting goes on, a limit is kept, holds recover in time", async () => {
    const proxy = await Proxy.to(server.port);
    onTestFinished(() => proxy.close());
    const locks = await connected(`redis://127.0.0.1:${proxy.port}`, { callTimeoutMs: 500 });
    const other = await connected();
    const hold = await locks.mutex("mine").acquire({ leaseMs: 15_000 });
    const blocking = await other.mutex("theirs").acquire();
    const waiting = locks.mutex("theirs").acquire({ leaseMs: 15_000 });
    await until("it waits", async () => (await waiters(other, "theirs")) === 1);
    proxy.cut();
    await expect(locks.mutex("x").acquire({ waitMs: 300 })).rejects.toBeInstanceOf(EngineUnavailableError);
    await blocking.release();
    await sleep(1000);
    proxy.heal();
    // The grant was pushed to nobody; after the reconnect the waiting claim asks at once.
    await (await waiting).release();
    hold.throwIfLost();
    await until("the hold is renewed", () => hold.remainingMs > 11_000);
    await hold.release();
  });

  test("pitfall 5: a stalled server loses the hold at its deadline, and the store frees it", async () => {
    const proxy = await Proxy.to(server.port);
    onTestFinished(() => proxy.close());
    const locks = await connected(`redis://127.0.0.1:${proxy.port}`, { callTimeoutMs: 500 });
    const hold = await locks.mutex("stalled").acquire({ leaseMs: 1000 });
    const lost = new Promise((resolve) => hold.signal.addEventListener("abort", resolve));
    proxy.stall();
    await lost;
    expect(() => hold.throwIfLost()).toThrow(/lost/);
    const other = await connected();
    await (await other.mutex("stalled").acquire({ waitMs: 10_000 })).release();
    proxy.heal();
  });

  test("a server stopped (SIGSTOP) past the lease: the holder is told, and after that everything works again", async () => {
    const mine = await ownServer();
    const locks = await connected(mine.url, { callTimeoutMs: 500 });
    const hold = await locks.mutex("m").acquire({ leaseMs: 800 });
    mine.running.signal("SIGSTOP");
    await expect(locks.mutex("n").acquire({ waitMs: 400 })).rejects.toBeInstanceOf(EngineUnavailableError);
    await until("the hold is lost", () => hold.state === "lost");
    mine.running.signal("SIGCONT");
    const again = await locks.mutex("m").acquire({ waitMs: 10_000 });
    expect(again.token).toBeGreaterThan(hold.token);
    await again.release();
    // What was asked while the server stood still arrived late, and was withdrawn.
    await until("nothing is left", async () => (await states(locks)).length === 0);
  });

  test("a server restarted without its data: holds are lost, waiters ask anew, tokens still grow", async () => {
    const mine = await ownServer();
    const [a, b] = [
      await connected(mine.url, { callTimeoutMs: 500 }),
      await connected(mine.url, { callTimeoutMs: 500 }),
    ];
    const hold = await a.mutex("m").acquire({ leaseMs: 30_000 });
    const waiting = b.mutex("m").acquire({ leaseMs: 30_000 });
    await until("b waits", async () => (await waiters(a, "m")) === 1);
    await mine.running.end();
    mine.running = (await restartRedis(mine)).running;
    const next = await waiting;
    expect(next.token).toBeGreaterThan(hold.token);
    await until("a is told", () => hold.state === "lost", 30_000);
    next.throwIfLost();
    await next.release();
  }, 60_000);

  test("a server restarted with its data keeps holds and queue, and says so", async () => {
    const mine = await ownServer(["--appendonly", "yes", "--appendfsync", "always"]);
    const [a, b] = [
      await connected(mine.url, { callTimeoutMs: 500 }),
      await connected(mine.url, { callTimeoutMs: 500 }),
    ];
    expect(a.guarantees).toMatchObject({ survivesRestart: true, exclusion: "single-server" });
    const hold = await a.mutex("m").acquire({ leaseMs: 30_000 });
    const waiting = b.mutex("m").acquire({ leaseMs: 30_000 });
    await until("b waits", async () => (await waiters(a, "m")) === 1);
    await mine.running.end();
    mine.running = (await restartRedis(mine)).running;
    hold.throwIfLost();
    await hold.release();
    const next = await waiting;
    expect(next.token).toBeGreaterThan(hold.token);
    await next.release();
  }, 60_000);

  test("a client handed in that queues while it is offline stalls nothing", async () => {
    const proxy = await Proxy.to(server.port);
    onTestFinished(() => proxy.close());
    const client = new Redis(proxy.port, { maxRetriesPerRequest: null });
    client.on("error", () => {});
    onTestFinished(() => client.disconnect());
    const engine = await inSomeTries(() => redisEngine(client, { callTimeoutMs: 300 }));
    onTestFinished(() => engine[Symbol.asyncDispose]());
    proxy.cut();
    const claim = claimOf("offline");
    // Both end although the client would keep them until it is connected again.
    await expect(engine.claim(claim)).rejects.toThrow(/no answer within 300 ms/);
    await expect(engine.renew([claim])).rejects.toThrow(/no answer/);
    proxy.heal();
    await until("it is back", () =>
      engine.release(claim).then(
        () => true,
        () => false,
      ),
    );
  });

  test.each(["ioredis", "node-redis"])(
    "%s without a connection says that nothing was sent, and works again",
    async (library) => {
      const proxy = await Proxy.to(server.port);
      onTestFinished(() => proxy.close());
      const client =
        library === "ioredis"
          ? new Redis(proxy.port, {
              enableOfflineQueue: false,
              autoResendUnfulfilledCommands: false,
              lazyConnect: true,
            })
          : createClient({ disableOfflineQueue: true, socket: { port: proxy.port, reconnectStrategy: 50 } });
      client.on("error", () => {});
      await client.connect();
      onTestFinished(() => (client instanceof Redis ? client.disconnect() : client.destroy()));
      const engine = await redisEngine(client);
      onTestFinished(() => engine[Symbol.asyncDispose]());
      proxy.cut();
      // What was under way when the connection broke is not known.
      await until("the library knows", () =>
        engine.claim(claimOf(`cut ${library}`)).then(
          () => false,
          (cause) => cause instanceof NotSentError && cause.message === "not connected",
        ),
      );
      proxy.heal();
      const claim = claimOf(`healed ${library}`);
      await until("it is back", () =>
        engine.claim(claim).then(
          ({ kind }) => kind === "granted",
          () => false,
        ),
      );
      expect(await engine.release(claim)).toBe("released");
    },
  );

  test("pitfall 63: a library that sends again on its own leaves no orphan: every release leaves a tombstone", async () => {
    const proxy = await Proxy.to(server.port);
    onTestFinished(() => proxy.close());
    const client = new Redis(proxy.port);
    client.on("error", () => {});
    onTestFinished(() => client.disconnect());
    const engine = await redisEngine(client);
    onTestFinished(() => engine[Symbol.asyncDispose]());
    expect(engine.resends).toBe(true);
    expect((await open()).resends).toBe(false);
    // The claim is on the wire when the wire is cut; ioredis sends it again, after it was released elsewhere.
    const claim = claimOf("resent");
    proxy.stall();
    const late = engine.claim(claim);
    await sleep(100);
    proxy.cut();
    const other = await open();
    expect(await other.release(claim)).toBe("gone");
    proxy.heal();
    expect((await late).kind).toBe("gone");
    expect(await states(other, { name: "resent" })).toEqual([]);
    // Even where the core asks for none, the tombstone is left.
    const plain = claimOf("resent");
    await engine.claim(plain);
    await engine.release({ ...plain, tombstone: "never" });
    expect((await other.claim(plain)).kind).toBe("gone");
  });

  test("pitfall 63: a claim sent once needs no tombstone where its release finds it, and gets one where it does not", async () => {
    const engine = await open();
    for (const capacity of [1, 2]) {
      const neighbour = claimOf(`once ${capacity}`, { capacity });
      if (capacity > 1) await engine.claim(neighbour);
      const claim = claimOf(neighbour.name, { capacity });
      expect((await engine.claim(claim)).kind).toBe("granted");
      expect(await engine.release({ ...claim, tombstone: "if-missing" })).toBe("released");
      // No other copy is on its way, so nobody has to be kept out.
      expect((await engine.claim(claim)).kind).toBe("granted");
      const overtaken = claimOf(neighbour.name, { capacity });
      expect(await engine.release({ ...overtaken, tombstone: "if-missing" })).toBe("gone");
      expect((await engine.claim(overtaken)).kind).toBe("gone");
    }
  });

  test("a claim that does not wait finds a mutex held and writes nothing", async () => {
    const engine = await open();
    const holder = claimOf("held alone", { leaseMs: 3000 });
    const client = new Redis(server.port);
    onTestFinished(() => client.disconnect());
    const key = "holdfast:lock:held alone";
    await client.ping();
    await engine.claim(holder);
    const before = await client.get(key);
    expect(await engine.claim(claimOf("held alone", { wait: false }))).toEqual({
      kind: "busy",
      // Until it may be worth asking again.
      nextMs: expect.any(Number),
      holder: holder.owner,
    });
    expect(await client.get(key)).toEqual(before);
    const other = claimOf("held alone", { wait: false, capacity: 2 });
    expect(await engine.claim(other)).toEqual({ kind: "mismatch", capacity: 1 });
    await until("its lease has ended", async () => {
      const answer = await engine.claim(claimOf("held alone", { wait: false }));
      return answer.kind === "granted";
    });
  });

  test("node-redis does not send again: what is unanswered when the connection ends fails", async () => {
    const proxy = await Proxy.to(server.port);
    onTestFinished(() => proxy.close());
    const client = createClient({ url: `redis://127.0.0.1:${proxy.port}` });
    client.on("error", () => {});
    await client.connect();
    onTestFinished(() => client.destroy());
    const engine = await redisEngine(client);
    onTestFinished(() => engine[Symbol.asyncDispose]());
    expect(engine.resends).toBe(false);
    const claim = claimOf("unanswered");
    proxy.stall();
    const late = engine.claim(claim).then(
      () => "answered",
      () => "failed",
    );
    await sleep(100);
    proxy.cut();
    expect(await late).toBe("failed");
    proxy.heal();
    await until("it is back", () =>
      engine.claim(claimOf("back")).then(
        () => true,
        () => false,
      ),
    );
    expect(await states(engine, { name: "unanswered" })).toEqual([]);
  });
});

describe("rights", () => {
  test("a wrong password, a missing right and a replica are refused with advice, never with a password", async () => {
    const mine = await ownServer(["--requirepass", "the-secret"]);
    for (const url of [mine.url, `redis://:wrong-secret@127.0.0.1:${mine.port}`]) {
      const opening = connect(url);
      await expect(opening).rejects.toBeInstanceOf(EngineRefusedError);
      await expect(opening).rejects.not.toThrow(/secret/);
    }
    const good = `redis://:the-secret@127.0.0.1:${mine.port}`;
    const admin = new Redis(good);
    onTestFinished(() => admin.disconnect());
    await admin.call("acl", "setuser", "poor", "on", ">poor-secret", "~other:*", "&*", "+@all");
    const poor = connect(`redis://poor:poor-secret@127.0.0.1:${mine.port}/2`);
    await expect(poor).rejects.toBeInstanceOf(EngineRefusedError);
    await expect(poor).rejects.toThrow(/docs\/rights\/redis.acl/);
    const replica = await ownServer([
      "--replicaof",
      "127.0.0.1",
      String(mine.port),
      "--masterauth",
      "the-secret",
      "--requirepass",
      "x",
    ]);
    await expect(connect(`redis://:x@127.0.0.1:${replica.port}`)).rejects.toThrow(/replica/);
  });
});

test("ack demands what a server without replicas cannot give", async () => {
  await expect(connect(server.url, { ack: "majority" })).rejects.toBeInstanceOf(UnsupportedError);
  const locks = await connected(server.url, { ack: 1, ackTimeoutMs: 50 });
  const acquiring = locks.mutex("ack").acquire();
  await expect(acquiring).rejects.toBeInstanceOf(EngineRefusedError);
  await expect(acquiring).rejects.toThrow(/0 of 1 replicas/);
  expect(await states(locks, { name: "ack" })).toEqual([]);
});
