import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { ConnectOptions } from "../../src/connect.js";
import type { Hold } from "../../src/core/hold.js";
import type { ZooKeeperUrlOptions } from "../../src/engines/zookeeper/index.js";
import type { Locks } from "../../src/locks.js";
import { Program } from "../process/program.js";
import { curatorJava, javaClasspath, kazooPython, startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
import { claimOf, engineOn, lastingFolder, listening, locksOn, rawOn, urlOf } from "./zookeeper-rig.js";

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper()), 60_000);
afterAll(() => server?.running.stop());

const SERVERS = resolve(import.meta.dirname, "../servers");
const ROUNDS = 60;
const LONG_MS = 120_000;

type Kind = "mutex" | "read" | "write" | "latch" | "election";
type Contender = (path: string, file: string, kind: Kind) => Program;

/** Rounds, and for how long at most; no pause between them. */
const LIMITS = [ROUNDS, LONG_MS, 0] as const;

const kazoo =
  (patterns: readonly string[], recipes: Partial<Record<Kind, string>> = {}): Contender =>
  (path, file, kind) => {
    const recipe = { mutex: "Lock", election: "Election", read: "ReadLock", write: "WriteLock", ...recipes };
    const args = [`127.0.0.1:${server.port}`, path, file, recipe[kind as keyof typeof recipe], patterns, LIMITS];
    return new Program(kazooPython(), [join(SERVERS, "kazoo-contender.py"), JSON.stringify(args)]);
  };

const curatorProgram = (program: string, ...args: readonly string[]): Program =>
  new Program(curatorJava(), [
    ...["-cp", javaClasspath(), "-Dslf4j.internal.verbosity=ERROR", join(SERVERS, "java", program)],
    ...[`127.0.0.1:${server.port}`, ...args],
  ]);

const curator: Contender = (path, file, kind) =>
  curatorProgram("Contender.java", path, file, kind === "election" ? "selector" : kind, ...LIMITS.map(String));

/** What it answers gives back what was taken. */
async function take(locks: Locks, kind: Kind, name: string): Promise<() => Promise<unknown>> {
  if (kind === "election") {
    const term = await locks.election(name).campaign();
    return () => term.resign();
  }
  const lock = kind === "read" || kind === "write" ? locks.readWrite(name)[kind] : locks.mutex(name);
  const hold = await lock.acquire();
  return () => hold.release();
}

/** Two of theirs and two of ours count in one file under one lock. The sum is exact if nobody was let in beside another. */
async function countTogether(
  contender: Contender,
  kinds: readonly Kind[],
  name: string,
  options: ConnectOptions,
  own = kinds,
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "counter");
  writeFileSync(file, "0");
  const read = (): number => Number(readFileSync(file, "utf8"));
  const theirs = kinds.map((kind) => contender(`/locks/${name}`, file, kind));
  await Promise.all(theirs.map((program) => program.line(0)));
  const locks = await locksOn(urlOf(server.port), { sessionTimeoutMs: 10_000, ...options });
  let wrong = 0;
  const ours = own.map(async (kind) => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const end = await take(locks, kind, name);
      const before = read();
      await sleep(3);
      if (read() !== before) wrong += 1;
      if (kind !== "read") writeFileSync(file, String(before + 1));
      await end();
    }
  });
  await Promise.all(ours);
  const tallies = await Promise.all(theirs.map((program) => program.line(1)));
  expect(tallies).toEqual(kinds.map(() => ({ count: ROUNDS, wrong: 0 })));
  expect(wrong).toBe(0);
  const writers = [...kinds, ...own].filter((kind) => kind !== "read").length;
  expect(read()).toBe(ROUNDS * writers);
}

