import { describe, expect, test } from "vitest";
import { pause, until } from "../../servers/process.js";
import { isAlive, type Running, World } from "./rig.js";

/** Holds a lock until its input ends, and says so in a file. */
async function holder(world: World, name: string, args: readonly string[] = []): Promise<Running> {
  const file = `on-${name.replaceAll(/\W/g, "_")}`;
  const running = world.start(["run", ...args, name, "--", "sh", "-c", `echo on > ${file}; read line`]);
  await world.says(file);
  return running;
}

async function letGo(running: Running): Promise<void> {
  running.process.stdin?.end("\n");
  await running.ended;
}

const jsonLines = (out: string): Record<string, unknown>[] =>
  out
    .trim()
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Record<string, unknown>);

async function waits(world: World, name: string, count: number): Promise<void> {
  const locks = await world.locks();
  await until(`${count} wait for ${name}`, async () => {
    for await (const { waiters } of locks.inspect({ name })) return waiters.length === count;
    return false;
  });
}

describe("ls and show", () => {
  test("who holds what since when, and who waits in which order", async () => {
    const world = new World();
    const first = await holder(world, "backup:db", ["--label", "night"]);
    const other = await holder(world, "deploy", ["-s"]);
    const second = world.start(["run", "--label", "second", "backup:db", "--", "true"]);
    await waits(world, "backup:db", 1);
    const third = world.start(["run", "--label", "third", "backup:db", "--", "true"]);
    await waits(world, "backup:db", 2);

    const { out } = await world.holdfast("ls");
    expect(out).toMatch(
      /^NAME +KIND +HELD BY +FOR +WAITING\nbackup:db +mutex +night \(.+:\d+\) +\d+ m?s +2\ndeploy +read-write/,
    );
    const prefixed = await world.holdfast("ls", "--json", "backup:");
    expect(jsonLines(prefixed.out)).toMatchObject([{ name: "backup:db", capacity: 1 }]);

    const shown = await world.holdfast("show", "backup:db");
    expect(shown.out).toMatch(
      /^backup:db: mutex, last token \d+\n.*\nholds +1 +night .*\d+ s +\d+\nwaits 1\. +1 +second .*\nwaits 2\. +1 +third /,
    );
    const json = await world.holdfast("show", "--json", "backup:db");
    expect(JSON.parse(json.out)).toMatchObject({
      name: "backup:db",
      holders: [{ token: expect.any(Number), heldMs: expect.any(Number), owner: { label: "night", pid: first.pid } }],
      waiters: [
        { owner: { label: "second" }, waitingMs: expect.any(Number) },
        { owner: { label: "third" }, waitingMs: expect.any(Number) },
      ],
    });
    expect((await world.holdfast("show", "deploy")).out).toMatch(/holds +read/);
    await letGo(first);
    await letGo(other);
    expect(await second.ended).toMatchObject({ code: 0 });
    expect(await third.ended).toMatchObject({ code: 0 });
    expect(await world.holdfast("ls")).toMatchObject({ out: "nothing is held\n" });
    expect(await world.holdfast("show", "deploy")).toMatchObject({ out: '"deploy" is free\n' });
  });

  test("colour only on a terminal; what others wrote cannot speak to it", async () => {
    const world = new World();
    const locks = await world.locks();
    // Allowed in a label, and turns around what follows it on the line.
    await locks.mutex("a").acquire({ label: "left\u202eright" });
    const { out } = await world.holdfast("ls");
    expect(out).toContain("left\ufffdright");
    expect(out).not.toContain("\u001b");
    expect((await inTerminal(world, "ls").ended).out).toContain("\u001b[1mNAME");
    expect((await inTerminal(world, "ls", { NO_COLOR: "1" }).ended).out).not.toContain("\u001b[1m");
  });
});

/**
 * With a terminal of its own, as a user would see it. `exec`, because some shells stay as a parent,
 * are interrupted by the same Ctrl-C, and end with their own 130 instead of the program's code.
 */
function inTerminal(world: World, line: string, env: NodeJS.ProcessEnv = {}): Running {
  return world.startIn(["script", "-qec", `exec ${world.program} ${line}`, "/dev/null"], env);
}

