import { execFileSync, spawn } from "node:child_process";
import { readdirSync, readFileSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import { TOMBSTONE_MS } from "../../src/core/limits.js";
import { sqliteEngine } from "../../src/engines/sqlite/index.js";
import { ThisMachine } from "../../src/engines/sqlite/machine.js";
import { settle } from "../../src/testing/fake-clock.js";
import { until } from "../servers/process.js";
import { watch } from "./rig.js";
import { claimOf, EMPTY, sqliteRig } from "./sqlite-rig.js";

const DAY_MS = 24 * 60 * 60 * 1000;

/** A process of this machine that has ended. */
function deadPid(): number {
  return Number(execFileSync(process.execPath, ["-p", "process.pid"], { encoding: "utf8" }));
}

describe("time", () => {
  test("is the machine's monotonic clock, in milliseconds: the same for all processes", () => {
    const msOf = (nanos: bigint): number => Number(nanos) / 1e6;
    const machine = new ThisMachine();
    for (let n = 0; n < 20; n += 1) {
      const before = msOf(process.hrtime.bigint());
      const now = machine.now();
      // A thousandth of a millisecond for what is rounded.
      expect(now).toBeGreaterThanOrEqual(before - 0.001);
      expect(now).toBeLessThanOrEqual(msOf(process.hrtime.bigint()) + 0.001);
    }
  });

  test("pitfall 36: a wall clock stepped either way frees nothing and keeps nothing", async () => {
    const rig = sqliteRig();
    const [a, b] = [await rig.open(), await rig.open()];
    const first = await a.engine.claim(claimOf("m", "first"));
    rig.clock.stepWall(DAY_MS);
    expect((await b.engine.claim(claimOf("m", "early", { wait: false }))).kind).toBe("busy");
    rig.clock.stepWall(-2 * DAY_MS);
    rig.clock.stall(10_000);
    const second = await b.engine.claim(claimOf("m", "second", { wait: false }));
    if (first.kind !== "granted" || second.kind !== "granted") throw new Error("both were granted in turn");
    // The calendar went back; tokens do not.
    expect(second.token).toBeGreaterThan(first.token);
    await b.engine.release({ name: "m", id: "second" });
    await b.engine.maintenance();
    expect(rig.rows()).toEqual({ ...EMPTY, tombstone: 1 });
    const third = await a.engine.claim(claimOf("m", "third"));
    expect(third).toMatchObject({ kind: "granted" });
    if (third.kind === "granted") expect(third.token).toBeGreaterThan(second.token);
  });

  test("after a restart of the machine each lease lasts as long as it can have lasted, and no process guards it", async () => {
    const rig = sqliteRig();
    const before = await rig.open({ boot: "one" });
    await before.engine.claim(claimOf("sole", "s", { leaseMs: 5_000 }));
    await before.engine.claim(claimOf("queue", "holder", { leaseMs: 5_000 }));
    await before.engine.claim(claimOf("queue", "waiter", { leaseMs: 60_000 }));
    rig.clock.stall(4_000);
    // The clock starts again at a smaller number, in a boot in which that process number is somebody else's.
    const later = { boot: "two", now: () => rig.clock.now() - 4_000 };
    const after = await rig.open({ ...later, hasEnded: (process) => process !== "" });
    for (const name of ["sole", "queue"])
      expect((await after.engine.claim(claimOf(name, "new", { wait: false }))).kind).toBe("busy");
    rig.clock.stall(4_900);
    expect((await after.engine.claim(claimOf("sole", "new2", { wait: false }))).kind).toBe("busy");
    rig.clock.stall(200);
    expect((await after.engine.claim(claimOf("sole", "new3", { wait: false }))).kind).toBe("granted");
    expect((await after.engine.renew([{ name: "queue", id: "waiter" }]))[0]?.kind).toBe("granted");
  });

  test("two machines on one file: the first is shut out, the second waits for its leases", async () => {
    const rig = sqliteRig();
    const one = await rig.open({ boot: "one" });
    await one.engine.claim(claimOf("m", "id"));
    const two = await rig.open({ boot: "two", now: () => rig.clock.now() + 1e9 });
    await expect(one.engine.renew([{ name: "m", id: "id" }])).rejects.toThrow(EngineRefusedError);
    await expect(one.engine.claim(claimOf("n", "id"))).rejects.toThrow(/another machine/);
    const write = { name: "cell", operation: "op", expected: 0, value: "v" };
    await expect(one.engine.cells?.write(write)).rejects.toThrow(/another machine/);
    expect((await two.engine.claim(claimOf("m", "new", { wait: false }))).kind).toBe("busy");
    rig.clock.stall(10_001);
    expect((await two.engine.claim(claimOf("m", "newer", { wait: false }))).kind).toBe("granted");
  });

  test("two machines on one file: the first removes nothing of the second's, whose times it cannot compare", async () => {
    const rig = sqliteRig();
    const one = await rig.open({ boot: "one", now: () => rig.clock.now() + 1e9 });
    const two = await rig.open({ boot: "two" });
    await two.engine.claim(claimOf("m", "id"));
    await two.engine.release({ name: "m", id: "id" });
    await expect(one.engine.maintenance()).rejects.toThrow(/another machine/);
    expect((await two.engine.claim(claimOf("m", "id"))).kind).toBe("gone");
  });

  test("what was released or written before a restart is known after it: late copies change nothing", async () => {
    const rig = sqliteRig();
    const before = await rig.open({ boot: "one" });
    await before.engine.release({ name: "m", id: "late" });
    const write = { name: "cell", operation: "once", expected: 0, value: "x" };
    const written = await before.engine.cells?.write(write);
    expect(written?.kind).toBe("written");
    await before.engine[Symbol.asyncDispose]();
    // The clock starts again at a much smaller number, or went on.
    for (const [boot, startedMs] of [
      ["two", 0],
      ["three", 1e9],
    ] as const) {
      const after = await rig.open({ boot, now: () => rig.clock.now() + startedMs });
      expect(await after.engine.claim(claimOf("m", "late")), boot).toEqual({ kind: "gone" });
      expect(await after.engine.cells?.write(write), boot).toEqual(written);
      await after.engine[Symbol.asyncDispose]();
    }
  });

  // A name that somebody holds alone keeps that in its own row; beside others each claim has one.
  test.each([1, 2])(
    "where no boot can be told from another, a clock that started again is found by the end of a lease that is too late: of %i",
    async (capacity) => {
      const rig = sqliteRig();
      const before = await rig.open({ boot: "unknown", now: () => rig.clock.now() + 1e9 });
      const ids = Array.from({ length: capacity }, (_, n) => `id ${n}`);
      for (const id of ids) await before.engine.claim(claimOf("m", id, { capacity }));
      const after = await rig.open({ boot: "unknown" });
      const ask = { capacity, wait: false };
      expect((await after.engine.claim(claimOf("m", "new", ask))).kind).toBe("busy");
      rig.clock.stall(10_001);
      expect((await after.engine.claim(claimOf("m", "newer", ask))).kind).toBe("granted");
    },
  );
});

describe("the life of a process", () => {
  const real = new ThisMachine();
  const [namespace = "", pid = "", start = ""] = real.process.split(" ");

  test.skipIf(process.platform !== "linux")(
    "a process that ended, and whose end nobody asked for, counts as gone",
    async () => {
      // A shell that starts something and becomes a program that knows nothing of it. Only then it ends: a shell would ask for its end.
      const parent = spawn("sh", ["-c", "exec 3<&0; cat <&3 & echo $!; exec sleep 60"], {
        stdio: ["pipe", "pipe", "ignore"],
      });
      onTestFinished(() => void parent.kill("SIGKILL"));
      const zombie = await new Promise<number>((resolve) =>
        parent.stdout.once("data", (text) => resolve(Number(text))),
      );
      await until("it is no shell any more", () => readFileSync(`/proc/${parent.pid}/comm`, "utf8") === "sleep\n");
      parent.stdin.end();
      await until("it has ended", () => real.hasEnded(`${namespace} ${zombie} 0`, true));
      expect(real.hasEnded(`${namespace} ${parent.pid} 0`, true)).toBe(false);
      expect(real.hasEnded(`${namespace} ${zombie} 0`, false), "not for certain at a glance").toBe(false);
    },
  );

  test("pitfall 52: a process counts as gone only in its own PID namespace, and only for certain", () => {
    const dead = deadPid();
    expect(real.hasEnded(`${namespace} ${dead} 1`, false)).toBe(true);
    expect(real.hasEnded(`${Number(namespace) + 1} ${dead} 1`, true)).toBe(false);
    expect(real.hasEnded(real.process, true)).toBe(false);
    expect(real.hasEnded("", true)).toBe(false);
    expect(real.hasEnded(`${namespace} ${process.ppid} 0`, true)).toBe(false);
    // The number is in use again, by a process that started later.
    expect(real.hasEnded(`${namespace} ${pid} ${Number(start) - 1}`, true)).toBe(true);
    expect(real.hasEnded(`${namespace} ${pid} ${Number(start) - 1}`, false)).toBe(false);
    for (const odd of [`${namespace} 0 1`, `${namespace} -1 1`, `${namespace} x 1`, namespace])
      expect(real.hasEnded(odd, true)).toBe(false);
  });

  test("pitfall 52: claims of an ended process are removed when somebody asks; one of another namespace keeps its lease", async () => {
    const rig = sqliteRig();
    const dead = deadPid();
    const ours = await rig.open({ process: `${namespace} ${dead} 1` });
    const theirs = await rig.open({ process: `7 ${dead} 1` });
    const asker = await rig.open();
    await ours.engine.claim(claimOf("ours", "id", { capacity: 2 }));
    await theirs.engine.claim(claimOf("theirs", "id"));
    // Also when the name was in use with another capacity.
    expect((await asker.engine.claim(claimOf("ours", "new", { wait: false }))).kind).toBe("granted");
    expect((await asker.engine.claim(claimOf("theirs", "new", { wait: false }))).kind).toBe("busy");
    rig.clock.stall(10_001);
    expect((await asker.engine.claim(claimOf("theirs", "newer", { wait: false }))).kind).toBe("granted");
  });

  test("the hand-over passes a dead waiter by", async () => {
    const rig = sqliteRig();
    const holder = await rig.open();
    const dead = await rig.open({ process: `${namespace} ${deadPid()} 1` });
    const next = await rig.open();
    await holder.engine.claim(claimOf("m", "holder"));
    await dead.engine.claim(claimOf("m", "dead"));
    await next.engine.claim(claimOf("m", "next"));
    await holder.engine.release({ name: "m", id: "holder" });
    expect((await next.engine.renew([{ name: "m", id: "next" }]))[0]?.kind).toBe("granted");
  });

  test("a claim ends with the process that renewed it last: a hold that was handed over outlives the process that took it", async () => {
    const rig = sqliteRig();
    const first = await rig.open({ process: `${namespace} ${deadPid()} 1` });
    const second = await rig.open();
    for (const name of ["sole", "queued"]) {
      await first.engine.claim(claimOf(name, "hold"));
      await second.engine.renew([{ name, id: "hold" }]);
    }
    await second.engine.claim(claimOf("queued", "waiter"));
    for (const name of ["sole", "queued"])
      expect((await second.engine.claim(claimOf(name, "x", { wait: false }))).kind).toBe("busy");
  });

  test("a holder whose process ends late in a wait is noticed at once, however long another queue is", async () => {
    const rig = sqliteRig();
    const process = `${namespace} ${deadPid()} 1`;
    let ended = false;
    const holder = await rig.open({ process, hasEnded: () => false });
    const waiter = await rig.open({ hasEnded: (other) => ended && other === process });
    await holder.engine.claim(claimOf("m", "held", { leaseMs: 60_000 }));
    for (let n = 0; n < 50; n += 1) await waiter.engine.claim(claimOf("crowd", `${n}`, { leaseMs: 60_000 }));
    await waiter.engine.claim(claimOf("m", "waiting", { leaseMs: 60_000 }));
    // By then the waiter has checked many times, and would check seldom if the first check alone were early.
    await rig.clock.advance(5_000);
    ended = true;
    await rig.clock.advance(100);
    expect(waiter.events).toContainEqual(expect.objectContaining({ kind: "granted", name: "m", id: "waiting" }));
  });

  test("an engine that was closed leaves what it did not release to the lease", async () => {
    const rig = sqliteRig();
    const process = `${namespace} ${deadPid()} 1`;
    const [first, second] = [await rig.open({ process, hasEnded: () => false }), await rig.open()];
    for (const name of ["sole", "queued"]) await first.engine.claim(claimOf(name, "hold"));
    await second.engine.claim(claimOf("queued", "waiter"));
    await first.engine[Symbol.asyncDispose]();
    for (const name of ["sole", "queued"])
      expect((await second.engine.claim(claimOf(name, "x", { wait: false }))).kind).toBe("busy");
  });

  test("a hold that its client took over without a push is left to the lease too", async () => {
    const rig = sqliteRig();
    const process = `${namespace} ${deadPid()} 1`;
    const [first, second] = [await rig.open({ process, hasEnded: () => false }), await rig.open()];
    await first.engine.claim(claimOf("m", "one"));
    await first.engine.claim(claimOf("m", "two"));
    await first.engine.release({ name: "m", id: "one", to: "two" });
    await first.engine[Symbol.asyncDispose]();
    expect((await second.engine.claim(claimOf("m", "x", { wait: false }))).kind).toBe("busy");
  });
});

describe("transactions", () => {
  test("while another process writes, a file whose tables are there is opened: that only reads", async () => {
    const rig = sqliteRig();
    await rig.open();
    const writer = rig.raw();
    writer.exec("BEGIN IMMEDIATE");
    const opening = watch(rig.open());
    // Longer than whoever has to write waits for its turn.
    for (let n = 0; n < 40; n += 1) await rig.clock.advance(500);
    expect(opening.state).toBe("done");
    writer.exec("COMMIT");
  });

  test("pitfall 45: while another process writes, calls wait in order and nobody is shown that it was busy", async () => {
    const rig = sqliteRig();
    const { engine, events } = await rig.open();
    const writer = rig.raw();
    writer.exec("BEGIN IMMEDIATE");
    const calls = [
      watch(engine.claim(claimOf("m", "one"))),
      watch(engine.claim(claimOf("m", "two"))),
      watch(engine.renew([{ name: "m", id: "one" }])),
      watch(engine.release({ name: "m", id: "one" })),
    ];
    for (let n = 0; n < 50; n += 1) await rig.clock.advance(20);
    expect(calls.map(({ state }) => state)).toEqual(["pending", "pending", "pending", "pending"]);
    writer.exec("COMMIT");
    for (let n = 0; n < 50; n += 1) await rig.clock.advance(20);
    expect(calls.map(({ value }) => value)).toMatchObject([
      { kind: "granted" },
      { kind: "queued" },
      [{ kind: "granted" }],
      "released",
    ]);
    expect(events.filter(({ kind }) => kind !== "granted")).toEqual([]);
  });

  test("a process that stands still in the middle of a transaction is an unknown outcome, within a bounded time", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    const writer = rig.raw();
    writer.exec("BEGIN IMMEDIATE");
    const call = watch(engine.claim(claimOf("m", "one")));
    for (let n = 0; n < 100 && call.state === "pending"; n += 1) await rig.clock.advance(100);
    expect(call.error).toBeInstanceOf(EngineUnavailableError);
    expect(String(call.error)).toMatch(/perhaps one of them is stopped/);
    writer.exec("COMMIT");
    expect((await engine.claim(claimOf("m", "one"))).kind).toBe("granted");
  });

  test("a step that fails leaves nothing behind, and the next one works", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    await engine.claim(claimOf("m", "one"));
    const bad = { ...claimOf("m", "two"), units: "much" as unknown as number };
    await expect(engine.claim(bad)).rejects.toThrow();
    expect((await engine.claim(claimOf("m", "three"))).kind).toBe("queued");
    await engine.release({ name: "m", id: "one" });
    expect((await engine.renew([{ name: "m", id: "three" }]))[0]?.kind).toBe("granted");
  });

  test("a thousand heartbeats go out in several transactions and are all answered", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    const refs = Array.from({ length: 1000 }, (_, n) => ({ name: `n${n % 300}`, id: `id${n}` }));
    for (const { name, id } of refs) await engine.claim(claimOf(name, id, { capacity: 10 }));
    const answers = await engine.renew([...refs, { name: "n1", id: "unknown" }]);
    expect(answers.map(({ kind }) => kind)).toEqual([...refs.map(() => "granted"), "gone"]);
  });
});

