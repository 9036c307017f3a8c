import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { HandOver } from "../../src/core/hand-over.js";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import { Program } from "./program.js";

const PROGRAM = resolve(import.meta.dirname, "sqlite-program.mjs");
const ROOM = resolve(import.meta.dirname, "sqlite-room.mjs");
const FULL = resolve(import.meta.dirname, "sqlite-full.mjs");
const FORCE = resolve(import.meta.dirname, "sqlite-force.mjs");
const folder = mkdtempSync(join(tmpdir(), "holdfast-processes-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let files = 0;
const newFile = (): string => join(folder, `${(files += 1)}.db`);

function program(what: string, file: string, name: string, options: object = {}): Program {
  return new Program(process.execPath, [PROGRAM, what, file, name, JSON.stringify(options)]);
}

async function open(file: string): Promise<Locks> {
  const locks = await connect(`sqlite:${file}`);
  onTestFinished(() => locks.close());
  return locks;
}

const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const grants = (log: string): string[] => readFileSync(log, "utf8").trimEnd().split("\n");

/** Every process on this file must let go of it within the time limit of the test. */
async function waitersOf(locks: Locks, name: string): Promise<string[]> {
  for await (const state of locks.inspect({ name })) return state.waiters.map(({ id }) => id);
  return [];
}

/** What is left of the holder's lease; 0 when nobody holds it. */
async function leftOf(locks: Locks, name: string): Promise<number> {
  for await (const state of locks.inspect({ name })) return state.holders[0]?.leftMs ?? 0;
  return 0;
}

describe("several processes on one file", { timeout: 60_000 }, () => {
  test("8 processes of 50 tasks are served in order of arrival, and none is lost", async () => {
    const [file, log] = [newFile(), join(folder, "order.log")];
    const locks = await open(file);
    const hold = await locks.mutex("hot").acquire({ leaseMs: 60_000 });
    const children = Array.from({ length: 8 }, (_, who) => program("tasks", file, "hot", { who, log, tasks: 50 }));
    let arrived: string[] = [];
    while (arrived.length < 400) {
      await sleep(50);
      arrived = await waitersOf(locks, "hot");
    }
    await hold.release();
    for (const child of children) {
      // Busy is never shown.
      expect(await child.line(1)).toEqual({ unavailable: [] });
      expect(await child.exited).toBe(0);
    }
    const served = grants(log).map((line) => line.split(" "));
    expect(served.map(([, id]) => id)).toEqual(arrived);
    const tokens = served.map(([token]) => Number(token));
    expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
    expect(new Set(tokens).size).toBe(400);
  });

  test("a holder killed by SIGKILL passes on at once, long before its lease ends", async () => {
    const file = newFile();
    const locks = await open(file);
    const waits: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      const child = program("hold", file, "killed", { leaseMs: 3_600_000 });
      await child.line(0);
      const next = locks.mutex("killed").acquire({ waitMs: 120_000 });
      while ((await waitersOf(locks, "killed")).length === 0) await sleep(5);
      const killedAt = performance.now();
      child.process.kill("SIGKILL");
      const hold = await next;
      waits.push(performance.now() - killedAt);
      await hold.release();
    }
    // The lease had an hour to go: that it was passed on at all shows that the lease did not do it.
    console.log(`SIGKILL to hand-over: ${waits.map((ms) => `${ms.toFixed(0)} ms`).join(", ")}`);
  });

  test("holder and first waiter killed together do not block those behind them", async () => {
    const file = newFile();
    const locks = await open(file);
    const dead = [program("hold", file, "both", { leaseMs: 60_000 })];
    await dead[0]?.line(0);
    dead.push(program("hold", file, "both", { leaseMs: 60_000 }));
    while ((await waitersOf(locks, "both")).length < 1) await sleep(5);
    const next = locks.mutex("both").acquire({ waitMs: 8_000 });
    while ((await waitersOf(locks, "both")).length < 2) await sleep(5);
    for (const child of dead) child.process.kill("SIGKILL");
    await (await next).release();
    // Without anybody waiting, the next one to ask finds the dead holder out.
    const last = program("hold", file, "both", { leaseMs: 60_000 });
    await last.line(0);
    last.process.kill("SIGKILL");
    await last.exited;
    const hold = await locks.mutex("both").tryAcquire();
    expect(hold).not.toBeNull();
  });

  test("a holder stopped by SIGSTOP passes on at its lease, and is told when it goes on", async () => {
    const file = newFile();
    const locks = await open(file);
    const child = program("hold", file, "stopped", { leaseMs: 2_000 });
    const { token } = await child.line<{ token: number }>(0);
    child.process.kill("SIGSTOP");
    const leftMs = await leftOf(locks, "stopped");
    const askedAt = performance.now();
    const hold = await locks.mutex("stopped").acquire({ waitMs: 20_000 });
    // By the millisecond that two clocks may disagree; a busy machine can only make it later.
    expect(performance.now() - askedAt).toBeGreaterThan(leftMs - 100);
    expect(hold.token).toBeGreaterThan(token);
    child.process.kill("SIGCONT");
    expect(await child.line(1)).toEqual({ outcome: "HOLDFAST_LOCK_LOST", state: "lost" });
    hold.throwIfLost();
    await hold.release();
  });

  test("pitfall 46: 16 processes that create the file at once all succeed", async () => {
    for (let round = 0; round < 2; round += 1) {
      const [file, log] = [newFile(), join(folder, `create-${round}.log`)];
      const options = { at: Date.now() + 1_500, log };
      const children = Array.from({ length: 16 }, () => program("once", file, "created", options));
      for (const child of children) {
        expect(await child.line(0), child.stderr).toMatchObject({ unavailable: [] });
        expect(await child.exited).toBe(0);
      }
      const tokens = grants(log).map((line) => Number(line.split(" ")[0]));
      expect(new Set(tokens).size).toBe(16);
      // Everybody has gone, and so have their mailboxes.
      expect(readdirSync(`${file}-mail`)).toEqual([]);
    }
  });

  test("a hold handed over goes on although the process that took it has ended", async () => {
    const file = newFile();
    const locks = await open(file);
    const child = program("hold", file, "handed", { leaseMs: 20_000 });
    await child.line(0);
    const rival = locks.mutex("handed").acquire({ waitMs: 20_000 });
    while ((await waitersOf(locks, "handed")).length === 0) await sleep(5);
    child.say("hand over");
    const { outcome } = await child.line<{ outcome: HandOver }>(1);
    await child.exited;
    await sleep(300);
    const adopter = await open(file);
    const hold = await adopter.adopt(outcome);
    hold.throwIfLost();
    await hold.release();
    await (await rival).release();
  });
});

describe("a forced release", { timeout: 60_000 }, () => {
  const id = "the-holder".padEnd(32, "_");

  test("a process that has handed its hold over ends by itself, also where it has no mailbox", async () => {
    const file = newFile();
    // Without a mailbox it looks by itself for as long as it holds.
    writeFileSync(`${file}-mail`, "");
    const library = resolve(import.meta.dirname, "../../dist/index.js");
    const code = `import { connect } from ${JSON.stringify(library)};
      const locks = await connect(${JSON.stringify(`sqlite:${file}`)});
      const hold = await locks.mutex("m").acquire({ leaseMs: 600 });
      console.log(JSON.stringify(hold.handOver()));`;
    const child = new Program(process.execPath, ["--input-type=module", "-e", code]);
    expect(await child.line(0)).toMatchObject({ name: "m" });
    expect(await child.exited).toBe(0);
  });

  test("a renewal between its commit and its message tells the holder the same as the message", async () => {
    const file = newFile();
    const locks = await open(file);
    const lost: string[] = [];
    locks.on("lost", ({ reason }) => lost.push(reason));
    const hold = await locks.mutex("gap").acquire({ id, leaseMs: 1_000 });
    const force = new Program(process.execPath, [FORCE, file, "gap", id]);
    expect(await force.line(0)).toBe("committed");
    // It stands still before its message: only the next renewal can tell.
    await until("the holder is told", () => lost.length > 0);
    expect({ lost, lines: force.lines, state: hold.state }).toEqual({
      lost: ["revoked"],
      lines: ["committed"],
      state: "lost",
    });
    force.say("go on");
    expect(await force.line(1)).toBe("released");
    expect(await force.exited).toBe(0);
    expect(lost).toEqual(["revoked"]);
  });

  // Needs the right to make a namespace of users, whose limits are its own.
  test.skipIf(!can("unshare", "--user", "--map-root-user", "true"))(
    "a holder that no watch is left for is told long before it renews",
    async () => {
      const file = newFile();
      const locks = await open(file);
      const limit = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"';
      const command = [
        process.execPath,
        PROGRAM,
        "told",
        file,
        "unwatched",
        JSON.stringify({ id, leaseMs: 3_600_000 }),
      ];
      const holder = new Program("unshare", ["--user", "--map-root-user", "sh", "-c", limit, "sh", ...command]);
      expect(await holder.line(0)).toMatchObject({ watched: false });
      const force = new Program(process.execPath, [FORCE, file, "unwatched", id]);
      force.say("go on");
      expect(await holder.line(1)).toEqual({ lost: "revoked", renewals: 0 });
      expect(await locks.mutex("unwatched").tryAcquire()).not.toBeNull();
    },
  );
});

function can(...[program = "", ...args]: string[]): boolean {
  try {
    execFileSync(program, args, { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

// Needs the right to make namespaces of users and of mounts.
describe.skipIf(!can("unshare", "--user", "--map-root-user", "--mount", "true"))("a disk without room", () => {
  test("holds are renewed and given back, what needs room waits for it, and nothing is refused for good", async () => {
    const place = mkdtempSync(join(folder, "small-"));
    const script = 'mount -t tmpfs -o size=400k tmpfs "$1" && shift && exec "$@"';
    const command = ["sh", "-c", script, "sh", place, process.execPath, FULL, place];
    const program = new Program("unshare", ["--user", "--map-root-user", "--mount", ...command]);
    expect(await program.line(0)).toEqual({ free: 0, outcome: "renewed" });
    expect(await program.line(1)).toEqual({ release: "released" });
    expect(await program.line(2)).toEqual({ again: "granted" });
    expect(await program.line(3)).toEqual({
      refused: { code: "HOLDFAST_ENGINE_UNAVAILABLE", message: expect.stringContaining("free some space") },
    });
    expect(await program.line(4)).toEqual({ waiting: "granted" });
    expect(await program.exited).toBe(0);
  });

  test("however much room is left: what is granted another sees, what is refused leaves nothing, and no page is broken", async () => {
    const place = mkdtempSync(join(folder, "room-"));
    const script = 'mount -t tmpfs -o size=800k tmpfs "$1" && shift && exec "$@"';
    const command = ["sh", "-c", script, "sh", place, process.execPath, ROOM, place];
    const program = new Program("unshare", ["--user", "--map-root-user", "--mount", ...command]);
    const report = await program.line<{ granted: number; refused: number; wrong: string[]; codes: string[] }>(0);
    expect(report.wrong).toEqual([]);
    expect(report.codes).toEqual(["HOLDFAST_ENGINE_UNAVAILABLE"]);
    expect(Math.min(report.granted, report.refused), JSON.stringify(report)).toBeGreaterThan(5);
    expect(await program.exited).toBe(0);
  });
});

const canUnshare = can("unshare", "--pid", "--fork", "true");

// Needs the right to make namespaces, which an ordinary user often does not have.
describe.skipIf(!canUnshare)("two PID namespaces on one file", { timeout: 60_000 }, () => {
  // The first processes of the new namespace use up the low numbers that live in ours.
  const script = 'for n in 1 2 3 4 5 6 7 8 9; do true & done; wait; exec "$@"';

  function elsewhere(what: string, file: string, name: string, options: object): Program {
    const command = [process.execPath, PROGRAM, what, file, name, JSON.stringify(options)];
    return new Program("unshare", ["--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", ...command]);
  }

  test("pitfall 52: a live holder of another namespace is not taken for dead", async () => {
    const file = newFile();
    const locks = await open(file);
    const there = elsewhere("hold", file, "namespaces", { leaseMs: 30_000 });
    await there.line(0);
    expect(await locks.mutex("namespaces").tryAcquire()).toBeNull();
    let got = false;
    const here = locks.mutex("namespaces").acquire({ waitMs: 20_000 });
    void here.then(() => (got = true));
    await sleep(600);
    expect(got).toBe(false);
    there.say("release");
    const hold = await here;
    expect(await there.line(1)).toEqual({ outcome: "released", state: "released" });
    // And the other way round: our process number does not exist over there.
    const waiter = elsewhere("hold", file, "namespaces", { leaseMs: 30_000 });
    while ((await waitersOf(locks, "namespaces")).length === 0) await sleep(5);
    await sleep(600);
    expect(waiter.lines).toEqual([]);
    hold.throwIfLost();
    await hold.release();
    await waiter.line(0);
  });
});
