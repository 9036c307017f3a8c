import { writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { pause, until } from "../../servers/process.js";
import { childrenOf, isAlive, isStopped, World } from "./rig.js";

describe("run", () => {
  test("runs the command under the lock and ends with its code", async () => {
    const world = new World();
    const script = 'cat; echo "$HOLDFAST_NAME $HOLDFAST_TOKEN"; echo wrong >&2; exit 7';
    const running = world.start(["run", "backup", "--", "sh", "-c", script]);
    running.process.stdin?.end("fed\n");
    const { code, out, err } = await running.ended;
    expect(code).toBe(7);
    expect(out).toMatch(/^fed\nbackup \d{16}\n$/);
    expect(err).toBe("wrong\n");
  });

  test("126 and 127, as shells do", async () => {
    const world = new World();
    expect(await world.holdfast("run", "a", "--", "no-such-program")).toMatchObject({
      code: 127,
      err: expect.stringContaining("no-such-program: not found"),
    });
    expect(await world.holdfast("run", "a", "--", "/etc/passwd")).toMatchObject({
      code: 126,
      err: expect.stringContaining("Permission denied"),
    });
  });

  test("a command that a signal ended: by the same signal where shells care, else 128 and its number", async () => {
    const world = new World();
    const dies = (signal: string) => world.holdfast("run", "a", "--", "sh", "-c", `kill -${signal} $$`);
    expect(await dies("TERM")).toMatchObject({ code: null, signal: "SIGTERM" });
    expect(await dies("INT")).toMatchObject({ code: null, signal: "SIGINT" });
    expect(await dies("KILL")).toMatchObject({ code: 137 });
    expect(await dies("ABRT")).toMatchObject({ code: 134 });
  });

  test("-n and -w fail when it is busy, with 1 or the code of -E, and say who holds it", async () => {
    const world = new World();
    const holder = world.start(["run", "--label", "night job", "a", "--", "sh", "-c", "echo on > on; sleep 30"]);
    await world.says("on");
    const now = await world.holdfast("run", "-n", "a", "--", "touch", "ran");
    expect(now).toMatchObject({ code: 1, err: expect.stringMatching(/"a" is busy, held by night job \(.+:\d+\)/) });
    const later = await world.holdfast("run", "-w", "0.3", "-E", "99", "a", "--", "touch", "ran");
    expect(later).toMatchObject({ code: 99, err: expect.stringMatching(/not free within [\d.]+ m?s, held by night/) });
    const json = await world.holdfast(
      "run",
      "--no-wait",
      "--conflict-exit-code",
      "0",
      "--json",
      "a",
      "--",
      "touch",
      "ran",
    );
    expect(json.code).toBe(0);
    expect(JSON.parse(json.err)).toMatchObject({ error: { code: "HOLDFAST_ACQUIRE_TIMEOUT" } });
    expect(world.read("ran")).toBe("");
    holder.signal("SIGTERM");
    expect(await holder.ended).toMatchObject({ signal: "SIGTERM" });
    expect(await world.holdfast("run", "-n", "a", "--", "true")).toMatchObject({ code: 0 });
  });

  test("waits in order, and each has it alone", async () => {
    const world = new World();
    const script = 'echo "in $0" >> log; sleep 0.2; echo "out $0" >> log';
    const all = ["1", "2", "3"];
    const running = [];
    for (const who of all) {
      running.push(world.start(["run", "a", "--", "sh", "-c", script, who]));
      const locks = await world.locks();
      await until("it is in the queue or has been there", async () => {
        for await (const { holders, waiters } of locks.inspect({ name: "a" })) {
          return holders.length + waiters.length + (world.read("log").match(/out/g)?.length ?? 0) >= Number(who);
        }
        return world.read("log").includes(`out ${who}`);
      });
    }
    for (const one of running) expect(await one.ended).toMatchObject({ code: 0 });
    expect(world.read("log")).toBe(all.map((who) => `in ${who}\nout ${who}\n`).join(""));
  });

  test("-s together, -x alone; a mutex is another thing, which it says", async () => {
    const world = new World();
    const reader = world.start(["run", "-s", "a", "--", "sh", "-c", "echo on > on; read line"]);
    await world.says("on");
    expect(await world.holdfast("run", "-n", "-s", "a", "--", "true")).toMatchObject({ code: 0 });
    expect(await world.holdfast("run", "-n", "-x", "a", "--", "true")).toMatchObject({ code: 1 });
    const plain = await world.holdfast("run", "-n", "a", "--", "true");
    expect(plain).toMatchObject({ code: 64, err: expect.stringContaining("is in use as a read-write lock") });
    expect(plain.err).toContain("Use -s or -x");
    reader.process.stdin?.end("\n");
    await reader.ended;
  });

  test("--semaphore and --permits: all or none", async () => {
    const world = new World();
    const two = world.start([
      "run",
      "--semaphore",
      "3",
      "--permits",
      "2",
      "a",
      "--",
      "sh",
      "-c",
      "echo on > on; read line",
    ]);
    await world.says("on");
    const take = (permits: string) =>
      world.holdfast("run", "-n", "--semaphore", "3", "--permits", permits, "a", "--", "true");
    expect(await take("1")).toMatchObject({ code: 0 });
    expect(await take("2")).toMatchObject({ code: 1 });
    two.process.stdin?.end("\n");
    expect(await two.ended).toMatchObject({ code: 0 });
    expect(await take("3")).toMatchObject({ code: 0 });
  });

  test("-c gives a line to the shell", async () => {
    const world = new World();
    const { code, out } = await world.holdfast("run", "a", "-c", "echo one | tr o 0; exit 3");
    expect({ code, out }).toEqual({ code: 3, out: "0ne\n" });
  });

  test("a command whose name would be no label runs all the same", async () => {
    const world = new World();
    const name = `${"long".repeat(60)}\u001b`;
    writeFileSync(world.path(name), "#!/bin/sh\nexit 4\n", { mode: 0o755 });
    expect(await world.holdfast("run", "a", "--", `./${name}`)).toMatchObject({ code: 4, err: "" });
  });

  test("--verbose tells when it is taken and given back, also as JSON", async () => {
    const world = new World();
    const { err } = await world.holdfast("run", "--verbose", "a", "--", "true");
    expect(err).toMatch(/^holdfast: "a" is ours after \d+ ms, token \d+\nholdfast: "a" is given back\n$/);
    const json = await world.holdfast("run", "--verbose", "--json", "a", "--", "true");
    const events = json.err
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as object);
    expect(events).toMatchObject([
      { event: "granted", name: "a" },
      { event: "released", name: "a" },
    ]);
  });

  test("what it does not understand ends with 64, before anything is asked", async () => {
    const world = new World();
    const wrong: [string[], RegExp][] = [
      [["run"], /name of the lock is missing/],
      [["run", "a"], /command is missing: put it behind --/],
      [["run", "a", "b", "--", "true"], /"b" is too much/],
      [["run", "-w", "soon", "a", "--", "true"], /--wait takes seconds, such as 10 or 0.5, not "soon"/],
      [["run", "-n", "-w", "1", "a", "--", "true"], /-n and -w exclude each other/],
      [["run", "-s", "-x", "a", "--", "true"], /exclude each other/],
      [["run", "--permits", "1", "a", "--", "true"], /goes with --semaphore/],
      [["run", "-c", "true", "a", "--", "true"], /not both/],
      [["run", "--nice", "a", "--", "true"], /Unknown option '--nice'/],
      [["run", "a\u0007", "--", "true"], /control character/],
      [["run", "--lease", "0.01", "a", "--", "true"], /leaseMs/],
      [["run", "--url", "ftp://me:secret@there", "a", "--", "true"], /it starts with "ftp:"/],
      [["run", "--url", "memory:", "a", "--", "true"], /shared with no other process/],
      [["frob"], /no command "frob"/],
    ];
    const results = await Promise.all(wrong.map(([args]) => world.holdfast(...args)));
    expect(results.map(({ code }) => code)).toEqual(wrong.map(() => 64));
    results.forEach(({ err }, n) => expect(err).toMatch(wrong[n]?.[1] ?? /never/));
    expect(results.map(({ err }) => err).join("")).not.toContain("secret");
  });

  test("signals pass through to the command and what it started; SIGUSR1 to the command alone", async () => {
    const world = new World();
    const script = `trap 'echo usr1 >> log' USR1; trap 'echo int >> log' INT; trap 'echo term >> log; exit 5' TERM
      perl -e '$SIG{INT} = sub { system "echo inner >> log"; exit }; system "echo on > on"; sleep 1 while 1' &
      while :; do sleep 0.05; done`;
    const running = world.start(["run", "a", "--", "sh", "-c", script]);
    await world.says("on");
    running.signal("SIGUSR1");
    await world.says("log", /usr1/);
    running.signal("SIGINT");
    await world.says("log", /inner/);
    await world.says("log", /int/);
    running.signal("SIGTERM");
    expect(await running.ended).toMatchObject({ code: 5 });
    expect(world.read("log").trim().split("\n").toSorted()).toEqual(["inner", "int", "term", "usr1"]);
  });

  test("pitfall 17: a signal while it waits ends the wait and leaves nothing behind", async () => {
    const world = new World();
    const holder = world.start(["run", "a", "--", "sh", "-c", "echo on > on; read line"]);
    await world.says("on");
    const locks = await world.locks();
    const waiting = async (): Promise<number> => {
      for await (const { waiters } of locks.inspect({ name: "a" })) return waiters.length;
      return 0;
    };
    const running = world.start(["run", "a", "--", "touch", "ran"]);
    await until("it waits", async () => (await waiting()) === 1);
    const [watchdog = 0] = childrenOf(running.pid);
    running.signal("SIGTERM");
    expect(await running.ended).toMatchObject({ code: null, signal: "SIGTERM", err: "" });
    expect(await waiting()).toBe(0);
    await until("its watchdog is gone", () => !isAlive(watchdog));
    holder.process.stdin?.end("\n");
    await holder.ended;
    expect(world.read("ran")).toBe("");
  });

  test("stopped by the terminal, the command stops with it, and both go on together", async () => {
    const world = new World();
    // No shell: one that is stopped in the middle of a vfork is shown as waiting, not as stopped.
    const script = `const fs = require("fs");
      fs.writeFileSync("pid", String(process.pid));
      setInterval(() => fs.appendFileSync("log", "x"), 20);`;
    const running = world.start(["run", "a", "--", process.execPath, "-e", script]);
    await world.says("log");
    const pid = Number(await world.says("pid"));
    running.signal("SIGTSTP");
    await until("both are stopped", () => isStopped(running.pid) && isStopped(pid));
    const before = world.read("log").length;
    await pause(300);
    expect(world.read("log")).toHaveLength(before);
    running.signal("SIGCONT");
    await until("it goes on", () => world.read("log").length > before);
    running.signal("SIGTERM");
    expect(await running.ended).toMatchObject({ signal: "SIGTERM" });
  });
});
