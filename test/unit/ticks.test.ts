import { describe, expect, test } from "vitest";
import { DrainingError, InvalidOptionError } from "../../src/core/errors.js";
import { everyTimes, latestDue } from "../../src/recipes/cron.js";
import { settle } from "../../src/testing/fake-clock.js";
import { rig, types, watch } from "./rig.js";

describe("ticks of another scheduler", () => {
  test("a tick runs once in the fleet, also when another program comes to it later", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const at = new Date(60_000);
    const ran: string[] = [];
    const [one, two] = await Promise.all([
      a.locks.ticks("t").run(at, ({ token }) => ran.push(`a ${token > 0}`)),
      b.locks.ticks("t").run(at, () => ran.push("b")),
    ]);
    expect([one.ran, two.ran]).toEqual([true, false]);
    await clock.advance(30_000);
    expect(await b.locks.ticks("t").run(at, () => ran.push("late"))).toEqual({ ran: false });
    expect(await b.locks.ticks("t").run(new Date(59_000), () => ran.push("older"))).toEqual({ ran: false });
    expect(await b.locks.ticks("t").run(new Date(61_000), () => "next")).toMatchObject({ ran: true, value: "next" });
    expect(ran).toEqual(["a true"]);
    expect(await a.locks.ticks("t").last()).toEqual(new Date(61_000));
  });

  test("a tick that fails was begun: its error passes through, and nobody begins it again", async () => {
    const { open } = rig();
    const a = await open();
    const at = new Date(60_000);
    const failing = a.locks.ticks("t").run(at, () => Promise.reject(new Error("a job's mistake")));
    await expect(failing).rejects.toThrow("a job's mistake");
    expect(await a.locks.ticks("t").run(at, () => 1)).toEqual({ ran: false });
    expect(await a.locks.mutex("t").isHeld()).toBe(false);
  });

  test("while one tick runs, the next is skipped and told who runs", async () => {
    const { open } = rig();
    const [a, b] = [await open({ label: "first" }), await open()];
    let finish: () => void = () => {};
    const running = watch(a.locks.ticks("t").run(new Date(1000), () => new Promise<void>((done) => (finish = done))));
    await settle();
    expect(await b.locks.ticks("t").run(new Date(2000), () => 1)).toMatchObject({
      ran: false,
      holder: { label: "first" },
    });
    finish();
    await settle();
    expect(running.value).toMatchObject({ ran: true });
    // It was not begun: a program that comes to it now may run it.
    expect(await b.locks.ticks("t").run(new Date(2000), () => 1)).toMatchObject({ ran: true });
  });

  test("atLeastMs: a tick too soon after the last one is not run", async () => {
    const { open } = rig();
    const ticks = (await open()).locks.ticks("t", { atLeastMs: 30_000 });
    const ran = async (at: number): Promise<boolean> => (await ticks.run(new Date(at), () => 1)).ran;
    expect([await ran(60_000), await ran(61_000), await ran(89_999), await ran(90_000)]).toEqual([
      true,
      false,
      false,
      true,
    ]);
  });

  test("without a time it is the second that has begun", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const seen: Date[] = [];
    await clock.advance(1000 - (clock.wallMs() % 1000) + 10);
    const ran = [await a.locks.ticks("t").run(({ at }) => seen.push(at))];
    await clock.advance(900); // late, but the same second
    ran.push(await b.locks.ticks("t").run(undefined, ({ at }) => seen.push(at)));
    await clock.advance(100);
    ran.push(await b.locks.ticks("t").run(({ at }) => seen.push(at)));
    expect(ran.map(({ ran }) => ran)).toEqual([true, false, true]);
    expect(seen.map((at) => at.getTime() % 1000)).toEqual([0, 0]);
  });

  test("draining refuses a tick, which another program begins", async () => {
    const { open } = rig();
    const [a, b] = [await open(), await open()];
    const hold = await a.locks.mutex("m").acquire();
    const draining = a.locks.drain();
    await expect(a.locks.ticks("t").run(new Date(1000), () => 1)).rejects.toBeInstanceOf(DrainingError);
    expect(await b.locks.ticks("t").run(new Date(1000), () => 1)).toMatchObject({ ran: true });
    await hold.release();
    await draining;
  });

  test("wrong times and options are refused", async () => {
    const { open } = rig();
    const { locks } = await open();
    await expect(locks.ticks("t").run(new Date(Number.NaN), () => 1)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(locks.ticks("t").run(5 as never, () => 1)).rejects.toBeInstanceOf(InvalidOptionError);
    expect(() => locks.ticks("t", { atLeastMs: -1 })).toThrow(InvalidOptionError);
    expect(() => locks.ticks("t", { atLeast: 1 } as object)).toThrow(InvalidOptionError);
  });
});

describe("catching up", () => {
  test("the latest tick that was due while nobody ran is run at the start, once in the fleet", async () => {
    const { clock, open } = rig();
    const first = await open();
    const ran: string[] = [];
    const everyMs = 60_000;
    await first.locks.schedule("s", { everyMs }, () => void ran.push("before"));
    await clock.advance(everyMs);
    await first.locks.close();
    await clock.advance(5.5 * everyMs);
    const due = Math.floor(clock.wallMs() / everyMs) * everyMs;
    const [a, b, c] = [await open(), await open(), await open()];
    await a.locks.schedule("s", { everyMs }, () => void ran.push("does not"));
    await b.locks.schedule("s", { everyMs, catchUp: true }, ({ at }) => void ran.push(`b ${at.getTime() === due}`));
    await settle();
    await c.locks.schedule("s", { everyMs, catchUp: true }, () => void ran.push("c"));
    await settle();
    expect(ran).toEqual(["before", "b true"]);
    expect(types(b.told)).not.toContain("warning");
  });

  test("nothing is made up for where no tick was ever begun, or the last one was", async () => {
    const { clock, open } = rig();
    const a = await open();
    const ran: number[] = [];
    await clock.advance(200_000);
    const schedule = await a.locks.schedule(
      "s",
      { everyMs: 60_000, catchUp: true },
      ({ at }) => void ran.push(at.getTime()),
    );
    await settle();
    expect(ran).toEqual([]);
    await clock.advance(60_000);
    await schedule.stop();
    await a.locks.schedule("s", { everyMs: 60_000, catchUp: true }, ({ at }) => void ran.push(at.getTime()));
    await settle();
    expect(ran).toHaveLength(1);
    await expect(a.locks.schedule("s", { everyMs: 1000, catchUp: 1 as never }, () => {})).rejects.toThrow("catchUp");
  });

  test("the latest due tick is found with few questions, whatever the pattern", () => {
    let asked = 0;
    const burst = { nextAfter: (ms: number) => ((asked += 1), ms < 500 ? Math.floor(ms) + 1 : ms < 1e9 ? 1e9 : null) };
    expect(latestDue(everyTimes(1000), 0, 10_000_500)).toBe(10_000_000);
    expect(latestDue(everyTimes(1000), 9_999_999, 10_000_500)).toBe(10_000_000);
    expect(latestDue(everyTimes(1000), 10_000_000, 10_000_500)).toBeNull();
    expect(latestDue(burst, 0, 1e9 - 1)).toBe(500);
    expect(latestDue(burst, 0, 2e9)).toBe(1e9);
    expect(latestDue(burst, 3e9, 2e9)).toBeNull();
    expect(asked).toBeLessThan(700);
  });
});