describe("waiting in a terminal", () => {
  test("one line: position in the queue, who holds it, since when; gone when its turn comes", async () => {
    const world = new World();
    const first = await holder(world, "backup", ["--label", "night"]);
    const second = world.start(["run", "--label", "second", "backup", "--", "true"]);
    await waits(world, "backup", 1);
    const third = inTerminal(world, "run backup -- echo mine");
    const line = /waiting for "backup": position 2 of 2, held by night \(.+:\d+\) for \d+ m?s/;
    await until("the line is there", () => line.test(third.out));
    await letGo(first);
    expect(await second.ended).toMatchObject({ code: 0 });
    const { code, out } = await third.ended;
    expect(code).toBe(0);
    expect(out.endsWith("\r\u001b[Kmine\r\n")).toBe(true);
  });

  test("quiet elsewhere", async () => {
    const world = new World();
    const first = await holder(world, "backup");
    const second = world.start(["run", "backup", "--", "true"]);
    await waits(world, "backup", 1);
    await pause(300);
    await letGo(first);
    expect(await second.ended).toEqual({ code: 0, signal: null, out: "", err: "" });
  });

  test("Ctrl-C ends the wait, and reaches the command once it runs", async () => {
    const world = new World();
    const first = await holder(world, "backup");
    const second = inTerminal(world, "run backup -- touch ran");
    await until("it waits", () => second.out.includes("waiting for"));
    second.process.stdin?.write("\u0003");
    expect((await second.ended).code).toBe(130);
    await letGo(first);
    expect(world.read("ran")).toBe("");
    const script = "trap 'echo told; exit 9' INT; echo on > started; while :; do sleep 0.05; done";
    const third = inTerminal(world, `run backup -- sh -c "${script}"`);
    await world.says("started");
    third.process.stdin?.write("\u0003");
    expect(await third.ended).toMatchObject({ code: 9, out: expect.stringContaining("told") });
  });
});

