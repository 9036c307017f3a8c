import { expect, test } from "vitest";
import { READERS_MAX } from "../../src/core/limits.js";
import { capacityChange, capacityText, parseCapacity } from "../../src/queue/capacity.js";
import { LocalClaim, LocalClaims } from "../../src/queue/local-claims.js";
import { Lookups } from "../../src/queue/lookups.js";
import { Queue, type QueueEntry } from "../../src/queue/queue.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

const entry = (order: number, units: number | null, capacity: number | null): QueueEntry => ({
  ...{ key: `k${order}`, order, id: units === null ? null : `id${order}`, units, capacity },
});
const queueOf = (capacity: number, ...units: readonly number[]): Queue<QueueEntry> =>
  new Queue(units.map((one, n) => entry(n + 1, one, capacity)));
const keys = (entries: readonly QueueEntry[]): readonly string[] => entries.map(({ key }) => key);
const rules = (queue: Queue<QueueEntry>) =>
  queue.waiters.map((one) => {
    const { predecessor, all, last } = queue.watchRule(one);
    return `${predecessor?.key}${all ? " all" : ""}${last ? " last" : ""}`;
  });

test("whoever fits beside all that came before it holds, and nobody is overtaken", () => {
  const queue = queueOf(3, 1, 1, 2, 1, 3);
  expect(keys(queue.holders)).toEqual(["k1", "k2"]);
  expect(keys(queue.waiters)).toEqual(["k3", "k4", "k5"]);
  expect([queueOf(3, 1).fits(2), queueOf(3, 1).fits(3), queue.fits(1)]).toEqual([true, false, false]);
});

test("an entry that does not say what it is, or states another capacity, takes the whole name", () => {
  expect(keys(new Queue([entry(1, null, null), entry(2, 1, 3)]).holders)).toEqual(["k1"]);
  expect(keys(new Queue([entry(1, 1, 3), entry(2, 1, 1), entry(3, 1, 3)]).holders)).toEqual(["k1"]);
  expect(new Queue([entry(1, null, null)]).capacity, "it states no capacity").toBeNull();
});

test("who held when the capacity was changed goes on holding, and what older entries state does not count", () => {
  const entries = [entry(1, 1, 3), entry(2, 1, 3), entry(3, 1, 3)];
  expect(keys(new Queue(entries, { capacity: 1, heldUpTo: 2 }).holders)).toEqual(["k1", "k2"]);
  expect(keys(new Queue(entries, { capacity: 2, heldUpTo: null }).holders)).toEqual(["k1", "k2"]);
  expect(parseCapacity(capacityText({ capacity: 2, heldUpTo: null }))).toEqual({ capacity: 2, heldUpTo: null });
  expect([parseCapacity("null"), parseCapacity("{}"), parseCapacity("x")]).toEqual([null, null, null]);
});

test("a waiter watches its predecessor, a reader the nearest writer, and the first waiter of a semaphore all", () => {
  const [reader, writer] = [1, READERS_MAX];
  expect(rules(queueOf(1, 1, 1, 1))).toEqual(["k1 last", "k2"]);
  expect(rules(queueOf(READERS_MAX, reader, writer, reader, reader, writer))).toEqual(["k1 last", "k2", "k2", "k4"]);
  expect(rules(queueOf(3, 1, 1, 2, 1, 3))).toEqual(["k2 all", "k3", "k4"]);
});

test("where only some entries were read, the one before is given", () => {
  const queue = queueOf(1, 1, 1);
  const { predecessor, last } = queue.watchRule(entry(9, 1, 1), entry(8, 1, 1));
  expect([predecessor?.key, last]).toEqual(["k8", false]);
});

test("pitfall 56: a permit that is granted is touched while an entry stands behind it, be it a waiter or a holder", () => {
  const touched = (queue: Queue<QueueEntry>) => keys(queue.holders.filter((holder) => queue.mustTouch(holder)));
  expect(touched(queueOf(3, 1, 1, 1))).toEqual(["k1", "k2"]);
  expect(touched(queueOf(3, 2, 2))).toEqual(["k1"]);
  expect(touched(queueOf(1, 1, 1))).toEqual([]);
  expect(touched(queueOf(READERS_MAX, 1, 1, READERS_MAX))).toEqual([]);
});

test("a change of the capacity drops the waiters that would never fit, also where it was written already", () => {
  const queue = queueOf(3, 3, 2, 1);
  expect(capacityChange(queue, 3, 1)).toEqual({ drops: [queue.entries[1]], write: true });
  expect(capacityChange(queue, 2, 1)).toEqual({ kind: "mismatch", capacity: 3 });
  expect(capacityChange(queue, 1, 3)).toEqual({ kind: "set" });
  const written = new Queue(queue.entries, { capacity: 1, heldUpTo: 1 });
  expect(capacityChange(written, 3, 1)).toEqual({ drops: [queue.entries[1]], write: false });
  expect(capacityChange(new Queue([]), 3, 1)).toEqual({ kind: "set" });
});

test("a claim without a heartbeat is ended in time, and again after a pause if that failed", async () => {
  const clock = new FakeClock();
  const ended: string[] = [];
  const claims = new LocalClaims<LocalClaim>(clock, async (due) => {
    for (const claim of due) {
      ended.push(`${claim.id} at ${clock.now() - start}`);
      if (ended.length > 1) claims.delete(claim);
    }
  });
  const start = clock.now();
  const one = claims.add(new LocalClaim({ name: "n", id: "one" }, start + 1000));
  claims.add(new LocalClaim({ name: "n", id: "two" }, start + 9000));
  claims.endAt(one, start + 3000);
  await clock.advance(20_000);
  expect(ended).toEqual(["one at 3000", "one at 4000", "two at 9000"]);
  expect(clock.pending).toBe(0);
});

test("one lookup at a time, and one more for any number of changes meanwhile", async () => {
  const finish: (() => void)[] = [];
  const lookups = new Lookups<LocalClaim>(() => new Promise((resolve) => finish.push(resolve)));
  const claim = new LocalClaim({ name: "n", id: "i" }, Infinity);
  void lookups.request(claim);
  for (let n = 0; n < 3; n += 1) void lookups.request(claim);
  expect(finish).toHaveLength(1);
  for (const expected of [2, 2]) {
    finish.at(-1)?.();
    await new Promise(setImmediate);
    expect(finish).toHaveLength(expected);
  }
  claim.granted = true;
  void lookups.request(claim);
  expect(finish, "a claim that holds is not looked up").toHaveLength(2);
});
