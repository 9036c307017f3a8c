import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../servers/process.js";
import { type RedisServer, startRedis } from "../../servers/redis.js";
import { childrenOf, isAlive, isStopped, World } from "./rig.js";

let redis: RedisServer;
beforeAll(async () => void (redis = await startRedis()));
afterAll(() => redis.running.stop());

/** Goes on until it is told to stop, and says what it was told. */
const WORK = "trap 'echo told >> log; exit 3' TERM; echo $$ > pid; while :; do sleep 0.05; done";
const DEAF = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";

/** Until the claim with this label stands in the queue. */
async function waits(world: World, name: string, label: string): Promise<void> {
  const locks = await world.locks();
  await until(`${label} waits for ${name}`, async () => {
    for await (const { waiters } of locks.inspect({ name })) return waiters.some(({ owner }) => owner.label === label);
    return false;
  });
}

/** Take the lock away by force, as `holdfast release --force` does. */
async function takeAway(world: World, name = "a"): Promise<void> {
  expect(await world.holdfast("release", "--force", "--yes", name)).toMatchObject({ code: 0 });
}

describe.each(["sqlite", "redis"])("a lock that is lost, on %s", (kind) => {
  const worldOf = () => new World(kind === "redis" ? redis.url : undefined);
  let count = 0;
  const fresh = () => `lost-${kind}-${(count += 1)}`;

  test("the command gets SIGTERM, and the exit code is 75", async () => {
    const [world, name] = [worldOf(), fresh()];
    const running = world.start(["run", name, "--", "sh", "-c", WORK]);
    await world.says("pid");
    await takeAway(world, name);
    const { code, err } = await running.ended;
    expect(code).toBe(75);
    expect(err).toMatch(/was lost: it was released by force/);
    expect(world.read("log")).toBe("told\n");
  });

  test("after --kill-after SIGKILL, also for what the command started", async () => {
    const [world, name] = [worldOf(), fresh()];
    const script = `sh -c "trap '' TERM; echo \\$\\$ > inner; while :; do sleep 0.05; done" & ${DEAF}`;
    const running = world.start(["run", "--kill-after", "0.5", name, "--", "sh", "-c", script]);
    const pids = [Number(await world.says("pid")), Number(await world.says("inner"))];
    await takeAway(world, name);
    // Neither ends by itself, nor by SIGTERM. That it is not killed earlier is shown by test/unit/supervise.test.ts.
    expect(await running.ended).toMatchObject({ code: 75 });
    await until("all of it is gone", () => !pids.some(isAlive));
  });

  test("what the command left running ends with it when the lock was lost", async () => {
    const [world, name] = [worldOf(), fresh()];
    const script = `sh -c "trap '' TERM; echo \\$\\$ > inner; while :; do sleep 0.05; done" & ${WORK}`;
    const running = world.start(["run", name, "--", "sh", "-c", script]);
    const inner = Number(await world.says("inner"));
    await world.says("pid");
    await takeAway(world, name);
    expect(await running.ended).toMatchObject({ code: 75 });
    await until("it is gone", () => !isAlive(inner));
  });

  test("pitfall 10: --max-hold ends a command that hangs", async () => {
    const [world, name] = [worldOf(), fresh()];
    // It never ends by itself. On a slow machine its time is over before it has begun to listen to SIGTERM.
    const running = world.start(["run", "--lease", "1", "--max-hold", "0.5", name, "--", "sh", "-c", WORK]);
    const { code, err } = await running.ended;
    expect(code).toBe(75);
    expect(err).toContain("it was held for maxHoldMs");
  });

  test("stopped past its lease: when it goes on, the command is ended and does nothing more", async () => {
    const [world, name] = [worldOf(), fresh()];
    const script = "trap 'exit 3' TERM; while :; do echo x >> log; sleep 0.02; done";
    const running = world.start(["run", "--lease", "3", name, "--", "sh", "-c", script]);
    await world.says("log");
    running.signal("SIGTSTP");
    await until("it is stopped", () => isStopped(running.pid));
    // It gets the lock when the lease has ended.
    expect(await world.holdfast("run", "-w", "15", name, "--", "true")).toMatchObject({ code: 0 });
    const before = world.read("log");
    running.signal("SIGCONT");
    expect(await running.ended).toMatchObject({ code: 75 });
    // The line that was being written when it was stopped may still come.
    expect(world.read("log").length).toBeLessThanOrEqual(before.length + 2);
  });

  test("SIGKILL of run: the command and what it started end before the next one has the lock", async () => {
    const [world, name] = [worldOf(), fresh()];
    const write = "while :; do date +%s%N >> log; done";
    const script = `(trap '' TERM; ${write}) & trap '' TERM; ${write}`;
    const first = world.start(["run", "--lease", "5", name, "--", "sh", "-c", script]);
    await world.says("log", /(\d+\n){10}/);
    const second = world.start(["run", "--label", "second", name, "--", "sh", "-c", "date +%s%N > next; sleep 0.5"]);
    await waits(world, name, "second");
    first.signal("SIGKILL");
    expect(await second.ended).toMatchObject({ code: 0 });
    const lines = world.read("log").trim().split("\n").map(BigInt);
    const next = BigInt(world.read("next").trim());
    expect(lines.filter((at) => at > next)).toEqual([]);
  });

  test("SIGKILL of run while it waits: its position is free, its watchdog gone", async () => {
    const [world, name] = [worldOf(), fresh()];
    const holder = world.start(["run", name, "--", "sh", "-c", "echo on > on; read line"]);
    await world.says("on");
    const second = world.start(["run", "--label", "second", "--lease", "1", name, "--", "touch", "ran"]);
    await waits(world, name, "second");
    const [watchdog = 0] = childrenOf(second.pid);
    second.signal("SIGKILL");
    await until("its watchdog is gone", () => !isAlive(watchdog));
    const third = world.start(["run", "--label", "third", name, "--", "true"]);
    await waits(world, name, "third");
    holder.process.stdin?.end("\n");
    expect(await third.ended).toMatchObject({ code: 0 });
    expect(world.read("ran")).toBe("");
  });

  test("SIGKILL of the watchdog: the command is killed at once, and the exit code is 75", async () => {
    const [world, name] = [worldOf(), fresh()];
    const running = world.start(["run", name, "--", "sh", "-c", DEAF]);
    const pid = Number(await world.says("pid"));
    const watchdog = childrenOf(running.pid).find((one) => one !== pid) ?? 0;
    process.kill(watchdog, "SIGKILL");
    const { code, err } = await running.ended;
    expect({ code, err }).toMatchObject({
      code: 75,
      err: expect.stringMatching(/^holdfast: the watchdog process of ".+" was killed, and the command with it\n$/),
    });
    await until("it is gone", () => !isAlive(pid));
  });

  test("a service manager's SIGTERM to all processes: the watchdog stays until the command is done", async () => {
    const [world, name] = [worldOf(), fresh()];
    const slow = "trap '' TERM; while [ ! -e go ]; do sleep 0.02; done; echo done > log; exit 3";
    const script = `trap "echo told > told; ${slow}" TERM; echo $$ > pid; while :; do sleep 0.02; done`;
    const running = world.start(["run", name, "--", "sh", "-c", script]);
    const pid = Number(await world.says("pid"));
    const watchdog = childrenOf(running.pid).find((one) => one !== pid) ?? 0;
    for (const one of [watchdog, running.pid, pid]) process.kill(one, "SIGTERM");
    await world.says("told");
    expect(isAlive(watchdog)).toBe(true);
    expect(await world.holdfast("run", "-n", name, "--", "true")).toMatchObject({ code: 1 });
    writeFileSync(world.path("go"), "");
    expect(await running.ended).toMatchObject({ code: 3 });
    expect(world.read("log")).toBe("done\n");
  });
});

test("pitfall 2: a store that stops answering: the command is told while the store is still silent", async () => {
  const server = await startRedis();
  try {
    const world = new World(server.url);
    const script = "trap 'echo told > told; exit 3' TERM; echo $$ > pid; while :; do sleep 0.02; done";
    const running = world.start(["run", "--lease", "2", "a", "--", "sh", "-c", script]);
    await world.says("pid");
    server.running.signal("SIGSTOP");
    // No call returns from here on. That it is before the lease can end is shown by the fake clock of test/unit/holding.
    await world.says("told");
    server.running.signal("SIGCONT");
    expect(await running.ended).toMatchObject({ code: 75, err: expect.stringContaining("no renewal was confirmed") });
  } finally {
    await server.running.stop();
  }
});

test("pitfall 19: a store that cannot be reached is an error of its own, with 69, and no password is shown", async () => {
  const world = new World("redis://me:opensesame@127.0.0.1:1");
  const { code, err } = await world.holdfast("run", "-n", "a", "--", "touch", "ran");
  expect(code).toBe(69);
  expect(err).toMatch(/redis did not answer/);
  expect(err).not.toContain("opensesame");
  expect(world.read("ran")).toBe("");
});
