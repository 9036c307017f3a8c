import { expect, onTestFinished, test } from "vitest";
import { Client } from "../../src/core/client.js";
import { machineMs, SystemChance, SystemClock } from "../../src/core/clock.js";
import type { Engine, EngineEvent } from "../../src/core/engine.js";
import { LockLostError } from "../../src/core/errors.js";
import { SharedClock, SharedTimes } from "../../src/core/shared-times.js";
import { type ToWorker, WorkerRenewals } from "../../src/core/worker-renewals.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import { Locks } from "../../src/locks.js";
import { intercept } from "../../src/testing/intercept.js";

const settings = {
  leaseMs: 60_000,
  callTimeoutMs: 1_000,
  tokenBase: 0,
  label: undefined,
  maxWaiters: 10,
  maxClaims: 10,
};

const SLOTS = 10;

/** The other thread is the test: it sees what is sent, and answers by `renewals` and `times`. */
function rig() {
  const clock = new SystemClock();
  const times = SharedTimes.of(SLOTS);
  const sent: ToWorker[] = [];
  const made: { renewals?: WorkerRenewals } = {};
  const heard = new Set<(event: EngineEvent) => void>();
  const engine: Engine = {
    ...intercept(memoryEngine(), {}),
    listen: (one) => {
      heard.add(one);
      return () => heard.delete(one);
    },
  };
  const push = (event: EngineEvent): void => {
    for (const one of heard) one(event);
  };
  const client = new Client(engine, clock, new SystemChance(), settings, (one) => {
    made.renewals = new WorkerRenewals((message) => void sent.push(message), times, one, 60_000);
    return made.renewals;
  });
  const locks = new Locks(client, async () => {});
  onTestFinished(() => locks.close());
  if (made.renewals === undefined) throw new Error("no renewals");
  return { clock, times, sent, renewals: made.renewals, locks, push };
}

const slotOf = (message: ToWorker | undefined): number =>
  message !== undefined && "slot" in message ? message.slot : -1;

test("a hold is sent to the other thread at its grant, and taken back at its end", async () => {
  const { sent, locks } = rig();
  const hold = await locks.mutex("m").acquire();
  expect(sent).toMatchObject([{ kind: "add", name: "m", id: hold.id, token: hold.token, leaseMs: 60_000 }]);
  await hold.release();
  expect(sent.at(-1)).toEqual({ kind: "remove", slot: slotOf(sent[0]) });
});

test("a slot serves another hold only when the other thread writes to it no more", async () => {
  const { sent, renewals, times, clock, locks } = rig();
  const first = await locks.mutex("a").acquire();
  await first.release();
  const second = await locks.mutex("b").acquire();
  expect(slotOf(sent.at(-1))).toBe(1);
  // What is late for the first says nothing of the second.
  times.confirm(0, clock.now() + 100_000);
  renewals.answered(0, { kind: "gone" }, clock.now());
  expect(second.state).toBe("held");
  expect(second.remainingMs).toBeLessThan(60_000);
  renewals.removed(0);
  const third = await locks.mutex("c").acquire();
  expect(slotOf(sent.at(-1))).toBe(0);
  expect(third.remainingMs).toBeLessThan(60_000);
});

test("while the other thread gives no slot back, the client's own loop sends", async () => {
  const { sent, renewals, locks } = rig();
  for (let n = 0; n < SLOTS; n += 1) await (await locks.mutex("m").acquire()).release();
  const before = sent.length;
  const hold = await locks.mutex("m").acquire({ leaseMs: 100 });
  await new Promise((resolve) => locks.on("renewed", resolve));
  hold.throwIfLost();
  await hold.release();
  expect(sent).toHaveLength(before);
  renewals.removed(3);
  await locks.mutex("m").acquire();
  expect(slotOf(sent.at(-1))).toBe(3);
});

test("what the other thread was told counts before this one judges, and after that not", async () => {
  const { times, clock, locks } = rig();
  const hold = await locks.mutex("m").acquire({ leaseMs: 200 });
  const end = clock.now() + 400;
  times.confirm(0, clock.now() + 100_000);
  while (clock.now() < end);
  expect(hold.state).toBe("held");
  expect(hold.remainingMs).toBeGreaterThan(90_000);
  const lost = await locks.mutex("n").acquire({ leaseMs: 200 });
  while (clock.now() < end + 600);
  expect(() => lost.throwIfLost()).toThrow(LockLostError);
  times.confirm(1, clock.now() + 100_000);
  expect(() => lost.throwIfLost()).toThrow(LockLostError);
});

test("the store's word comes by message too: a hold that is gone is lost", async () => {
  const { renewals, clock, locks } = rig();
  const hold = await locks.mutex("m").acquire();
  renewals.answered(0, { kind: "gone", revoked: true }, clock.now());
  expect(hold.signal.reason).toMatchObject({ reason: "revoked" });
});

test("when the store asks for a heartbeat, the other thread sends one: for what is renewed, and while it is", async () => {
  const { sent, locks, push } = rig();
  const wakes = (): number => sent.filter(({ kind }) => kind === "send-soon").length;
  const hold = await locks.mutex("m").acquire();
  await locks.mutex("fixed").acquire({ renew: false });
  push({ kind: "wake" });
  expect(sent.slice(1)).toEqual([{ kind: "send-soon", slot: 0 }]);
  push({ kind: "wake", name: "m", id: hold.id });
  expect(wakes()).toBe(2);
  const short = await locks.mutex("n").acquire({ leaseMs: 200, maxHoldMs: 100 });
  await new Promise((resolve) => locks.on("jeopardy", resolve));
  push({ kind: "wake", name: "n", id: short.id });
  expect(wakes()).toBe(2);
});

test("when the other thread ends, the client's own loop sends", async () => {
  const { renewals, sent, locks } = rig();
  const hold = await locks.mutex("m").acquire();
  const renewed = new Promise((resolve) => locks.on("renewed", resolve));
  renewals.lostWorker();
  expect(await renewed).toMatchObject({ name: "m" });
  await (await locks.mutex("n").acquire()).release();
  expect(sent).toHaveLength(1);
  await hold.release();
});

test("the other thread's time is never later than the program's, also after the program's clock jumped", () => {
  const times = SharedTimes.of(1);
  const shared = new SharedClock(times);
  let wall = 0;
  const clock = new SystemClock(machineMs, () => machineMs() + wall);
  for (const jumpMs of [0, 500, 5_000, 0, 60_000]) {
    wall += jumpMs;
    // A jump that the program has not told of yet makes the other thread's deadlines earlier, not later.
    expect(shared.now()).toBeLessThanOrEqual(clock.now());
    times.progress(clock.now());
    const late = shared.now();
    expect(late).toBeLessThanOrEqual(clock.now());
    expect(clock.now() - late).toBeLessThan(400);
  }
  expect(times.silentMs()).toBeGreaterThanOrEqual(0);
});
