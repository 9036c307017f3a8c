import { expect, onTestFinished, test, vi } from "vitest";
import { Client } from "../../src/core/client.js";
import { type Clock, machineMs, SystemChance, SystemClock } from "../../src/core/clock.js";
import type { Engine, EngineEvent, ReleaseRequest } from "../../src/core/engine.js";
import { LockLostError } from "../../src/core/errors.js";
import { SharedClock, SharedTimes } from "../../src/core/shared-times.js";
import { type ToWorker, WorkerRenewals } from "../../src/core/worker-renewals.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { Locks } from "../../src/locks.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
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
const STALL_MS = 60_000;

/** The other thread is the test: it sees what is sent, and answers by `renewals` and `times`. */
function rig<C extends Clock = SystemClock>(clock: C = new SystemClock() as unknown as C) {
  const times = SharedTimes.of(SLOTS);
  const releases: ReleaseRequest[] = [];
  /** The names of what this thread renewed. */
  const renewed: string[] = [];
  const sent: ToWorker[] = [];
  const made: { renewals?: WorkerRenewals } = {};
  const heard = new Set<(event: EngineEvent) => void>();
  const real = intercept(memoryEngine(memoryStore(clock)), {
    release: (call, request) => (releases.push(request), call()),
    renew: (call, requests) => (renewed.push(...requests.map(({ name }) => name)), call()),
  });
  const engine: Engine = {
    ...real,
    listen: (one) => {
      heard.add(one);
      return real.listen(one);
    },
  };
  const push = (event: EngineEvent): void => {
    for (const one of heard) one(event);
  };
  const client = new Client(engine, clock, new SystemChance(), settings, (one) => {
    made.renewals = new WorkerRenewals((message) => void sent.push(message), times, one, STALL_MS);
    return made.renewals;
  });
  const locks = new Locks(client, async () => {});
  onTestFinished(() => locks.close());
  if (made.renewals === undefined) throw new Error("no renewals");
  return { clock, times, sent, releases, renewed, renewals: made.renewals, locks, push };
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
  const clock = new FakeClock();
  const { sent, renewals, locks } = rig(clock);
  for (let n = 0; n < SLOTS; n += 1) await (await locks.mutex("m").acquire()).release();
  expect(sent.filter(({ kind }) => kind === "add").map(slotOf)).toEqual([...Array(SLOTS).keys()]);
  const before = sent.length;
  const hold = await locks.mutex("m").acquire();
  await clock.advance(70_000);
  hold.throwIfLost();
  await hold.release();
  expect(sent).toHaveLength(before);
  renewals.removed(3);
  await locks.mutex("m").acquire();
  expect(slotOf(sent.at(-1))).toBe(3);
});

