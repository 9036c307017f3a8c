import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { Child } from "./child.js";

const acquire = { leaseMs: 1000 };

test("pitfall 12: a process stopped past its lease knows at once that its lock is lost", async () => {
  const child = new Child({ url: "memory:", name: "m", acquire });
  await child.tells("held");
  child.signal("SIGSTOP");
  await sleep(1500);
  // It is asked before it runs again: throwIfLost() compares clocks, although no timer has fired.
  child.say("check");
  child.signal("SIGCONT");
  expect(await child.tells("checked")).toMatchObject({ held: false, code: "HOLDFAST_LOCK_LOST" });
  expect(await child.tells("told")).toMatchObject({ reason: "deadline" });
  child.say("exit");
  await child.exited();
});

test("a process stopped for less than its lease goes on, and ends by itself", async () => {
  const child = new Child({ url: "memory:", name: "m", acquire: { leaseMs: 10_000 } });
  await child.tells("held");
  child.signal("SIGSTOP");
  await sleep(300);
  child.signal("SIGCONT");
  child.say("check");
  expect(await child.tells("checked")).toMatchObject({ held: true, state: "held" });
  child.say("release");
  await child.tells("released");
  child.say("exit");
  await child.exited();
});
