import { execFileSync, spawn } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  closeSync,
  constants,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { connect } from "../../src/connect.js";
import type { EngineEvent } from "../../src/core/engine.js";
import { sqliteEngine } from "../../src/engines/sqlite/index.js";
import { type Machine, ThisMachine } from "../../src/engines/sqlite/machine.js";
import { settle } from "../../src/testing/fake-clock.js";
import { claimOf, setUmask, sqliteRig } from "./sqlite-rig.js";

/** What happens in the middle of one of the engine's file operations. */
const middle = vi.hoisted(() => ({ beforeCut: () => {}, beforeRights: () => {}, space: Infinity }));

vi.mock("node:fs", async (original) => {
  const fs = await original<typeof import("node:fs")>();
  return {
    ...fs,
    fchmodSync(file: number, mode: number): void {
      middle.beforeRights();
      fs.fchmodSync(file, mode);
    },
    ftruncateSync(file: number, length: number): void {
      middle.beforeCut();
      fs.ftruncateSync(file, length);
    },
    /** A disk that is full takes a part, or nothing. */
    writeSync(file: number, data: Uint8Array | string, ...rest: []): number {
      const bytes = Buffer.from(data as string);
      if (bytes.length <= middle.space) return fs.writeSync(file, data as Uint8Array, ...rest);
      if (middle.space === 0) throw Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
      return fs.writeSync(file, bytes.subarray(0, middle.space));
    },
  };
});

const DAY_MS = 24 * 60 * 60 * 1000;
const LOST = { kind: "lost", name: "m", id: "held" };
const WAKE = { kind: "wake" };

/** A file system that tells of a change only when the test says so, and does not tell at all when its limit is reached. */
class Watches {
  full = false;
  tries = 0;
  readonly #all = new Set<{ path: string; changed: () => void; failed: () => void }>();

  readonly watch: Machine["watch"] = (path, changed, failed) => {
    this.tries += 1;
    if (this.full) throw Object.assign(new Error("EMFILE: too many open files, watch"), { code: "EMFILE" });
    const one = { path, changed, failed };
    this.#all.add(one);
    return () => this.#all.delete(one);
  };

  get count(): number {
    return this.#all.size;
  }