describe("Kazoo on the same path", () => {
  test("its Lock and Election, our mutex and election, with its names", { timeout: LONG_MS }, async () => {
    await countTogether(kazoo([]), ["mutex", "election"], "kazoo mutex", { nodeNames: "kazoo" });
  });

  test("its Lock, told about Curator's names, and our mutex", { timeout: LONG_MS }, async () => {
    await countTogether(kazoo(["-lock-"]), ["mutex", "mutex"], "kazoo other names", {});
  });

  test("its WriteLock and our read-write lock", { timeout: LONG_MS }, async () => {
    await countTogether(kazoo([]), ["write", "write"], "kazoo rw", { nodeNames: "kazoo" }, ["write", "read"]);
  });

  test("its WriteLock, told about Curator's names, and our read-write lock", { timeout: LONG_MS }, async () => {
    const theirs = kazoo(["__READ__", "__WRIT__"]);
    await countTogether(theirs, ["write", "write"], "kazoo rw other names", {}, ["write", "read"]);
  });

  test("its ReadLock by the rule of 2.9, its WriteLock and our read-write lock", { timeout: LONG_MS }, async () => {
    const theirs = kazoo([], { read: "LaterReadLock" });
    await countTogether(theirs, ["write", "read"], "kazoo rw later", { nodeNames: "kazoo" });
  });

  // Not in a crowd: its ReadLock (2.8) also waits for writers that came after it, which wait for it, for ever.
  test("its ReadLock shares with our reader, and excludes and is excluded by our writer", {
    timeout: LONG_MS,
  }, async () => {
    const locks = await locksOn(urlOf(server.port), { nodeNames: "kazoo" });
    const lock = locks.readWrite("kazoo readers");
    const code = [
      "import sys",
      "from kazoo.client import KazooClient",
      `client = KazooClient(hosts="127.0.0.1:${server.port}")`,
      "client.start()",
      'print("0", flush=True)',
      "for line in sys.stdin:",
      '  lock = client.ReadLock("/locks/kazoo readers")',
      '  print("1" if lock.acquire(blocking=line == "wait\\n") else "0", flush=True)',
      "  sys.stdin.readline()",
      "  lock.release()",
      '  print("2", flush=True)',
    ];
    const theirs = new Program(kazooPython(), ["-c", code.join("\n")]);
    await theirs.line(0);
    const reader = await lock.read.acquire();
    theirs.say("try");
    expect(await theirs.line(1)).toBe(1);
    await reader.release();
    expect(await lock.write.tryAcquire()).toBeNull();
    theirs.say("release");
    await theirs.line(2);
    const writer = await lock.write.acquire();
    theirs.say("wait");
    await sleep(500);
    expect(theirs.lines).toHaveLength(3);
    await writer.release();
    expect(await theirs.line(3)).toBe(1);
    expect(await lock.write.tryAcquire()).toBeNull();
    theirs.say("release");
    await theirs.line(4);
    await (await lock.write.acquire()).release();
  });
});

describe("Curator on the same path", () => {
  test("its InterProcessMutex and LeaderSelector, our mutex and election", { timeout: LONG_MS }, async () => {
    await countTogether(curator, ["mutex", "election"], "curator mutex", {});
  });

  test("its InterProcessReadWriteLock and our read-write lock", { timeout: LONG_MS }, async () => {
    await countTogether(curator, ["write", "read"], "curator rw", {});
  });

  test("its LeaderLatch, our mutex and election, with its names", { timeout: LONG_MS }, async () => {
    const options = { nodeNames: "curator-latch" } as const;
    await countTogether(curator, ["latch", "latch"], "curator latch", options, ["mutex", "election"]);
  });

  test("its LeaderLatch does not see nodes with other names: that is why there are names for it", {
    timeout: LONG_MS,
  }, async () => {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const holdBeside = async (
      nodeNames: NonNullable<ZooKeeperUrlOptions["nodeNames"]>,
    ): Promise<{ hold: Hold; latch: Program }> => {
      const locks = await locksOn(urlOf(server.port), { nodeNames });
      const hold = await locks.mutex(`latch beside ${nodeNames}`).acquire();
      const file = join(folder, nodeNames);
      writeFileSync(file, "0");
      return { hold, latch: curator(`/locks/latch beside ${nodeNames}`, file, "latch") };
    };
    const [seen, unseen] = await Promise.all([holdBeside("curator-latch"), holdBeside("curator")]);
    // Without its word in it our node is sorted behind the latch's, which came later.
    expect(await unseen.latch.line(1)).toEqual({ count: ROUNDS, wrong: 0 });
    await seen.latch.line(0);
    expect(readFileSync(join(folder, "curator-latch"), "utf8")).toBe("0");
    await seen.hold.release();
    expect(await seen.latch.line(1)).toEqual({ count: ROUNDS, wrong: 0 });
  });
});

