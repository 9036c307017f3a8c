import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { ConnectOptions } from "../../src/connect.js";
import { Program } from "../process/program.js";
import { curatorJava, javaClasspath, kazooPython, startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
import { claimOf, engineOn, listening, locksOn, rawOn, urlOf } from "./zookeeper-rig.js";

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper()), 60_000);
afterAll(() => server?.running.stop());

const SERVERS = resolve(import.meta.dirname, "../servers");
const ROUNDS = 60;
const LONG_MS = 120_000;

type Kind = "mutex" | "read" | "write";
type Contender = (path: string, file: string, kind: Kind) => Program;

const kazoo =
  (patterns: readonly string[]): Contender =>
  (path, file, kind) => {
    const recipe = { mutex: "Lock", read: "ReadLock", write: "WriteLock" }[kind];
    const args = [`127.0.0.1:${server.port}`, path, file, recipe, ROUNDS, patterns];
    return new Program(kazooPython(), [join(SERVERS, "kazoo-contender.py"), JSON.stringify(args)]);
  };

const curator: Contender = (path, file, kind) => {
  const args = [`127.0.0.1:${server.port}`, path, file, kind, String(ROUNDS)];
  const program = join(SERVERS, "java/Contender.java");
  return new Program(curatorJava(), ["-cp", javaClasspath(), "-Dslf4j.internal.verbosity=ERROR", program, ...args]);
};

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
      const lock = kind === "mutex" ? locks.mutex(name) : locks.readWrite(name)[kind];
      await lock.using(async () => {
        const before = read();
        await sleep(3);
        if (read() !== before) wrong += 1;
        if (kind !== "read") writeFileSync(file, String(before + 1));
      });
    }
  });
  await Promise.all(ours);
  expect(await Promise.all(theirs.map((program) => program.line(1)))).toEqual(kinds.map(() => 0));
  expect(wrong).toBe(0);
  const writers = [...kinds, ...own].filter((kind) => kind !== "read").length;
  expect(read()).toBe(ROUNDS * writers);
}

describe("Kazoo on the same path", () => {
  test("its Lock and our mutex, with its names", { timeout: LONG_MS }, async () => {
    await countTogether(kazoo([]), ["mutex", "mutex"], "kazoo mutex", { nodeNames: "kazoo" });
  });

  test("its Lock, told about Curator's names, and our mutex", { timeout: LONG_MS }, async () => {
    await countTogether(kazoo(["-lock-"]), ["mutex", "mutex"], "kazoo other names", {});
  });

  test("its WriteLock and our read-write lock", { timeout: LONG_MS }, async () => {
    await countTogether(kazoo([]), ["write", "write"], "kazoo rw", { nodeNames: "kazoo" }, ["write", "read"]);
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
  test("its InterProcessMutex and our mutex", { timeout: LONG_MS }, async () => {
    await countTogether(curator, ["mutex", "mutex"], "curator mutex", {});
  });

  test("its InterProcessReadWriteLock and our read-write lock", { timeout: LONG_MS }, async () => {
    await countTogether(curator, ["write", "read"], "curator rw", {});
  });
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