describe("waking", () => {
  test("a claim that its client has let go on already is told nothing: no push, and no wake as if a message were lost", async () => {
    const rig = sqliteRig();
    const [a, b] = [await rig.open(), await rig.open()];
    await a.engine.claim(claimOf("m", "one"));
    await a.engine.claim(claimOf("m", "two"));
    await b.engine.claim(claimOf("m", "three"));
    await a.engine.release({ name: "m", id: "one", to: "two" });
    await rig.clock.advance(5_000);
    expect(a.events).toEqual([]);
    await a.engine.release({ name: "m", id: "two", to: "other" });
    await rig.clock.advance(200);
    expect(b.events).toMatchObject([{ kind: "granted", id: "three" }]);
  });

  test("a message that was lost costs a moment, not a lease: the waiter reads the store", async () => {
    const rig = sqliteRig();
    const [a, b] = [await rig.open(), await rig.open()];
    await a.engine.claim(claimOf("m", "holder"));
    await b.engine.claim(claimOf("m", "waiter"));
    const mail = `${rig.path}-mail`;
    for (const box of readdirSync(mail)) unlinkSync(join(mail, box));
    await a.engine.release({ name: "m", id: "holder" });
    await rig.clock.advance(200);
    expect(b.events).toContainEqual({ kind: "wake", name: "m", id: "waiter" });
  });

  test("a mailbox that was deleted is made anew, and everything is asked for once", async () => {
    const rig = sqliteRig();
    const { engine, events } = await rig.open();
    await engine.claim(claimOf("m", "holder"));
    await engine.claim(claimOf("m", "waiter"));
    const mail = `${rig.path}-mail`;
    const [box = ""] = readdirSync(mail);
    unlinkSync(join(mail, box));
    await rig.clock.advance(200);
    expect(readdirSync(mail)).toEqual([box]);
    expect(events).toContainEqual({ kind: "wake" });
  });

  test("without a folder for mail the engine says so and polls", async () => {
    const rig = sqliteRig();
    const first = await rig.open();
    await first.engine[Symbol.asyncDispose]();
    rmSync(`${rig.path}-mail`, { recursive: true });
    const { raw } = rig;
    raw(`${rig.path}-mail`).exec("CREATE TABLE in_the_way (x)");
    const engine = sqliteEngine(rig.path, { clock: rig.clock, machine: rig.machine() });
    const warnings: string[] = [];
    engine.listen((event) => event.kind === "warning" && warnings.push(event.message));
    await engine.claim(claimOf("m", "holder"));
    expect(warnings[0]).toMatch(/no mailbox in .*-mail, so waiting claims poll/);
    await engine.claim(claimOf("m", "waiter"));
    await engine.release({ name: "m", id: "holder" });
    await settle();
    expect((await engine.renew([{ name: "m", id: "waiter" }]))[0]?.kind).toBe("granted");
    await engine[Symbol.asyncDispose]();
  });
});

