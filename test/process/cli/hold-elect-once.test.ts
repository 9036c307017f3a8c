import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../servers/process.js";
import { type RedisServer, startRedis } from "../../servers/redis.js";
import { isAlive, World } from "./rig.js";

let redis: RedisServer;
beforeAll(async () => void (redis = await startRedis()));
afterAll(() => redis.running.stop());

const STORES = ["sqlite", "redis"];
const worldOf = (kind: string): World => new World(kind === "redis" ? redis.url : undefined);

describe.each(STORES)("hold, on %s", (kind) => {
  test("a script goes on once it has the lock, which is free when the script has ended", async () => {
    const world = worldOf(kind);
    const script = `token=$(${world.program} hold --pid $$ h1) || exit 1; echo "$token"; echo on > on; read line`;
    const running = world.startIn(["sh", "-c", script]);
    await world.says("on");
    expect(running.out).toMatch(/^\d+\n$/);
    expect(await world.holdfast("run", "-n", "h1", "--", "true")).toMatchObject({ code: 1 });
    running.process.stdin?.end("\n");
    await running.ended;
    expect(await world.holdfast("run", "-w", "15", "h1", "--", "true")).toMatchObject({ code: 0 });
  });

  test("also when the script is killed", async () => {
    const world = worldOf(kind);
    const script = `${world.program} hold --json --pid $$ h2 > held || exit 1; echo on > on; read line`;
    const running = world.startIn(["sh", "-c", script]);
    await world.says("on");
    const { token, holder, name } = JSON.parse(world.read("held")) as { token: number; holder: number; name: string };
    expect({ token, name }).toEqual({ token: expect.any(Number), name: "h2" });
    running.signal("SIGKILL");
    expect(await world.holdfast("run", "-w", "15", "h2", "--", "true")).toMatchObject({ code: 0 });
    await until("the holder has ended", () => !isAlive(holder));
  });

  test("busy, or no such process: it says so, and the script can do without", async () => {
    const world = worldOf(kind);
    const locks = await world.locks();
    const hold = await locks.mutex("h3").acquire();
    const args = ["hold", "-n", "-E", "9", "--pid", String(process.pid), "h3"];
    expect(await world.holdfast(...args)).toMatchObject({ code: 9, err: expect.stringContaining('"h3" is busy') });
    await hold.release();
    expect(await world.holdfast("hold", "--pid", "2147483646", "h3")).toMatchObject({
      code: 64,
      err: expect.stringContaining("there is no process 2147483646"),
    });
    expect(await world.holdfast("hold", "h3")).toMatchObject({ code: 64, err: expect.stringContaining("--pid") });
    expect(await world.holdfast("run", "-n", "h3", "--", "true")).toMatchObject({ code: 0 });
  });

  test("a token that cannot be written: the script is told, and holds nothing", async () => {
    const world = worldOf(kind);
    expect(
      await world.startIn(["sh", "-c", `exec ${world.program} hold --pid ${process.pid} h5 > /dev/full`]).ended,
    ).toEqual({
      code: 74,
      signal: null,
      out: "",
      err: expect.stringMatching(/^holdfast: the output could not be written: ENOSPC.*\n$/),
    });
    expect(await world.holdfast("run", "-n", "h5", "--", "true")).toMatchObject({ code: 0 });
  });

  test("a lock that is lost: the script gets SIGTERM", async () => {
    const world = worldOf(kind);
    const script = `trap 'echo told > told; exit 4' TERM; ${world.program} hold --pid $$ h4 > held || exit 1
      while :; do sleep 0.05; done`;
    const running = world.startIn(["sh", "-c", script]);
    await world.says("held");
    expect(await world.holdfast("release", "--force", "--yes", "h4")).toMatchObject({ code: 0 });
    expect(await running.ended).toMatchObject({ code: 4 });
  });

  test("stopped while it waits: nothing is left in the queue", async () => {
    const world = worldOf(kind);
    const locks = await world.locks();
    const hold = await locks.mutex("h5").acquire();
    const waiting = world.start(["hold", "--pid", String(process.pid), "h5"]);
    const waiters = async (): Promise<number> => {
      for await (const state of locks.inspect({ name: "h5" })) return state.waiters.length;
      return 0;
    };
    await until("it waits", async () => (await waiters()) === 1);
    waiting.signal("SIGTERM");
    expect(await waiting.ended).toMatchObject({ signal: "SIGTERM" });
    await until("it is out of the queue", async () => (await waiters()) === 0);
    await hold.release();
  });
});