test("what the other thread was told counts before this one judges, and after that not", async () => {
  const clock = new FakeClock();
  const { times, locks } = rig(clock);
  const hold = await locks.mutex("m").acquire({ leaseMs: 200 });
  times.confirm(0, clock.now() + 100_000);
  clock.stall(400);
  expect(hold.state).toBe("held");
  expect(hold.remainingMs).toBe(99_600);
  const lost = await locks.mutex("n").acquire({ leaseMs: 200 });
  clock.stall(400);
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
  const clock = new FakeClock();
  const { sent, locks, push } = rig(clock);
  const wakes = (): number => sent.filter(({ kind }) => kind === "send-soon").length;
  const hold = await locks.mutex("m").acquire();
  await locks.mutex("fixed").acquire({ renew: false });
  push({ kind: "wake" });
  expect(sent.slice(1)).toEqual([{ kind: "send-soon", slot: 0 }]);
  push({ kind: "wake", name: "m", id: hold.id });
  expect(wakes()).toBe(2);
  const short = await locks.mutex("n").acquire({ leaseMs: 200, maxHoldMs: 100 });
  await clock.advance(150);
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

test("the other thread ends after this one stood still: what it was told before counts, and is gone on with", async () => {
  const clock = new FakeClock();
  const { renewals, renewed, times, locks } = rig(clock);
  const hold = await locks.mutex("m").acquire({ leaseMs: 200 });
  const lost = await locks.mutex("n").acquire({ leaseMs: 200 });
  times.confirm(0, clock.now() + 100_000);
  clock.stall(400);
  renewals.lostWorker();
  expect([hold.state, lost.state]).toEqual(["held", "lost"]);
  await clock.advance(0);
  expect(renewed).toEqual(["m"]);
});

test("the other thread ends when a hold has been held for long enough: it is not renewed once more", async () => {
  const clock = new FakeClock();
  const { renewals, renewed, locks } = rig(clock);
  const hold = await locks.mutex("m").acquire({ leaseMs: 1000, maxHoldMs: 100 });
  clock.stall(150);
  renewals.lostWorker();
  await clock.advance(1000);
  expect(hold.signal.reason).toMatchObject({ reason: "max-hold" });
  expect(renewed).toEqual([]);
});

test("progress is told with a hold, and four times as often as it must be while any is left; then no more, also when the other thread is gone", async () => {
  const clock = new FakeClock();
  const { renewals, times, locks, push } = rig(clock);
  const told = vi.spyOn(times, "progress");
  /** How often in that time. */
  const count = async (ms: number): Promise<number> => {
    told.mockClear();
    await clock.advance(ms);
    return told.mock.calls.length;
  };
  const lasting = { leaseMs: 3_600_000 };
  expect(await count(STALL_MS)).toBe(0);
  const [one, two] = [await locks.mutex("m").acquire(lasting), await locks.mutex("n").acquire(lasting)];
  expect(told.mock.calls).toEqual([[STALL_MS], [STALL_MS]]);
  expect(await count(STALL_MS)).toBe(4);
  push({ kind: "wake", name: "m", id: one.id });
  expect(told).toHaveBeenCalledTimes(5);
  await one.release();
  expect(await count(STALL_MS)).toBe(4);
  await two.release();
  expect(await count(10 * STALL_MS)).toBe(0);
  await locks.mutex("m").acquire(lasting);
  expect(await count(STALL_MS)).toBe(4);
  renewals.lostWorker();
  expect(await count(10 * STALL_MS)).toBe(0);
  await locks.close();
  expect(clock.pending).toBe(0);
});

test("closing leaves no timer, with holds that the other thread renews", async () => {
  const clock = new FakeClock();
  const { locks, sent } = rig(clock);
  await locks.mutex("m").acquire();
  await locks.close();
  expect(clock.pending).toBe(0);
  expect(sent.map(({ kind }) => kind)).toEqual(["add", "remove"]);
});

test("the store hands over, not this client behind its back: the other thread asks the store", async () => {
  const { locks, releases } = rig();
  const hold = await locks.mutex("m").acquire();
  const queued = new Promise((resolve) => locks.on("queued", resolve));
  const next = locks.mutex("m").acquire();
  await queued;
  await hold.release();
  await (await next).release();
  expect(releases.map(({ id, to }) => [id, to])).toEqual([
    [hold.id, undefined],
    [(await next).id, undefined],
  ]);
});

test("the end of a hold that is confirmed never moves back, and what is new begins with none", () => {
  const times = SharedTimes.of(2);
  expect([times.clear(0), times.clear(1), times.clear(2)]).toEqual([true, true, false]);
  times.confirm(1, 2000.0019);
  expect([times.confirmedUntil(0), times.confirmedUntil(1)]).toEqual([0, 2000.001]);
  times.confirm(1, 1000);
  expect(times.confirmedUntil(1)).toBe(2000.001);
  times.clear(1);
  expect(times.confirmedUntil(1)).toBe(0);
});

test("a thread has been silent since it told of its progress last", () => {
  const times = SharedTimes.of(1);
  const before = machineMs();
  times.progress(0);
  const after = machineMs();
  while (machineMs() < after + 5);
  const [from, silentMs, until] = [machineMs(), times.silentMs(), machineMs()];
  // A thousandth of a millisecond is lost.
  expect(silentMs).toBeGreaterThanOrEqual(from - after);
  expect(silentMs).toBeLessThanOrEqual(until - before + 0.001);
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