describe("pitfall 47: everything idle disappears", () => {
  test("what is asked about a name that nobody has taken leaves nothing behind", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    const ref = { name: "nobody's", id: "id" };
    await engine.release({ ...ref, tombstone: "never" });
    await engine.renew([ref]);
    await engine.resize(ref, 1);
    expect(rig.rows()).toEqual(EMPTY);
  });

  test("names, claims, tombstones and operations, as a side effect of normal use", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    for (let n = 0; n < 500; n += 1) {
      await engine.claim(claimOf(`abandoned-${n}`, "id"));
      await engine.claim(claimOf(`abandoned-${n}`, "waiter"));
      await engine.release({ name: `released-${n}`, id: "id" });
      await engine.cells?.write({ name: `cell-${n}`, operation: `op-${n}`, expected: 0, value: null });
    }
    expect(rig.rows()).toMatchObject({ claim: 1000, tombstone: 500, operation: 500 });
    rig.clock.stall(TOMBSTONE_MS + 1);
    for (let n = 0; n < 2000; n += 1) {
      await engine.claim(claimOf("busy", `id-${n}`));
      await engine.release({ name: "busy", id: `id-${n}`, tombstone: "never" });
    }
    expect(rig.rows()).toEqual({ ...EMPTY, name: 1 });
  });

  test("by maintenance(), at once: also more tombstones and operations than names", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    for (let n = 0; n < 300; n += 1) {
      await engine.release({ name: "released", id: `id-${n}` });
      await engine.cells?.write({ name: "cell", operation: `op-${n}`, expected: 0, value: null });
    }
    rig.clock.stall(TOMBSTONE_MS + 1);
    await engine.maintenance();
    expect(rig.rows()).toEqual(EMPTY);
  });

  test("by maintenance(), at once: also where a request that shares its transaction fails", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    for (let n = 0; n < 100; n += 1) await engine.claim(claimOf(`n${n}`, "id"));
    rig.clock.stall(10_001);
    // An owner that cannot be written.
    const broken = engine.claim(
      claimOf("broken", "id", { owner: { client: "c", host: "h", pid: 1n as unknown as number } }),
    );
    await Promise.all([engine.maintenance(), expect(broken).rejects.toThrow()]);
    expect(rig.rows()).toEqual(EMPTY);
  });

  test("by maintenance(), at once; and the mailboxes of dead clients", async () => {
    const rig = sqliteRig();
    const namespace = new ThisMachine().process.split(" ")[0];
    const foreign = await rig.open({ process: "7 1 1" });
    const { engine } = await rig.open();
    for (let n = 0; n < 300; n += 1) await engine.claim(claimOf(`n${n}`, "id"));
    writeFileSync(join(`${rig.path}-mail`, `${namespace}-${deadPid()}-1-${"x".repeat(22)}`), "");
    rig.clock.stall(10_001);
    expect(await engine.maintenance()).toEqual({ mailboxesRemoved: 1 });
    expect(rig.rows()).toEqual(EMPTY);
    // Ours and the one that we cannot judge.
    expect(readdirSync(`${rig.path}-mail`)).toHaveLength(2);
    await foreign.engine[Symbol.asyncDispose]();
    await engine[Symbol.asyncDispose]();
    expect(readdirSync(`${rig.path}-mail`)).toEqual([]);
  });
});