// Decision 22: what these tests show is why.
describe("semaphores are not shared", () => {
  const permits = async (theirs: Program, count: number): Promise<readonly unknown[]> => {
    const got = [];
    for (let n = 0; n < count; n += 1) {
      theirs.say("take");
      got.push(await theirs.line(theirs.lines.length));
    }
    return got;
  };

  test("Curator's keeps its nodes in two folders below the path, and neither side counts the other's", {
    timeout: LONG_MS,
  }, async () => {
    const ours = (await locksOn(urlOf(server.port))).semaphore("curator permits", 2);
    await Promise.all([ours.acquire(), ours.acquire()]);
    const theirs = curatorProgram("Permits.java", "/locks/curator permits", "2");
    await theirs.line(0);
    expect(await permits(theirs, 3)).toEqual([true, true, false]);
    expect(await ours.available()).toBe(0);
  });

  test("Curator's first in the queue takes its permit itself: one that stands still keeps the others from free permits", {
    timeout: LONG_MS,
  }, async () => {
    const raw = await rawOn(server.port);
    await lastingFolder(raw, "/locks/curator head/locks");
    const theirs = curatorProgram("Permits.java", "/locks/curator head", "2");
    await theirs.line(0);
    expect(await permits(theirs, 1)).toEqual([true]);
    const head = await raw.create("/locks/curator head/locks/_c_x-lock-", Buffer.alloc(0), "ephemeral-sequential");
    expect(await permits(theirs, 1)).toEqual([false]);
    await raw.remove(head.path);
    expect(await permits(theirs, 1)).toEqual([true]);
  });

  test("Kazoo's counts our nodes, whoever waits too, and we do not count its", { timeout: LONG_MS }, async () => {
    const path = "/locks/kazoo permits";
    const code = [
      "import json, sys",
      "from kazoo.client import KazooClient",
      `client = KazooClient(hosts="127.0.0.1:${server.port}")`,
      "client.start()",
      "print(0, flush=True)",
      "for number, line in enumerate(sys.stdin):",
      `  semaphore = client.Semaphore("${path}", max_leases=2)`,
      // Its own names are 32 random hexadecimal digits: one in a hundred looks like a sequential node.
      `  semaphore.create_path = f"${path}/lease {number}"`,
      "  print(json.dumps(semaphore.acquire(blocking=False)), flush=True)",
    ];
    const theirs = new Program(kazooPython(), ["-c", code.join("\n")]);
    await theirs.line(0);
    const ours = (await locksOn(urlOf(server.port))).semaphore("kazoo permits", 2);
    const held = await Promise.all([ours.acquire(), ours.acquire()]);
    expect(await permits(theirs, 1)).toEqual([false]);
    await Promise.all(held.map((hold) => hold.release()));
    expect(await permits(theirs, 3)).toEqual([true, true, false]);
    expect(await ours.available()).toBe(2);
  });
});

test("who leads is told as another library wrote it", async () => {
  const raw = await rawOn(server.port);
  const locks = await locksOn(urlOf(server.port), { nodeNames: "curator-latch" });
  await lastingFolder(raw, "/locks/their leader");
  const election = locks.election("their leader");
  await (await election.campaign()).resign();
  const path = "/locks/their leader/_c_x-latch-";
  const theirs = await raw.create(path, Buffer.from("10.0.0.1:8080"), "ephemeral-sequential");
  expect(await election.leader()).toMatchObject({ value: "10.0.0.1:8080", owner: { host: "unknown" } });
  await raw.remove(theirs.path);
  await raw.create(path, Buffer.alloc(2000, "x"), "ephemeral-sequential");
  expect(await election.leader()).toMatchObject({ value: "" });
});

test("a node that nobody knows counts as one that takes all, and a tombstone as nobody", async () => {
  const raw = await rawOn(server.port);
  const engine = await engineOn(urlOf(server.port));
  const events = listening(engine);
  const first = claimOf("foreign", { capacity: 3 });
  expect((await engine.claim(first)).kind).toBe("granted");
  const stranger = await raw.create("/locks/foreign/x-", Buffer.from("not json"), "ephemeral-sequential");
  const second = claimOf("foreign", { capacity: 3 });
  expect(await engine.claim(second)).toMatchObject({ kind: "queued" });
  expect(await engine.release(first)).toBe("released");
  expect((await engine.renew([second]))[0]).toMatchObject({ kind: "queued", holder: { host: "unknown" } });
  await raw.remove(stranger.path);
  await expect.poll(() => events.some((event) => event.kind !== "warning" && event.id === second.id)).toBe(true);
  expect((await engine.renew([second]))[0]?.kind).toBe("granted");
  expect(await engine.release(second)).toBe("released");
});