describe("stats", () => {
  test("the longest waits and the longest holds come first, as text and as JSON", async () => {
    const world = new World();
    expect((await world.holdfast("stats")).out).toBe("nothing is held\n");
    const holders = [];
    for (const name of ["old", "young"]) holders.push(await holder(world, name, ["--label", `holds-${name}`]));
    const waiters = [];
    for (const name of ["young", "old"]) {
      waiters.push(world.start(["run", name, "--", "true"]));
      const isQueued = async (): Promise<boolean> =>
        /"waiters":\[\{/.test((await world.holdfast("show", "--json", name)).out);
      await until(`somebody waits for ${name}`, isQueued);
    }
    const [found] = jsonLines((await world.holdfast("stats", "--json")).out) as unknown as [
      { waiting: { name: string; waiters: number }[]; holding: { name: string; holder: string }[] },
    ];
    expect(found.waiting).toMatchObject([
      { name: "young", kind: "mutex", waiters: 1, waitingMs: expect.any(Number) },
      { name: "old", waiters: 1 },
    ]);
    expect(found.holding).toMatchObject([
      { name: "old", holder: expect.stringContaining("holds-old"), heldMs: expect.any(Number) },
      { name: "young" },
    ]);
    const { out } = await world.holdfast("stats", "--top", "1");
    expect(out).toMatch(/^WAITED FOR +KIND.*\nyoung +mutex +1 +\d.*\n\nHELD +KIND.*\nold +mutex +1 +holds-old.*\n$/);
    expect((await world.holdfast("stats", "--top", "0")).code).toBe(64);
    const watching = world.start(["stats", "--watch", "--every", "0.1", "--json"]);
    for (const one of holders) await letGo(one);
    for (const one of waiters) expect((await one.ended).code).toBe(0);
    await until("nothing is held", () => watching.out.includes('{"waiting":[],"holding":[]}'));
    watching.signal("SIGINT");
    expect((await watching.ended).code).toBe(0);
  });

  test("live in a terminal", async () => {
    const world = new World();
    const first = await holder(world, "backup", ["--label", "night"]);
    const watching = inTerminal(world, "stats --watch --every 0.1");
    await until("it is seen", () => /nobody waits[\s\S]*backup +mutex +1 +night/.test(watching.out));
    await letGo(first);
    await until("it is free", () => watching.out.includes("nothing is held"));
    watching.process.stdin?.write("\u0003");
    expect((await watching.ended).code).toBe(0);
  });
});

describe("watch", () => {
  test("a line for each change, as text or JSON", async () => {
    const world = new World();
    const [text, json] = [
      ["watch", "--every", "0.1"],
      ["watch", "--every", "0.1", "--json"],
    ].map((args) => world.start(args));
    if (text === undefined || json === undefined) throw new Error("not started");
    const first = await holder(world, "backup", ["--label", "night"]);
    await until("it is seen", () => /backup: held by night:\d+ \(\d+\)\n/.test(text.out));
    await until("it is seen", () => jsonLines(json.out).length > 0);
    await letGo(first);
    await until("it is free", () => text.out.endsWith("backup: free\n"));
    await until("it is free", () => jsonLines(json.out).length === 2);
    expect(jsonLines(json.out)).toMatchObject([
      { name: "backup", holders: [{}] },
      { name: "backup", holders: [] },
    ]);
    for (const one of [text, json]) one.signal("SIGINT");
    expect((await text.ended).code).toBe(0);
    expect((await json.ended).code).toBe(0);
  });

  test("live in a terminal, on a screen of its own that is given back", async () => {
    const world = new World();
    const first = await holder(world, "backup", ["--label", "night"]);
    const watching = inTerminal(world, "watch --every 0.1");
    await until("it is seen", () => /backup +mutex +night/.test(watching.out));
    const second = world.start(["run", "--label", "second", "backup", "--", "true"]);
    await until("the queue is seen", () => /waits 1\. +1 +second/.test(watching.out));
    await letGo(first);
    await second.ended;
    await until("it is free", () => watching.out.includes("nothing is held"));
    watching.process.stdin?.write("\u0003");
    const { code, out } = await watching.ended;
    expect(code).toBe(0);
    expect(out.indexOf("\u001b[?1049h")).toBeLessThan(out.indexOf("\u001b[?1049l"));
  });
});

describe("release", () => {
  test("only by force; it tells what that means, and the holder is told", async () => {
    const world = new World();
    const first = await holder(world, "backup", ["--label", "night"]);
    const plain = await world.holdfast("release", "backup");
    expect(plain).toMatchObject({ code: 64, err: expect.stringContaining("say --force") });
    const nobody = await world.holdfast("release", "--force", "backup");
    expect(nobody).toMatchObject({ code: 64, err: expect.stringContaining("say --yes") });
    const wrong = await world.holdfast("release", "--force", "--yes", "--token", "7", "backup");
    expect(wrong).toMatchObject({ code: 1, err: expect.stringContaining('nobody holds "backup" with that token') });
    const forced = await world.holdfast("release", "--force", "--yes", "backup");
    expect(forced.out).toMatch(
      /"backup" was taken from night \(.+\), which is told; the resource refuses its token \d+ once it has seen a newer one/,
    );
    expect(await first.ended).toMatchObject({ code: 75 });
    const idle = await world.holdfast("release", "--force", "--yes", "--json", "backup");
    expect(idle.code).toBe(1);
    expect(JSON.parse(idle.err)).toMatchObject({ error: { message: 'nobody holds "backup"' } });
  });

  test("in a terminal it asks", async () => {
    const world = new World();
    const first = await holder(world, "backup", ["--label", "night"]);
    const no = inTerminal(world, "release --force backup");
    await until("it asks", () => /Take "backup" from night \(.+\)\? \[y\/N\]/.test(no.out));
    no.process.stdin?.write("n\n");
    expect((await no.ended).code).toBe(1);
    expect(isAlive(first.pid)).toBe(true);
    const yes = inTerminal(world, "release --force --json backup");
    await until("it asks", () => yes.out.includes("[y/N]"));
    yes.process.stdin?.write("y\n");
    expect((await yes.ended).code).toBe(0);
    expect(yes.out).toContain('"released":[{');
    expect(await first.ended).toMatchObject({ code: 75 });
  });
});

test.each([
  "ls",
  "show a",
  "stats",
  "watch --json",
  "doctor",
  "doctor --watch",
  "help",
  "--version",
  "completion bash",
])("%s: a full disk is no success; a reader that goes away is none of its business", async (words) => {
  const world = new World();
  const hold = await (await world.locks()).mutex("a").acquire();
  const full = await world.startIn(["sh", "-c", `exec ${world.program} ${words} > /dev/full`]).ended;
  expect(full).toMatchObject({ code: 74, err: expect.stringContaining("the output could not be written: ENOSPC") });
  const gone = await world.startIn(["sh", "-c", `{ ${world.program} ${words}; echo "code $?" >&2; } | true`]).ended;
  expect(gone.err).toBe("code 0\n");
  await hold.release();
});

test("--help of everything, with examples; --version", async () => {
  const world = new World();
  const { out } = await world.holdfast("--help");
  const commands = [...out.matchAll(/^ {2}holdfast ([a-z]+) .* {2}/gm)].map(([, word = ""]) => word);
  expect(commands).toEqual([
    "run",
    "hold",
    "elect",
    "once",
    "ls",
    "show",
    "watch",
    "stats",
    "ui",
    "release",
    "doctor",
    "completion",
  ]);
  for (const command of commands) {
    const help = await world.holdfast(command, "--help");
    expect(help.code).toBe(0);
    expect(help.out).toMatch(
      new RegExp(`^Usage: holdfast ${command} [\\s\\S]*Options:[\\s\\S]*Examples:\n.*holdfast ${command}`),
    );
  }
  expect((await world.holdfast("--version")).out).toMatch(/^\d+\.\d+\.\d+\n$/);
});
