import { Cron } from "croner";
import { describe, expect, test } from "vitest";
import { nodeCronCoordinator, onceInFleet } from "../../src/cron/index.js";
import { settle } from "../../src/testing/fake-clock.js";
import { rig, watch } from "./rig.js";

const KEY = "daily: report:2026-01-01T03:00:00.000Z";

describe("the run coordinator for node-cron", () => {
  test("one program runs a tick, and holds the lock until the task is complete", async () => {
    const { open } = rig();
    const [a, b] = [await open(), await open()];
    const [one, two] = [nodeCronCoordinator(a.locks), nodeCronCoordinator(b.locks)];
    expect([await one.shouldRun(KEY), await two.shouldRun(KEY)]).toEqual([true, false]);
    expect(await b.locks.mutex("daily: report").isHeld()).toBe(true);
    await one.onComplete(KEY);
    expect(await b.locks.mutex("daily: report").isHeld()).toBe(false);
    expect(await two.shouldRun(KEY)).toBe(false);
    expect(await b.locks.ticks("daily: report").last()).toEqual(new Date("2026-01-01T03:00:00Z"));
    await two.onComplete("unknown");
  });

  test("a store that does not answer is an error, and a lock that was lost is told at the end", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 1000, leaseMs: 3000 });
    const coordinator = nodeCronCoordinator(a.locks);
    a.hooks.claim = () => Promise.reject(new Error("away"));
    const asked = watch(coordinator.shouldRun(KEY));
    await clock.advance(5000);
    expect(asked.state).toBe("failed");
    delete a.hooks.claim;
    expect(await coordinator.shouldRun(KEY)).toBe(true);
    a.hooks.renew = () => Promise.reject(new Error("away"));
    await clock.advance(4000);
    await expect(coordinator.onComplete(KEY)).rejects.toMatchObject({ code: "HOLDFAST_LOCK_LOST" });
  });
});

describe("ticks of croner", () => {
  test("a program that is late comes to the same tick, by the pattern", async () => {
    const { open } = rig();
    const [a, b] = [await open(), await open()];
    const pattern = new Cron("0 3 * * *", { timezone: "UTC", paused: true });
    const firing = (at: string) => ({
      nextRun: (after: Date) => pattern.nextRun(after),
      currentRun: () => new Date(at),
    });
    const ran: string[] = [];
    const note = (who: string) => (tick: { at: Date }) => ran.push(`${who} ${tick.at.toISOString()}`);
    await onceInFleet(a.locks, "report", note("a"))(firing("2026-01-01T03:00:00.004Z"));
    await onceInFleet(b.locks, "report", note("b"))(firing("2026-01-01T03:07:30.000Z"));
    await onceInFleet(b.locks, "report", note("b"))(firing("2026-01-02T03:00:00.000Z"));
    expect(ran).toEqual(["a 2026-01-01T03:00:00.000Z", "b 2026-01-02T03:00:00.000Z"]);
    await settle();
  });
});