  tell(): void {
    for (const { changed } of [...this.#all]) changed();
  }

  fail(): void {
    for (const { failed } of [...this.#all]) failed();
  }
}

/** A holder of "m", its mailbox, and somebody else who can take the lock away. */
async function held(full = false, over: Partial<Machine> = {}) {
  const rig = sqliteRig();
  const watches = new Watches();
  watches.full = full;
  const { engine, events } = await rig.open({ watch: watches.watch, ...over });
  const mail = `${rig.path}-mail`;
  const mailbox = join(mail, readdirSync(mail)[0] ?? "");
  const other = await rig.open();
  await engine.claim(claimOf("m", "held"));
  const takeAway = () => other.engine.release({ name: "m", id: "held" });
  const renew = async () => (await engine.renew([{ name: "m", id: "held" }]))[0];
  const tell = async (): Promise<void> => {
    watches.tell();
    await settle();
  };
  const messages = (): EngineEvent[] => events.filter(({ kind }) => kind !== "warning");
  return { rig, watches, engine, events, mail, mailbox, other, takeAway, renew, tell, messages };
}

describe("a forced release reaches the holder, in whatever order things happen", () => {
  test("the message comes first, and the renewal says the same", async () => {
    const { takeAway, tell, messages, renew } = await held();
    expect(await takeAway()).toBe("released");
    await tell();
    expect(messages()).toEqual([LOST]);
    expect(await renew()).toEqual({ kind: "gone", revoked: true });
  });

  test("also where processes cannot be told apart", async () => {
    const { takeAway, tell, messages, rig, mailbox, other } = await held(false, { process: "" });
    await takeAway();
    await tell();
    expect(messages()).toEqual([LOST]);
    // Whether it lives nobody can say: it is removed when nobody has written to it for days.
    expect(await other.engine.maintenance()).toEqual({ mailboxesRemoved: 0 });
    rig.clock.stall(10 * DAY_MS);
    utimesSync(mailbox, 0, 0);
    expect(await other.engine.maintenance()).toEqual({ mailboxesRemoved: 1 });
  });

  test("the renewal comes before the message is read, and says the same", async () => {
    const { takeAway, tell, messages, renew, engine } = await held();
    await takeAway();
    expect(await renew()).toEqual({ kind: "gone", revoked: true });
    expect(await engine.release({ name: "m", id: "held", tombstone: "never" })).toBe("revoked");
    await tell();
    expect(messages()).toEqual([LOST]);
  });

  test.each([false, true])(
    "who was granted by a message is told by another when its claim is taken away (watches used up: %s)",
    async (full) => {
      const { engine, other, tell, messages, rig } = await held(full);
      const look = (): Promise<void> => (full ? rig.clock.advance(1000) : tell());
      expect((await other.engine.claim(claimOf("next", "theirs"))).kind).toBe("granted");
      await engine.release({ name: "m", id: "held" });
      expect((await engine.claim(claimOf("next", "ours"))).kind).toBe("queued");
      await other.engine.release({ name: "next", id: "theirs" });
      await look();
      expect(messages()).toMatchObject([{ kind: "granted", id: "ours" }]);
      await other.engine.release({ name: "next", id: "ours" });
      await look();
      expect(messages()).toMatchObject([{ kind: "granted" }, { kind: "lost", id: "ours" }]);
    },
  );

  test("with the user's watches used up a holder looks by itself, for as long as it holds", async () => {
    const { rig, takeAway, messages } = await held(true);
    const waiting = rig.clock.pending;
    expect(waiting).toBe(1);
    await takeAway();
    await rig.clock.advance(20);
    await settle();
    expect(messages()).toEqual([LOST]);
    await rig.clock.advance(20);
    expect(rig.clock.pending).toBe(0);
  });

  test("with the watches used up a hold that is given back leaves no timer behind", async () => {
    const { rig, engine } = await held(true);
    await rig.clock.advance(100);
    expect(rig.clock.pending).toBe(1);
    await engine.release({ name: "m", id: "held" });
    expect(rig.clock.pending).toBe(0);
    await engine.claim(claimOf("m", "again"));
    await engine[Symbol.asyncDispose]();
    expect(rig.clock.pending).toBe(0);
  });

  test("a watch that ends while the lock is held is replaced by looking", async () => {
    const { rig, watches, takeAway, messages } = await held();
    expect(rig.clock.pending).toBe(0);
    watches.full = true;
    watches.fail();
    await takeAway();
    await rig.clock.advance(20);
    await settle();
    expect(messages()).toEqual([LOST]);
  });

  test("a watch that ends while a claim waits is replaced by polling at once, however long the queue", async () => {
    const { rig, watches, engine, mailbox, other, messages } = await held();
    // The longer the queue, the less often those in it look.
    for (let n = 0; n < 100; n += 1) await other.engine.claim(claimOf("m", `ahead-${n}`));
    await engine.claim(claimOf("m", "mine"));
    await rig.clock.advance(40);
    watches.full = true;
    watches.fail();
    appendFileSync(mailbox, `${JSON.stringify(LOST)}\n`);
    await rig.clock.advance(20);
    await settle();
    expect(messages()).toEqual([LOST]);
  });

  test("when watches are to be had again the mailbox is watched, what came before is read, and polling ends", async () => {
    const { rig, watches, takeAway, messages, tell, engine } = await held(true);
    await engine.claim(claimOf("n", "other"));
    await rig.clock.advance(20);
    watches.tries = 0;
    await rig.clock.advance(5_000);
    // Every second, although it looks fifty times as often.
    expect(watches.tries).toBe(5);
    watches.full = false;
    await rig.clock.advance(1_000);
    expect(watches.count).toBe(1);
    expect(rig.clock.pending).toBe(0);
    await takeAway();
    expect(messages()).toEqual([]);
    await tell();
    expect(messages()).toEqual([LOST]);
  });

  test.each([false, true])("the mailbox was deleted, watches used up: %s", async (full) => {
    const { rig, mailbox, takeAway, messages, tell, renew } = await held(full);
    unlinkSync(mailbox);
    await takeAway();
    await tell();
    await rig.clock.advance(200);
    expect(messages()).toEqual([WAKE]);
    expect(existsSync(mailbox)).toBe(true);
    expect(await renew()).toEqual({ kind: "gone", revoked: true });
  });

  test("a mailbox that was deleted after messages had been read: messages to the new one are read from its beginning", async () => {
    const { mailbox, takeAway, messages, tell } = await held();
    appendFileSync(mailbox, `${JSON.stringify({ kind: "lost", name: "n", id: "?" })}\n`);
    await tell();
    unlinkSync(mailbox);
    await tell();
    const before = messages().length;
    await takeAway();
    await tell();
    expect(messages().slice(before)).toEqual([LOST]);
  });

  test.each([false, true])("another file has taken the mailbox's name, watches used up: %s", async (full) => {
    const { rig, mailbox, mail, takeAway, messages, tell, renew } = await held(full);
    writeFileSync(join(mail, "another"), "");
    renameSync(join(mail, "another"), mailbox);
    await takeAway();
    await tell();
    await rig.clock.advance(200);
    expect(messages()).toEqual([WAKE]);
    expect(await renew()).toEqual({ kind: "gone", revoked: true });
    // What is there now is ours again.
    expect(readFileSync(mailbox, "utf8")).toBe("");
  });

  test("somebody emptied the mailbox: messages that come after that are read", async () => {
    const { mailbox, takeAway, messages, tell, engine, other } = await held();
    await engine.claim(claimOf("n", "other"));
    await other.engine.release({ name: "n", id: "other" });
    await tell();
    truncateSync(mailbox, 0);
    await takeAway();
    await tell();
    expect(messages()).toContainEqual(LOST);
    expect(messages()).toContainEqual(WAKE);
  });

  test("a message that comes between reading and emptying a full mailbox", async () => {
    const { mailbox, takeAway, messages, tell, renew } = await held();
    appendFileSync(mailbox, `${JSON.stringify({ kind: "lost", name: "x".repeat(1000), id: "?" })}\n`.repeat(300));
    let taken: Promise<unknown> | undefined;
    middle.beforeCut = () => void (taken ??= Promise.resolve(appendFileSync(mailbox, `${JSON.stringify(LOST)}\n`)));
    onTestFinished(() => void (middle.beforeCut = () => {}));
    await takeAway();
    truncateSync(mailbox, statSync(mailbox).size - `${JSON.stringify(LOST)}\n`.length);
    await tell();
    expect(taken).toBeDefined();
    expect(statSync(mailbox).size).toBe(0);
    expect(messages()).toContainEqual(WAKE);
    expect(messages()).not.toContainEqual(LOST);
    expect(await renew()).toEqual({ kind: "gone", revoked: true });
  });

  test("after a line that is no message of ours everybody looks, and nobody is told of a loss", async () => {
    const { mailbox, tell, messages } = await held();
    const lines = [{ ...LOST, kind: "other" }, { ...LOST, kind: undefined }, { ...LOST, id: 1 }, null, "lost", 7];
    appendFileSync(mailbox, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    await tell();
    expect(messages()).toEqual(lines.map(() => WAKE));
    appendFileSync(mailbox, `${JSON.stringify(LOST)}\n`);
    await tell();
    expect(messages().at(-1)).toEqual(LOST);
  });

  test("half a message makes the holder ask, and the whole one is understood", async () => {
    const { mailbox, messages, tell } = await held();
    const line = `${JSON.stringify(LOST)}\n`;
    appendFileSync(mailbox, line.slice(0, 10));
    await tell();
    // The rest may never come.
    expect(messages()).toEqual([WAKE]);
    appendFileSync(mailbox, line.slice(10));
    await tell();
    expect(messages()).toEqual([WAKE, LOST]);
  });

  test.each([0, 10])("a disk that takes only %d bytes of the message", async (space) => {
    const { takeAway, messages, tell, renew, other, mailbox } = await held();
    middle.space = space;
    onTestFinished(() => void (middle.space = Infinity));
    expect(await takeAway()).toBe("released");
    middle.space = Infinity;
    // Of what was written, and that the mailbox is gone.
    await tell();
    await tell();
    expect(messages()).toContainEqual(WAKE);
    expect(await renew()).toEqual({ kind: "gone", revoked: true });
    expect(readFileSync(mailbox, "utf8")).toBe("");
    expect(other.events).toContainEqual({ kind: "warning", message: expect.stringContaining("could not be woken") });
  });

  test("a mailbox that could not be made is made later, and what was missed is asked for", async () => {
    const rig = sqliteRig();
    const mail = `${rig.path}-mail`;
    writeFileSync(mail, "in the way");
    const { engine, events } = await rig.open();
    const other = await rig.open();
    await engine.claim(claimOf("m", "held"));
    for (let n = 0; n < 10; n += 1) await rig.clock.advance(1_000);
    const warnings = events.filter(({ kind }) => kind === "warning");
    expect(warnings).toHaveLength(1);
    unlinkSync(mail);
    await other.engine.release({ name: "m", id: "held" });
    await rig.clock.advance(1_100);
    expect(events).toContainEqual(WAKE);
  });

  test("two names of one file: messages reach whoever opened it by the other one", async () => {
    const { rig, messages, tell } = await held();
    const alias = join(rig.folder, "alias.db");
    symlinkSync(rig.path, alias);
    const engine = sqliteEngine(alias, { clock: rig.clock, machine: rig.machine() });
    onTestFinished(() => engine[Symbol.asyncDispose]());
    expect(await engine.release({ name: "m", id: "held" })).toBe("released");
    await tell();
    expect(messages()).toEqual([LOST]);
    expect(readdirSync(rig.folder)).not.toContain("alias.db-mail");
  });

  test("a mailbox that cannot be read is said once, and does not end the program", async () => {
    const { mail, tell, events } = await held();
    rmSync(mail, { recursive: true });
    // Every way to the mailbox ends in ELOOP.
    symlinkSync(mail, mail);
    await tell();
    await tell();
    expect(events.filter(({ kind }) => kind === "warning")).toHaveLength(1);
    unlinkSync(mail);
  });
});

describe("sweeping", () => {
  const { process: own } = new ThisMachine();
  const namespace = own.split(" ")[0] ?? "";
  const old = (path: string): void => utimesSync(path, 0, 0);

  test("the mailbox of a process that lives is left alone, however long nobody wrote to it", async () => {
    const { rig, mailbox, takeAway, tell, messages } = await held();
    rig.clock.stall(10 * DAY_MS);
    old(mailbox);
    const { engine } = await rig.open();
    expect(await engine.maintenance()).toEqual({ mailboxesRemoved: 0 });
    expect(existsSync(mailbox)).toBe(true);
    await rig.open();
    await takeAway();
    await tell();
    expect(messages().filter(({ kind }) => kind === "wake")).toEqual([]);
  });

  test("a client whose process has ended, and one of another namespace, have a mailbox again and ask for what they missed", async () => {
    const dead = Number(execFileSync(process.execPath, ["-p", "process.pid"], { encoding: "utf8" }));
    for (const over of [`${namespace} ${dead} 1`, "7 1 1"]) {
      const rig = sqliteRig();
      const watches = new Watches();
      const { engine, events } = await rig.open({ process: over, watch: watches.watch });
      await engine.claim(claimOf("m", "held", { leaseOnly: true }));
      const mail = `${rig.path}-mail`;
      const [mailbox = ""] = readdirSync(mail);
      old(join(mail, mailbox));
      const other = await rig.open();
      expect(existsSync(join(mail, mailbox))).toBe(false);
      await other.engine.release({ name: "m", id: "held" });
      watches.tell();
      expect(events).toEqual([WAKE]);
      expect(existsSync(join(mail, mailbox))).toBe(true);
    }
  });

  test("what is no mailbox is left alone and keeps nobody from opening the file", async () => {
    const rig = sqliteRig();
    const mail = `${rig.path}-mail`;
    const named = (message: string): string => join(mail, `7-1-1-${message.repeat(22)}`);
    mkdirSync(named("a"), { recursive: true });
    symlinkSync(named("b"), named("b"));
    writeFileSync(join(mail, "notes"), "");
    old(named("a"));
    const { engine, events } = await rig.open();
    expect((await engine.claim(claimOf("m", "held"))).kind).toBe("granted");
    expect(readdirSync(mail)).toContain("notes");
    expect(lstatSync(named("a")).isDirectory()).toBe(true);
    expect(events).toEqual([]);
  });
});

describe("what is not a regular file of ours is refused", () => {
  const elsewhere = (rig: ReturnType<typeof sqliteRig>): string => join(rig.folder, "elsewhere");
  const fifo = (path: string): void => void execFileSync("mkfifo", [path]);
  /** What somebody reads who waits at the other end of a FIFO. */
  function reader(path: string): () => string {
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    onTestFinished(() => closeSync(file));
    const buffer = Buffer.alloc(1000);
    return () => {
      try {
        return buffer.toString("utf8", 0, readSync(file, buffer));
      } catch (error) {
        return (error as NodeJS.ErrnoException).code === "EAGAIN" ? "" : String(error);
      }
    };
  }

  test("a FIFO in place of a mailbox gets no message and keeps nobody waiting", async () => {
    const { mailbox, takeAway, other, rig } = await held();
    unlinkSync(mailbox);
    fifo(mailbox);
    const read = reader(mailbox);
    expect(await takeAway()).toBe("released");
    expect(read()).toBe("");
    expect(other.events).toMatchObject([{ kind: "warning", message: expect.stringContaining("not a regular file") }]);
    // And without anybody at its other end: whoever opens it without care waits, here until it is rescued.
    const mailboxes = (): string[] => readdirSync(`${rig.path}-mail`);
    const before = mailboxes();
    const second = await rig.open();
    const own = mailboxes().find((name) => !before.includes(name)) ?? "";
    const [path, rescued] = [join(`${rig.path}-mail`, own), join(rig.folder, "rescued")];
    await second.engine.claim(claimOf("m", "held2"));
    unlinkSync(path);
    fifo(path);
    const script = `sleep 20; : > "${rescued}"; cat "${path}" > /dev/null`;
    const rescue = spawn("sh", ["-c", script], { stdio: "ignore", detached: true });
    onTestFinished(() => void process.kill(-(rescue.pid ?? 0), "SIGKILL"));
    expect(await other.engine.release({ name: "m", id: "held2" })).toBe("released");
    expect(existsSync(rescued)).toBe(false);
  });

  test("a link in place of a mailbox leads no message elsewhere", async () => {
    for (const link of [symlinkSync, linkSync]) {
      const { mailbox, takeAway, other, rig } = await held();
      writeFileSync(elsewhere(rig), "mine\n");
      unlinkSync(mailbox);
      link(elsewhere(rig), mailbox);
      expect(await takeAway()).toBe("released");
      expect(readFileSync(elsewhere(rig), "utf8")).toBe("mine\n");
      expect(other.events).toMatchObject([{ kind: "warning" }]);
    }
  });

  test("the store cannot send a message out of the mail folder", async () => {
    const { engine, other, rig } = await held();
    writeFileSync(elsewhere(rig), "mine\n");
    for (const id of ["one", "two"]) await engine.claim(claimOf("shared", id, { capacity: 2 }));
    rig.raw().exec(`UPDATE claim SET client = '../${basename(elsewhere(rig))}'`);
    expect(await other.engine.release({ name: "shared", id: "one" })).toBe("released");
    expect(readFileSync(elsewhere(rig), "utf8")).toBe("mine\n");
    expect(other.events).toEqual([]);
  });

  test("a link named like the mail folder makes nothing elsewhere: the engine says so and works without", async () => {
    const rig = sqliteRig();
    mkdirSync(elsewhere(rig));
    symlinkSync(elsewhere(rig), `${rig.path}-mail`);
    const { engine, events } = await rig.open();
    expect((await engine.claim(claimOf("m", "held"))).kind).toBe("granted");
    await engine.cells?.write({ name: "c", operation: "o", expected: 0, value: "v" });
    engine.cells?.watch("c", () => {});
    await settle();
    expect(readdirSync(elsewhere(rig))).toEqual([]);
    expect(events).toEqual([{ kind: "warning", message: expect.stringContaining("is not a folder") }]);
  });

  /** Watches a cell through one engine, changes it through another, and answers whether the first was told. */
  async function watched(rig: ReturnType<typeof sqliteRig>, between: () => void = () => {}): Promise<boolean> {
    const watches = new Watches();
    const [one, two] = [await rig.open({ watch: watches.watch }), await rig.open()];
    let told = false;
    const stop = one.engine.cells?.watch("c", () => (told = true));
    await settle();
    between();
    const before = (await two.engine.cells?.read("c"))?.version ?? 0;
    await two.engine.cells?.write({ name: "c", operation: `o${before}`, expected: before, value: "v" });
    watches.tell();
    await settle();
    if (!told) await rig.clock.advance(200);
    stop?.();
    return told;
  }

  test("a symbolic link in place of the file of cell changes makes no file elsewhere, and cells are polled", async () => {
    const rig = sqliteRig();
    mkdirSync(`${rig.path}-mail`);
    symlinkSync(elsewhere(rig), `${rig.path}-mail/cells`);
    expect(await watched(rig)).toBe(true);
    expect(existsSync(elsewhere(rig))).toBe(false);
  });

  test("a hard link or a FIFO in place of the file of cell changes is not written to", async () => {
    const rig = sqliteRig();
    const changes = `${rig.path}-mail/cells`;
    mkdirSync(`${rig.path}-mail`);
    writeFileSync(elsewhere(rig), "mine\n");
    linkSync(elsewhere(rig), changes);
    expect(await watched(rig)).toBe(true);
    expect(readFileSync(elsewhere(rig), "utf8")).toBe("mine\n");
    unlinkSync(changes);
    fifo(changes);
    const read = reader(changes);
    expect(await watched(rig)).toBe(true);
    expect(read()).toBe("");
  });

  test("a file of cell changes that could not be watched is watched when watches are to be had again", async () => {
    const rig = sqliteRig();
    const watches = new Watches();
    const one = await rig.open({ watch: watches.watch });
    watches.full = true;
    one.engine.cells?.watch("c", () => {});
    await settle();
    const before = watches.count;
    watches.full = false;
    await rig.clock.advance(1_000);
    expect(watches.count).toBe(before + 1);
  });

  test("a file of cell changes that was deleted is made and watched anew", async () => {
    const rig = sqliteRig();
    const changes = `${rig.path}-mail/cells`;
    const watches = new Watches();
    const one = await rig.open({ watch: watches.watch });
    one.engine.cells?.watch("c", () => {});
    await settle();
    unlinkSync(changes);
    watches.tell();
    expect(existsSync(changes)).toBe(true);
  });

  test("a file of cell changes that was written to is watched as before", async () => {
    const watches = new Watches();
    const { engine } = await sqliteRig().open({ watch: watches.watch });
    engine.cells?.watch("c", () => {});
    await settle();
    const before = watches.tries;
    watches.tell();
    await settle();
    expect(watches.tries).toBe(before);
  });

  test.each([
    [0o660, "2770", "660"],
    [0o640, "750", "640"],
    [0o600, "700", "600"],
    [0o666, "2777", "666"],
  ])(
    "with a database of %o mail folder, mailboxes and the file of cell changes have its rights, whatever the umask of whoever comes first",
    async (mode, folder, file) => {
      const rig = sqliteRig();
      writeFileSync(rig.path, "");
      chmodSync(rig.path, mode);
      setUmask(0o077);
      const { engine } = await rig.open();
      engine.cells?.watch("c", () => {});
      await settle();
      const mail = `${rig.path}-mail`;
      const rights = (path: string): string => (statSync(path).mode & 0o7777).toString(8);
      expect([rights(mail), ...readdirSync(mail).map((name) => rights(join(mail, name)))]).toEqual([
        folder,
        file,
        file,
      ]);
    },
  );

  // Only who is in two groups can give a folder to the second one.
  test.skipIf(process.getuid?.() !== 0)(
    "mailboxes have the group of the database, so that its users wake each other",
    async () => {
      const rig = sqliteRig();
      writeFileSync(rig.path, "");
      chownSync(rig.path, -1, 4242);
      chmodSync(rig.path, 0o660);
      const { engine } = await rig.open();
      engine.cells?.watch("c", () => {});
      await settle();
      const mail = `${rig.path}-mail`;
      const groups = [rig.path, mail, ...readdirSync(mail).map((name) => join(mail, name))].map(
        (one) => statSync(one).gid,
      );
      expect(groups).toEqual([4242, 4242, 4242, 4242]);
    },
  );
});

test("a mailbox that cannot be made is not watched before it is there, and then a message may have been lost", async () => {
  const rig = sqliteRig();
  const watches = new Watches();
  writeFileSync(`${rig.path}-mail`, "in the way");
  const { engine, events } = await rig.open({ watch: watches.watch });
  await engine.claim(claimOf("m", "held"));
  await rig.clock.advance(2_000);
  expect(watches.tries).toBe(0);
  unlinkSync(`${rig.path}-mail`);
  await rig.clock.advance(2_000);
  expect(watches.count).toBe(1);
  expect(events).toContainEqual(WAKE);
});

test("a mailbox whose rights cannot be set is told of, and watched all the same", async () => {
  const rig = sqliteRig();
  const watches = new Watches();
  middle.beforeRights = () => {
    throw new Error("EPERM: operation not permitted, fchmod");
  };
  onTestFinished(() => void (middle.beforeRights = () => {}));
  const { events } = await rig.open({ watch: watches.watch });
  expect(events).toEqual([{ kind: "warning", message: expect.stringContaining("EPERM") }]);
  expect(watches.count).toBe(1);
});

test("that there is no mailbox reaches whoever uses connect(), however late it listens", async () => {
  const rig = sqliteRig();
  writeFileSync(`${rig.path}-mail`, "in the way");
  const locks = await connect(`sqlite:${rig.path}`);
  onTestFinished(() => locks.close());
  await (await locks.mutex("m").acquire()).release();
  const heard: string[] = [];
  locks.on("warning", ({ message }) => heard.push(message));
  await settle();
  expect(heard).toEqual([expect.stringMatching(/no mailbox in .*-mail, so waiting claims poll/)]);
});
