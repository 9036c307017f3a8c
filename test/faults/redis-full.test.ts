import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Redis } from "ioredis";
import { expect, onTestFinished, test } from "vitest";
import { EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import type { RedisServer } from "../servers/redis.js";
import {
  claimOf,
  engineOn,
  LIBRARIES,
  type Library,
  listening,
  locksBy,
  locksOn,
  ownServer,
  states,
  waiters,
} from "./redis-rig.js";

/** A server that takes no writes for a while: its memory is full, its disk is, its replicas are away. */

function admin(server: RedisServer): Redis {
  const client = new Redis(server.port);
  onTestFinished(() => client.disconnect());
  return client;
}

/** From now on the server refuses what could need memory. */
async function fill(client: Redis): Promise<void> {
  await client.config("SET", "maxmemory", "1");
  await expect(client.set("one more", "x")).rejects.toThrow(/^OOM/);
}

const empty = (client: Redis): Promise<unknown> => client.config("SET", "maxmemory", "0");

/** Long enough for a busy machine; some renewals more than a lease has. */
const leaseMs = 2000;
const RENEWALS = 7;

/** Longer than the lease, told by the renewals of a hold. */
async function severalLeases(locks: Locks, id: string): Promise<void> {
  let renewals = 0;
  locks.on("renewed", (event) => (renewals += event.id === id ? 1 : 0));
  await until("it was renewed for longer than its lease", () => renewals >= RENEWALS);
}

test.each(LIBRARIES)(
  "memory full, %s: a hold lives on for several leases, and gives back at once when nobody waits",
  async (library) => {
    const server = await ownServer();
    const client = admin(server);
    const [a, b] = [await locksBy(library, server.url), await locksBy(library, server.url)];
    const holds = [
      await a.mutex("alone").acquire({ leaseMs }),
      await a.semaphore("beside others", 3).acquire({ leaseMs }),
      await a.semaphore("beside others", 3).acquire({ leaseMs }),
    ];
    await fill(client);
    await Promise.all(holds.map(({ id }) => severalLeases(a, id)));
    for (const hold of holds) hold.throwIfLost();
    for (const hold of holds) await hold.release();
    expect(await states(b)).toEqual([]);
    await empty(client);
    await (await b.mutex("alone").acquire({ waitMs: 0 })).release();
  },
  30_000,
);

test("memory full: the first call of a release is served, not only the next one", async () => {
  const server = await ownServer();
  const engine = await engineOn(server.url);
  const claims = ["alone", "too"].map((name) => claimOf(name));
  for (const claim of claims) await engine.claim(claim);
  await fill(admin(server));
  for (const claim of claims) expect(await engine.release({ ...claim, tombstone: "never" })).toBe("released");
});

test("memory full: who waits keeps its position, and a release hands over", async () => {
  const server = await ownServer();
  const client = admin(server);
  const [a, b] = [await locksOn(server.url), await locksOn(server.url)];
  const hold = await a.mutex("m").acquire({ leaseMs });
  const both = await a.semaphore("s", 2).acquire({ permits: 2, leaseMs });
  const waiting = [b.mutex("m").acquire({ leaseMs }), b.mutex("m").acquire({ leaseMs })];
  const permit = b.semaphore("s", 2).acquire({ leaseMs });
  await until("all wait", async () => (await waiters(a, "m")) === 2 && (await waiters(a, "s")) === 1);
  await fill(client);
  await severalLeases(a, hold.id);
  for (const held of [hold, both]) held.throwIfLost();
  await hold.release();
  for (const next of waiting) await (await next).release();
  await both.release();
  await (await permit).release();
  expect(await states(a)).toEqual([]);
}, 30_000);

test.each(LIBRARIES)(
  "memory full, %s: a claim is told why, goes on waiting, and is served when there is room",
  async (library) => {
    const server = await ownServer();
    const client = admin(server);
    const locks = await locksBy(library, server.url);
    await fill(client);
    const failing = locks.mutex("m").acquire({ waitMs: 300 });
    await expect(failing).rejects.toBeInstanceOf(EngineUnavailableError);
    await expect(failing).rejects.toThrow(/memory is full.*maxmemory/);
    const told = new Promise<unknown>((resolve) => locks.on("unavailable", ({ cause }) => resolve(cause)));
    const waiting = locks.mutex("m").acquire();
    expect(String(await told)).toMatch(/memory is full/);
    await empty(client);
    await (await waiting).release();
  },
);

test("memory full: where the version of the layout cannot be written, connecting says so, and succeeds when there is room", async () => {
  const server = await ownServer();
  const client = admin(server);
  await fill(client);
  const error: unknown = await locksOn(server.url).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(EngineUnavailableError);
  expect(String(error)).toMatch(/while connecting: .*memory is full/);
  await empty(client);
  await (await locksOn(server.url)).mutex("m").using(() => {});
});

test("memory full: withdrawals, forced releases, downgrades, other capacities and inspect work", async () => {
  const server = await ownServer();
  const client = admin(server);
  const [a, b] = [await engineOn(server.url), await engineOn(server.url)];
  const events = listening(a);
  const [holder, waiter, forced, never] = ["m", "m", "f", "n"].map((name) => claimOf(name)) as [
    ReturnType<typeof claimOf>,
    ReturnType<typeof claimOf>,
    ReturnType<typeof claimOf>,
    ReturnType<typeof claimOf>,
  ];
  const wide = claimOf("wide", { capacity: 3, units: 3 });
  const many = claimOf("many", { capacity: 3 });
  for (const claim of [holder, forced, wide, many]) await a.claim(claim);
  await b.claim(waiter);
  await fill(client);
  expect((await states(b)).map(({ name }) => name).toSorted()).toEqual(["f", "m", "many", "wide"]);
  expect(await b.release(waiter)).toBe("released");
  expect(await b.release(forced)).toBe("released");
  await until("the holder is told", () => events.some(({ kind }) => kind === "lost"));
  expect(await a.renew([forced])).toEqual([{ kind: "gone", revoked: true }]);
  expect(await a.resize(wide, 1)).toBe("resized");
  expect(await a.setCapacity("many", 3, 2)).toEqual({ kind: "set" });
  // The tombstone of a claim that never came keeps its late copy out, once there is room.
  expect(await a.release(never)).toBe("gone");
  for (const claim of [holder, wide, many]) expect(await a.release({ ...claim, tombstone: "never" })).toBe("released");
  await empty(client);
  expect((await a.claim(never)).kind).toBe("gone");
});

test("memory full, the plain layout: renewed and given back, the tombstone too", async () => {
  const server = await ownServer();
  const client = admin(server);
  const locks = await locksOn(server.url, { layout: "plain" });
  const engine = await engineOn(server.url, { layout: "plain" });
  const hold = await locks.mutex("m").acquire({ leaseMs });
  const [claim, never] = [claimOf("n"), claimOf("n")];
  await engine.claim(claim);
  await fill(client);
  await severalLeases(locks, hold.id);
  hold.throwIfLost();
  await hold.release();
  expect(await engine.release(never)).toBe("gone");
  expect(await engine.release(claim)).toBe("released");
  expect(await client.exists("m", "n")).toBe(0);
  await empty(client);
  for (const late of [claim, never]) expect((await engine.claim(late)).kind).toBe("gone");
}, 30_000);

/** Settings of a server that make it refuse for a while, how they are taken back, and what a program is told. */
const passing: readonly [title: string, on: (client: Redis) => Promise<unknown>, off: typeof empty, told: RegExp][] = [
  [
    "too few replicas (NOREPLICAS)",
    (client) => client.config("SET", "min-replicas-to-write", "1"),
    (client) => client.config("SET", "min-replicas-to-write", "0"),
    /NOREPLICAS.*min-replicas-to-write/,
  ],
  [
    "a disk that cannot be written (MISCONF)",
    async (client) => {
      const [, folder = ""] = await client.config("GET", "dir");
      mkdirSync(join(folder, "dump.rdb"));
      await client.config("SET", "save", "3600 1");
      await client.bgsave();
      await until("the snapshot fails", async () => (await client.info("persistence")).includes("bgsave_status:err"));
    },
    (client) => client.config("SET", "stop-writes-on-bgsave-error", "no"),
    /MISCONF.*disk/,
  ],
  [
    "a primary that became a replica (READONLY)",
    (client) => client.replicaof("127.0.0.1", 1),
    (client) => client.replicaof("NO", "ONE"),
    /READONLY.*replica now/,
  ],
  [
    "a script that runs for too long (BUSY)",
    async (client) => {
      await client.config("SET", "busy-reply-threshold", "10");
      const other = client.duplicate();
      onTestFinished(() => other.disconnect());
      other.eval("while true do end", 0).catch(() => {});
      await until("the server is busy", () =>
        client.ping().then(
          () => false,
          (error) => /BUSY/.test(String(error)),
        ),
      );
    },
    (client) => client.script("KILL"),
    /BUSY.*SCRIPT KILL/,
  ],
];

const byLibrary = <Row extends readonly unknown[]>(rows: readonly Row[]) =>
  rows.flatMap((row) => LIBRARIES.map((library) => [library, ...row] as const));

test.each(byLibrary(passing))("%s, %s: a claim is told why, and goes on", async (library, _title, on, off, told) => {
  const server = await ownServer();
  const client = admin(server);
  const locks = await locksBy(library, server.url);
  await on(client);
  // A server that changes sides ends its connections: a claim of that moment is told so instead.
  await until("a claim is told why", async () => {
    const error: unknown = await locks
      .mutex("m")
      .acquire({ waitMs: 300 })
      .catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(EngineUnavailableError);
    return told.test(String(error));
  });
  const waiting = locks.mutex("m").acquire();
  await new Promise<unknown>((resolve) => locks.on("unavailable", resolve));
  await off(client);
  await (await waiting).release();
});

/** What no waiting mends: the server's arguments, what the program does, and what it is told. */
const forGood: readonly [
  title: string,
  args: string[],
  run: (server: RedisServer, library: Library) => Promise<unknown>,
  told: RegExp,
][] = [
  [
    "a server, or a proxy, without EVALSHA",
    ["--rename-command", "EVALSHA", ""],
    async ({ url }, library) => (await locksBy(library, url)).mutex("m").acquire(),
    /version 6.2/,
  ],
  [
    "a command of the scripts that is off",
    ["--rename-command", "SET", ""],
    async ({ url }, library) => (await locksBy(library, url)).mutex("m").acquire(),
    /renamed or off/,
  ],
  [
    "a user who may not run a command of the scripts",
    [],
    async (server, library) => {
      await admin(server).call("acl", "setuser", "u", "on", ">p", "~*", "&*", "+@all", "-set");
      return (await locksBy(library, `redis://u:p@127.0.0.1:${server.port}`)).mutex("m").acquire();
    },
    /docs\/rights\/redis.acl/,
  ],
  [
    "a database that the server does not have",
    [],
    ({ url }, library) => locksBy(library, `${url}/99`),
    /no such database/,
  ],
];

test.each(byLibrary(forGood))("%s, %s is refused for good, with advice", async (library, _title, args, run, told) => {
  const server = await ownServer(args);
  const running = run(server, library);
  await expect(running).rejects.toBeInstanceOf(EngineRefusedError);
  await expect(running).rejects.toThrow(told);
});