describe.each(STORES)("elect, on %s", (kind) => {
  test("one leads; when it is gone another does; the value is told", async () => {
    const world = worldOf(kind);
    const script = 'echo "$0 $HOLDFAST_TOKEN" >> log; exec sleep 60';
    const start = (who: string) =>
      world.start(["elect", "--lease", "3", "--value", `at ${who}`, "lead", "--", "sh", "-c", script, who]);
    const first = start("one");
    await world.says("log", /one/);
    const second = start("two");
    const locks = await world.locks();
    await until("the second stands", async () => {
      for await (const { waiters } of locks.inspect({ name: "lead" })) return waiters.length === 1;
      return false;
    });
    expect(world.read("log")).toMatch(/^one \d+\n$/);
    expect(await locks.election("lead").leader()).toMatchObject({ value: "at one" });
    first.signal("SIGKILL");
    await world.says("log", /two/);
    expect(await locks.election("lead").leader()).toMatchObject({ value: "at two" });
    second.signal("SIGTERM");
    expect(await second.ended).toMatchObject({ signal: "SIGTERM" });
    expect(await locks.election("lead").leader()).toBeNull();
  });

  test("a term that is lost ends the command, and it stands again", async () => {
    const world = worldOf(kind);
    const script = "trap 'echo told >> log; exit 1' TERM; echo $HOLDFAST_TOKEN >> log; while :; do sleep 0.05; done";
    const running = world.start(["elect", "again", "--", "sh", "-c", script]);
    await world.says("log", /\d/);
    expect(await world.holdfast("release", "--force", "--yes", "again")).toMatchObject({ code: 0 });
    await world.says("log", /^\d+\ntold\n\d+\n/);
    running.signal("SIGTERM");
    expect(await running.ended).toMatchObject({ code: 1 });
    const [before, , after] = world.read("log").split("\n").map(Number);
    expect(after).toBeGreaterThan(before ?? 0);
  });

  test("when the command is done, so is its leader, with its code", async () => {
    const world = worldOf(kind);
    expect(await world.holdfast("elect", "done", "--", "sh", "-c", "exit 6")).toMatchObject({ code: 6 });
    expect(await world.holdfast("run", "-n", "done", "--", "true")).toMatchObject({ code: 0 });
  });
});

describe.each(STORES)("once, on %s", (kind) => {
  test("five machines' cron at the same minute: it runs once, and not again before --at-least is over", async () => {
    const world = worldOf(kind);
    const args = ["once", "--at-least", "3600", "--at-most", "30", "report", "--", "sh", "-c", "echo ran >> log"];
    const results = await Promise.all(Array.from({ length: 5 }, () => world.start(args).ended));
    expect(results.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0]);
    expect(results.map(({ err }) => err).join("")).toBe("");
    const told = await world.holdfast("once", "-E", "8", "--verbose", ...args.slice(1));
    expect(told).toMatchObject({ code: 8, err: expect.stringContaining("ran less than 1 h 0 min ago") });
    expect(world.read("log")).toBe("ran\n");
  });

  test("when --at-least is over it runs again", async () => {
    const world = worldOf(kind);
    const args = ["once", "--at-least", "2", "often", "--", "sh", "-c", "echo $HOLDFAST_TOKEN >> log"];
    const runs = (): number[] => world.read("log").trim().split("\n").map(Number);
    await until("it runs again", async () => (await world.holdfast(...args)).code === 0 && runs().length > 1);
    const [first = 0, second = 0] = runs();
    // How long it took is for the fake clock of test/unit/job.test.ts to show.
    expect(second).toBeGreaterThan(first);
  });

  test("--at-most ends a command that goes on; the code of one that fails passes through", async () => {
    const world = worldOf(kind);
    const args = [
      "once",
      "--at-most",
      "1",
      "long",
      "--",
      "sh",
      "-c",
      "trap 'exit 1' TERM; sleep 0.2 & while :; do sleep 0.05; done",
    ];
    // It never ends by itself.
    expect(await world.holdfast(...args)).toMatchObject({ code: 75 });
    expect(await world.holdfast("once", "short", "--", "sh", "-c", "exit 5")).toMatchObject({ code: 5 });
  });
});
