import { getEventListeners } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { onAbort } from "../../src/core/abort.js";
import type { Locks } from "../../src/locks.js";
import { rig } from "./rig.js";

/** What Node.js warned of until now. */
async function warningsOf(run: () => Promise<void>): Promise<string[]> {
  const warnings: Error[] = [];
  const note = (warning: Error): void => void warnings.push(warning);
  process.on("warning", note);
  onTestFinished(() => void process.off("warning", note));
  await run();
  // They are told in the next tick.
  await new Promise(setImmediate);
  return warnings.map(({ name }) => name);
}

const WAITS: readonly [what: string, wait: (locks: Locks, signal: AbortSignal, n: number) => Promise<unknown>][] = [
  ["a mutex", (locks, signal) => locks.mutex("m").acquire({ signal })],
  ["a semaphore", (locks, signal) => locks.semaphore("s", 2).acquire({ signal })],
  ["a read-write lock", (locks, signal) => locks.readWrite("rw").read.acquire({ signal })],
  ["several locks", (locks, signal) => locks.all([locks.mutex("m"), locks.mutex("z")]).acquire({ signal })],
  [
    "a wait that looks for deadlocks",
    (locks, signal, n) =>
      locks.mutex(`own ${n}`).using(() => locks.mutex("m").acquire({ signal, detectDeadlockAfterMs: 1000 })),
  ],
  ["a campaign", (locks, signal) => locks.election("e").campaign({ signal })],
  ["an observer", (locks, signal) => locks.election("idle").observe({ signal }).next()],
  ["a latch", (locks, signal) => locks.latch("l", 1).wait({ signal })],
  ["a barrier", (locks, signal) => locks.barrier("b", 50).wait({ signal })],
  ["a double barrier", (locks, signal) => locks.doubleBarrier("d", 50).enter({ signal })],
];

test.each(WAITS)("twelve waits for %s share one signal: no warning, and nothing is left on it", async (_, wait) => {
  const { clock, open } = rig();
  const { locks } = await open();
  const other = (await open()).locks;
  await other.mutex("m").acquire();
  await other.semaphore("s", 2).acquire();
  await other.semaphore("s", 2).acquire();
  await other.readWrite("rw").write.acquire();
  await other.election("e").campaign();
  const { signal, abort } = abortable();
  const ended: number[] = [];
  const warnings = await warningsOf(async () => {
    const waits = Array.from({ length: 12 }, (__, n) =>
      wait(locks, signal, n).catch((error: unknown) => (ended.push(n), error)),
    );
    await clock.advance(100);
    expect(ended).toEqual([]);
    expect.soft(getEventListeners(signal, "abort").length).toBe(1);
    abort(new Error("enough"));
    await clock.advance(100);
    for (const error of await Promise.all(waits)) expect(error).toEqual(new Error("enough"));
  });
  expect(warnings).toEqual([]);
  expect(getEventListeners(signal, "abort")).toEqual([]);
  expect(ended).toHaveLength(12);
});

function abortable(): { signal: AbortSignal; abort: (reason: unknown) => void } {
  const controller = new AbortController();
  return { signal: controller.signal, abort: (reason) => controller.abort(reason) };
}

test("an abort reaches the waits in the order in which they were made, after the listeners that were there before", async () => {
  const { clock, open } = rig();
  const { locks } = await open();
  await (await open()).locks.mutex("m").acquire();
  const { signal, abort } = abortable();
  const ended: string[] = [];
  signal.addEventListener("abort", () => ended.push("the user's own"));
  for (const name of ["first", "second", "third", "fourth"]) {
    locks
      .mutex("m")
      .acquire({ signal })
      .catch(() => ended.push(name));
  }
  await clock.advance(100);
  abort(new Error("enough"));
  await clock.advance(100);
  expect(ended).toEqual(["the user's own", "first", "second", "third", "fourth"]);
});

test("waits that end by themselves leave nothing on the signal, and the others still hear it", async () => {
  const { clock, open } = rig();
  const { locks } = await open();
  const held = await (await open()).locks.mutex("m").acquire();
  const { signal, abort } = abortable();
  const first = locks.mutex("m").acquire({ signal });
  const timed = locks
    .mutex("m")
    .acquire({ signal, waitMs: 50 })
    .catch(() => "timeout");
  const last = locks
    .mutex("m")
    .acquire({ signal })
    .catch((error: unknown) => error);
  await clock.advance(100);
  expect(await timed).toBe("timeout");
  await held.release();
  await clock.advance(100);
  const hold = await first;
  expect(getEventListeners(signal, "abort")).toHaveLength(1);
  abort(new Error("enough"));
  await clock.advance(100);
  expect(await last).toEqual(new Error("enough"));
  expect(getEventListeners(signal, "abort")).toEqual([]);
  // It ends waits, never holds.
  expect(hold.state).toBe("held");
});

test("the signal of several locks leaves nothing on a hold that outlives them", async () => {
  const { open } = rig();
  const { locks } = await open();
  const outer = await locks.mutex("a").acquire();
  const warnings = await warningsOf(() =>
    locks.mutex("b").using(async (inner) => {
      for (let round = 0; round < 20; round += 1) {
        await locks.all([locks.mutex("b"), locks.mutex("c")]).using((hold) => expect(hold.signal.aborted).toBe(false));
        // Asked for too late.
        const late = await locks.all([locks.mutex("b"), locks.mutex("c")]).acquire();
        await late.release();
        expect(late.signal.aborted).toBe(false);
      }
      expect(getEventListeners(inner.signal, "abort")).toEqual([]);
    }),
  );
  expect(warnings).toEqual([]);
  await outer.release();
});

test("who asks twice with the same function is told twice, and may leave once", () => {
  const controller = new AbortController();
  let told = 0;
  const tell = (): void => void (told += 1);
  const leave = onAbort(controller.signal, tell);
  onAbort(controller.signal, tell);
  onAbort(controller.signal, tell);
  leave();
  leave();
  controller.abort();
  expect(told).toBe(2);
});
