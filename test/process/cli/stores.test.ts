import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { PLACES, type Place } from "../../servers/places.js";
import { World } from "./rig.js";

// The other files try every command to its corners on SQLite and Redis; here each one has to work on the other stores.
describe.each(["mariadb", "zookeeper", "etcd"])("the commands on %s", (kind) => {
  let place: Place;
  beforeAll(async () => void (place = (await PLACES[kind]?.()) as Place));
  afterAll(() => place?.stop());

  test("run, ls, show: one holds, one waits, both are seen, then the other's turn comes", async () => {
    const world = new World(place.url);
    const first = world.start([
      "run",
      "--label",
      "night",
      "backup",
      "--",
      "sh",
      "-c",
      "echo $HOLDFAST_TOKEN > on; read line",
    ]);
    const token = Number(await world.says("on"));
    expect(token).toBeGreaterThan(0);
    expect(await world.holdfast("run", "-n", "-E", "9", "backup", "--", "true")).toMatchObject({ code: 9 });
    const second = world.start(["run", "backup", "--", "sh", "-c", "echo $HOLDFAST_TOKEN"]);
    const locks = await world.locks();
    await expect.poll(() => waiting(locks.inspect({ name: "backup" })), { timeout: 15_000 }).toBe(1);

    expect((await world.holdfast("ls")).out).toMatch(/\nbackup +mutex +night \(.+:\d+\) .* 1\n/);
    const shown = await world.holdfast("show", "--json", "backup");
    expect(JSON.parse(shown.out)).toMatchObject({
      name: "backup",
      holders: [{ token, owner: { label: "night", pid: first.pid } }],
      waiters: [{ owner: { pid: second.pid } }],
    });
    first.process.stdin?.end("\n");
    expect(await first.ended).toMatchObject({ code: 0, err: "" });
    const { code, out } = await second.ended;
    expect(code).toBe(0);
    expect(Number(out)).toBeGreaterThan(token);
    expect((await world.holdfast("show", "backup")).out).toBe('"backup" is free\n');
  });

  test("release --force: the holder's command is ended with SIGTERM, and the lock is free", async () => {
    const world = new World(place.url);
    const script = "trap 'echo told > told; exit 4' TERM; echo on > on; while :; do sleep 0.05; done";
    const running = world.start(["run", "deploy", "--", "sh", "-c", script]);
    await world.says("on");
    expect(await world.holdfast("release", "--force", "--yes", "deploy")).toMatchObject({ code: 0 });
    expect(await running.ended).toMatchObject({ code: 75 });
    expect(world.read("told")).toBe("told\n");
    expect(await world.holdfast("run", "-w", "15", "deploy", "--", "true")).toMatchObject({ code: 0, err: "" });
  });

  test("elect: the second leads when the first has ended", async () => {
    const world = new World(place.url);
    const start = (who: string) =>
      world.start(["elect", "--value", `at ${who}`, "lead", "--", "sh", "-c", 'echo "$0" >> log; exec sleep 60', who]);
    const first = start("one");
    await world.says("log", /one/);
    const second = start("two");
    const locks = await world.locks();
    expect(await locks.election("lead").leader()).toMatchObject({ value: "at one" });
    first.signal("SIGTERM");
    expect(await first.ended).toMatchObject({ signal: "SIGTERM" });
    await world.says("log", /^one\ntwo\n/);
    expect(await locks.election("lead").leader()).toMatchObject({ value: "at two" });
    second.signal("SIGTERM");
    await second.ended;
    expect(await locks.election("lead").leader()).toBeNull();
  });

  test("once: not while it runs elsewhere, nor before --at-least is over; its code passes through", async () => {
    const world = new World(place.url);
    const running = world.start(["once", "report", "--", "sh", "-c", "echo one >> log; read line; exit 5"]);
    await world.says("log");
    expect(await world.holdfast("once", "report", "--", "sh", "-c", "echo two >> log")).toMatchObject({ code: 0 });
    running.process.stdin?.end("\n");
    expect(await running.ended).toMatchObject({ code: 5 });
    expect(world.read("log")).toBe("one\n");

    const spaced = ["once", "--at-least", "20", "--at-most", "30", "mail", "--", "sh", "-c", "echo sent >> sent"];
    const results = await Promise.all([1, 2, 3].map(() => world.start(spaced).ended));
    if (kind === "zookeeper") {
      // Nothing there outlives the process that asked, and it says so instead of running twice.
      const refused = { code: 69, err: expect.stringContaining("atLeastForMs cannot outlive it") };
      for (const result of results) expect(result).toMatchObject(refused);
      expect(world.read("sent")).toBe("");
    } else {
      for (const result of results) expect(result).toMatchObject({ code: 0, err: "" });
      expect(world.read("sent")).toBe("sent\n");
    }
  });
});

async function waiting(states: AsyncIterable<{ readonly waiters: readonly unknown[] }>): Promise<number> {
  for await (const { waiters } of states) return waiters.length;
  return 0;
}
