import { expect, test } from "vitest";
import { READERS_MAX } from "../../src/core/limits.js";
import { capacityChange, capacityText, parseCapacity } from "../../src/queue/capacity.js";
import { nameStateOf } from "../../src/queue/inspect.js";
import { LocalClaim, LocalClaims } from "../../src/queue/local-claims.js";
import { Queue, type QueueEntry } from "../../src/queue/queue.js";
import { Readings } from "../../src/queue/readings.js";
import { release } from "../../src/queue/release.js";
import { type Seen, Turns } from "../../src/queue/turns.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

const entry = (order: number, units: number | null, capacity: number | null): QueueEntry => ({
  ...{ key: `k${order}`, order, id: units === null ? null : `id${order}`, units, capacity },
});
const queueOf = (capacity: number, ...units: readonly number[]): Queue =>
  new Queue(units.map((one, n) => entry(n + 1, one, capacity)));
const keys = (entries: readonly QueueEntry[]): readonly string[] => entries.map(({ key }) => key);
const rules = (queue: Queue) =>
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
  const unknown = new Queue([entry(1, null, null), entry(2, null, null), entry(3, null, null)]);
  expect([unknown.limit, keys(unknown.holders)], "of several that say nothing one holds").toEqual([1, ["k1"]]);
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
  const touched = (queue: Queue) => keys(queue.holders.filter((holder) => queue.mustTouch(holder)));
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

/** Notes what it is told to do; `failures` removals fail. */
class Noted extends LocalClaims<LocalClaim> {
  readonly removed: string[] = [];
  readonly told: string[] = [];
  failures = 0;
  /** Whose entries the store has. */
  readonly there = new Set<string>();
  /** Whose entries cannot be watched. */
  readonly deaf = new Set<string>();
  readonly #start: number;

  constructor(clock = new FakeClock()) {
    super(clock, ({ kind }) => void this.told.push(kind));
    this.#start = clock.now();
  }

  protected override async remove({ id }: LocalClaim): Promise<boolean> {
    this.removed.push(`${id} at ${this.clock.now() - this.#start}`);
    this.failures -= 1;
    if (this.failures >= 0) throw new Error("nobody answers");
    return this.there.delete(id);
  }

  protected override isHeard({ id }: LocalClaim): boolean {
    return !this.deaf.has(id);
  }

  protected override unwatch(): void {}
}

const claimOf = (id: string, endsAt = Infinity): LocalClaim => new LocalClaim({ name: "n", id }, endsAt);

test("a claim without a heartbeat is removed in time, and again after a pause if that failed", async () => {
  const clock = new FakeClock();
  const claims = new Noted(clock);
  const start = clock.now();
  claims.failures = 1;
  const one = claims.add(claimOf("one", start + 1000));
  claims.add(claimOf("two", start + 9000));
  claims.endAt(one, start + 3000);
  await clock.advance(3000);
  expect([one.over, claims.get(one)], "over, though its entry may be there").toEqual([true, one]);
  await clock.advance(17_000);
  expect(claims.removed).toEqual(["one at 3000", "one at 4000", "two at 9000"]);
  expect(clock.pending).toBe(0);
});

test("a claim that expires early is removed at once, once, and stays noted until it is gone", async () => {
  const clock = new FakeClock();
  const claims = new Noted(clock);
  claims.failures = 1;
  const one = claims.add(claimOf("one", clock.now() + 9000));
  claims.expire(one);
  claims.expire(one);
  expect([claims.removed, one.over, claims.get(one)]).toEqual([["one at 0"], true, one]);
  await clock.advance(20_000);
  expect([claims.removed, claims.get(one)]).toEqual([["one at 0", "one at 1000"], undefined]);
  expect(claims.told, "whoever let it expire need not be told").toEqual([]);
});

test.each(["gone", "revoked", null] as const)(
  "a claim whose time ends while its slow release is on its way was released, unless somebody else did it (found: %s)",
  async (found) => {
    const clock = new FakeClock();
    const claims = new Noted(clock);
    const [slowMs, endsMs] = [5000, 3000];
    const exit = {
      leave: async () => {
        await new Promise<void>((resolve) => clock.after(slowMs, resolve));
        return found;
      },
      bury: async () => true,
      buried: async () => new Set<string>(),
      queueNow: async () => new Queue([]),
      removeEntry: async () => false,
    };
    for (const there of [true, false]) {
      const one = claims.add(claimOf(`one ${there}`, clock.now() + endsMs));
      if (there) claims.there.add(one.id);
      const releasing = release(exit, claims, { name: one.name, id: one.id });
      await clock.advance(slowMs + 1);
      // Not there: the store had ended it before we could.
      expect(await releasing).toBe(found === "revoked" ? "revoked" : there ? "released" : "gone");
    }
    expect(claims.removed).toHaveLength(2);
  },
);

test("a claim is over from the call of its release on, and stays noted until its entry is gone", async () => {
  const claims = new Noted();
  const one = claims.add(claimOf("one"));
  let leave: (answer: "released") => void = () => {};
  const exit = {
    leave: () => new Promise<"released">((resolve) => (leave = resolve)),
    bury: async () => true,
    buried: async () => new Set<string>(),
    queueNow: async () => new Queue([]),
    removeEntry: async () => false,
  };
  const releasing = release(exit, claims, { name: one.name, id: one.id });
  expect([one.over, claims.get(one)]).toEqual([true, one]);
  leave("released");
  expect(await releasing).toBe("released");
});

/** A queue that is read when the test says so. */
function queueRead() {
  const pending: ((seen: Seen | Promise<Seen>) => void)[] = [];
  const claims = new Noted();
  const watched: string[] = [];
  const unwatched: string[] = [];
  /** What had changed before each of the next watches was there. */
  const newer: Seen[] = [];
  const store = {
    list: () => new Promise<Seen>((resolve) => pending.push(resolve)),
    watch: async ({ id }: LocalClaim) => {
      watched.push(id);
      return newer.shift() ?? null;
    },
    unwatch: ({ id }: LocalClaim) => void unwatched.push(id),
    touch: () => {},
    leftMs: async () => 1000,
    placeMs: () => undefined,
    maySay: () => true,
    know: async (_: string, { order }: QueueEntry) => ({ token: order }),
    deathShowsMs: () => 500,
  };
  const events: string[] = [];
  const turns = new Turns(store, claims, (event) => void events.push(event.kind));
  return { pending, claims, watched, unwatched, newer, events, turns };
}
const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

test("one lookup at a time, and one more for any number of changes meanwhile", async () => {
  const { pending, claims, watched, events, turns } = queueRead();
  const claim = claims.add(claimOf("id2"));
  const queue = queueOf(1, 1, 1);
  void turns.lookUp(claim);
  for (let n = 0; n < 3; n += 1) void turns.lookUp(claim);
  expect(pending).toHaveLength(1);
  for (const expected of [2, 2]) {
    pending.at(-1)?.({ queue, own: queue.entries[1] });
    await settled();
    expect(pending).toHaveLength(expected);
  }
  expect(watched, "it waits, and watches").toEqual(["id2", "id2"]);
  void turns.lookUp(claim);
  pending.at(-1)?.({ queue: new Queue(queue.entries.slice(1)), own: queue.entries[1] });
  await settled();
  expect([claim.granted, events]).toEqual([true, ["granted"]]);
  void turns.lookUp(claim);
  expect(pending, "a claim that holds is not looked up").toHaveLength(3);
});

test("a grant is told once: by the heartbeat that found it, or by the lookup", async () => {
  const { pending, claims, events, turns } = queueRead();
  const claim = claims.add(claimOf("id1"));
  claim.token = 1;
  const queue = queueOf(1, 1);
  const found = { queue, own: queue.entries[0] };
  void turns.lookUp(claim);
  const answer = await turns.answer({ claim, found, leaseMs: 1000 }, 0);
  expect(answer).toEqual({ kind: "granted", leftMs: 1000, token: 1, floor: 1 });
  pending[0]?.(found);
  await settled();
  expect(events).toEqual([]);
});

test("a heartbeat whose reading is older than the grant names nobody who has left since", async () => {
  const { pending, claims, turns } = queueRead();
  const claim = claims.add(claimOf("id2"));
  claim.token = 2;
  const before = queueOf(1, 1, 1);
  const answering = turns.answer({ claim, found: { queue: before, own: before.entries[1] }, leaseMs: 1000 }, 0);
  // While its answer is prepared it is pushed that the claim holds: the one before it has left.
  turns.push(claim, { token: 2, floor: 2 });
  await settled();
  const now = new Queue(before.entries.slice(1));
  pending[0]?.({ queue: now, own: now.entries[0] });
  expect(await answering).toEqual({ kind: "granted", leftMs: 1000, token: 2, floor: 2 });
});

test("pitfall 1: a queue that changed before it was watched is watched anew, until it did not", async () => {
  const { claims, pending, watched, newer, turns } = queueRead();
  const claim = claims.add(claimOf("id4"));
  const [four, three, two] = [0, 1, 2].map((left) => new Queue(queueOf(1, 1, 1, 1, 1).entries.slice(left)));
  if (four === undefined || three === undefined || two === undefined) throw new Error("three queues");
  const seen = (queue: Queue): Seen => ({ queue, own: queue.entries.at(-1) });
  newer.push(seen(three), seen(two));
  expect(await turns.answer({ claim, found: seen(four), leaseMs: 1000 }, 0)).toMatchObject({ kind: "queued" });
  expect([watched, newer, pending]).toEqual([["id4", "id4", "id4"], [], []]);
});

test("what a claim that holds waited for is watched no more, whoever told it", async () => {
  const { pending, claims, unwatched, events, turns } = queueRead();
  const [looks, pushed] = [claims.add(claimOf("id1")), claims.add(claimOf("id2"))];
  void turns.lookUp(looks);
  const queue = queueOf(1, 1);
  pending[0]?.({ queue, own: queue.entries[0] });
  await settled();
  turns.push(pushed, { token: 2, floor: 2 });
  expect([unwatched, events]).toEqual([
    ["id1", "id2"],
    ["granted", "granted"],
  ]);
  turns.push(pushed, { token: 2, floor: 2 });
  expect(events, "once").toHaveLength(2);
});

test("a claim whose turn cannot be looked up is watched no more, and is to be asked for", async () => {
  const { pending, claims, unwatched, events, turns } = queueRead();
  const claim = claims.add(claimOf("id1"));
  void turns.lookUp(claim);
  pending[0]?.(Promise.reject(new Error("nobody answers")));
  await settled();
  expect([unwatched, events, claim.granted]).toEqual([["id1"], ["wake"], false]);
  const over = claims.add(claimOf("id2"));
  void turns.lookUp(over);
  claims.forget(over);
  pending[1]?.(Promise.reject(new Error("nobody answers")));
  await settled();
  expect(events, "and not what is over").toEqual(["wake"]);
  void turns.lookUp(over);
  expect(pending, "which is not looked up either").toHaveLength(2);
});

test("who holds and who waits is shown with its data, if it has any, and without a token while it waits", () => {
  const owner = { client: "c", host: "h", pid: 1 };
  const known = (order: number) => ({ token: order, owner, ...(order === 2 ? {} : { data: `data ${order}` }) });
  const state = nameStateOf("n", queueOf(2, 1, 1, 1), ({ order }) => ({ known: known(order), units: 1, leftMs: 5 }));
  const shown = (order: number) => ({ id: `id${order}`, units: 1, leftMs: 5, owner });
  expect(state).toEqual({
    name: "n",
    capacity: 2,
    lastToken: 3,
    holders: [
      { ...shown(1), token: 1, data: "data 1" },
      { ...shown(2), token: 2 },
    ],
    waiters: [{ ...shown(3), data: "data 3" }],
  });
  expect(nameStateOf("n", queueOf(1, 1), () => null)).toBeNull();
  // Of another library, which states nothing: it holds as a mutex is held.
  const theirs = new Queue([entry(1, null, null), entry(2, null, null)]);
  const foreign = nameStateOf("n", theirs, ({ order }) => ({ known: { token: order }, units: 1, leftMs: 5 }));
  expect(foreign).toMatchObject({ capacity: 1, lastToken: 2, holders: [{ id: "k1" }], waiters: [{ id: "k2" }] });
  const held = nameStateOf("n", queueOf(2, 1, 1), ({ order }) => ({ known: known(order), units: 1, leftMs: 5 }));
  expect([held?.lastToken, held?.waiters], "the newest of those that hold").toEqual([2, []]);
});

test("pitfall 1: a claim whose own entry is not in the queue is lost, whoever is before it", async () => {
  const { pending, claims, turns } = queueRead();
  const claim = claims.add(claimOf("id1"));
  void turns.lookUp(claim);
  pending[0]?.({ queue: new Queue([]), own: undefined });
  await settled();
  expect([claim.over, claim.granted, claims.told, claims.get(claim)]).toEqual([true, false, ["lost"], undefined]);
});

test("claims of one name share a reading, and those that come while it is under way the next", async () => {
  const read: string[][] = [];
  const finish: (() => void)[] = [];
  const readings = new Readings<string, string>(async (wants) => {
    read.push([...wants]);
    await new Promise<void>((resolve) => finish.push(resolve));
    return wants.map((want) => `found ${want}`);
  });
  const first = [readings.one("n", "a"), readings.one("n", "b")];
  await settled();
  const next = [readings.one("n", "c"), readings.one("n", "d"), readings.one("other", "e")];
  await settled();
  expect(read).toEqual([["a", "b"], ["e"]]);
  finish.shift()?.();
  expect(await Promise.all(first)).toEqual(["found a", "found b"]);
  await settled();
  expect(read).toEqual([["a", "b"], ["e"], ["c", "d"]]);
  for (const one of finish) one();
  expect(await Promise.all(next)).toEqual(["found c", "found d", "found e"]);
});

class Keyed extends LocalClaim {
  override readonly key: string;

  constructor(order: number) {
    super({ name: "n", id: `id${order}` }, Infinity);
    this.key = `k${order}`;
    this.token = order;
    this.made = true;
  }
}

test("pitfall 15: who waits for a claim of its own client is told when that has left, without a watch, and nobody else is", async () => {
  const { pending, claims, watched, events, turns } = queueRead();
  const [one, two, three] = [1, 2, 3].map((order) => claims.add(new Keyed(order)));
  if (one === undefined || two === undefined || three === undefined) throw new Error("three claims");
  const queue = queueOf(1, 1, 1, 1);
  const standing = (claim: LocalClaim, n: number) => ({
    ...{ claim, found: { queue, own: queue.entries[n] }, leaseMs: 1000, arrived: true },
  });
  expect(await turns.answer(standing(two, 1), 0)).toMatchObject({ kind: "queued", ahead: "id1" });
  expect(await turns.answer(standing(three, 2), 0)).toMatchObject({ kind: "queued", ahead: "id2" });
  expect(watched).toEqual([]);
  claims.forget(one);
  expect(pending, "the next alone looks").toHaveLength(1);
  const now = new Queue(queue.entries.slice(1));
  pending[0]?.({ queue: now, own: now.entries[0] });
  await settled();
  expect([two.granted, three.granted, events]).toEqual([true, false, ["granted"]]);
  // The next went on before the store knew: it holds when the entry before it is gone, and nobody is told or asked.
  turns.follow(three, "id2");
  claims.forget(two);
  await settled();
  expect([three.granted, pending.length, events]).toEqual([true, 1, ["granted"]]);
});

test("of several that wait for a claim of their own client one leaves: the others are told when that has left", async () => {
  const { pending, claims, turns } = queueRead();
  const [writer, one, two] = [1, 2, 3].map((order) => claims.add(new Keyed(order)));
  if (writer === undefined || one === undefined || two === undefined) throw new Error("three claims");
  const queue = queueOf(READERS_MAX, READERS_MAX, 1, 1);
  for (const [n, claim] of [one, two].entries())
    await turns.answer({ claim, found: { queue, own: queue.entries[n + 1] }, leaseMs: 1000 }, 0);
  expect([one.waitsForOwn, two.waitsForOwn]).toEqual([true, true]);
  claims.forget(one);
  expect(pending).toHaveLength(0);
  claims.forget(writer);
  expect(pending, "the other looks").toHaveLength(1);
});

test("only a claim that was told to stand behind another one follows it, and a dead, ended or taken over one is not named", async () => {
  const { claims, turns } = queueRead();
  const [one, two] = [claims.add(new Keyed(1)), claims.add(new Keyed(2))];
  const queue = queueOf(1, 1, 1);
  const standing = { claim: two, found: { queue, own: queue.entries[1] }, leaseMs: 1000 };
  expect(await turns.answer(standing, 0), "asked again").not.toHaveProperty("ahead");
  turns.follow(two, "id1");
  expect(two.followed).toBe(false);
  for (const change of [{ made: false }, { over: true }, { endsAt: -1 }]) {
    const before = { made: one.made, over: one.over, endsAt: one.endsAt };
    Object.assign(one, change);
    expect(await turns.answer({ ...standing, arrived: true }, 0), JSON.stringify(change)).not.toHaveProperty("ahead");
    Object.assign(one, before);
  }
});

test("pitfall 56: the first waiter of a semaphore watches all holders, also when it waited for one of its own client before", async () => {
  const { pending, claims, watched, turns } = queueRead();
  const [first, second] = [claims.add(new Keyed(3)), claims.add(new Keyed(4))];
  const full = queueOf(2, 1, 1, 1, 1);
  const answer = (claim: LocalClaim, n: number) =>
    turns.answer({ claim, found: { queue: full, own: full.entries[n] }, leaseMs: 1000 }, 0);
  await answer(first, 2);
  await answer(second, 3);
  expect(watched, "the second waits for the first").toEqual(["id3"]);
  void turns.lookUp(first);
  const now = new Queue(full.entries.slice(1));
  pending[0]?.({ queue: now, own: now.entries[1] });
  await settled();
  expect(first.granted).toBe(true);
  pending[1]?.({ queue: now, own: now.entries[2] });
  await settled();
  expect(watched, "it is told of the first's grant, and is the first now").toEqual(["id3", "id4"]);
});

test("whoever is waited for is watched at once, and who waits for one that cannot be watched watches by itself", async () => {
  const { pending, claims, watched, turns } = queueRead();
  const [one, two, three] = [1, 2, 3].map((order) => claims.add(new Keyed(order)));
  if (one === undefined || two === undefined || three === undefined) throw new Error("three claims");
  const started: string[] = [];
  for (const claim of [one, two]) claims.watchLater(claim, () => void started.push(claim.id));
  const queue = queueOf(1, 1, 1, 1);
  const answer = (claim: LocalClaim, n: number) =>
    turns.answer({ claim, found: { queue, own: queue.entries[n] }, leaseMs: 1000 }, 0);
  await answer(two, 1);
  expect([started, watched], "the entry of the first, not later").toEqual([["id1"], []]);
  claims.watchLater(one, () => void started.push("again"));
  expect(started, "and whenever it is to be watched again").toEqual(["id1", "again"]);
  claims.deaf.add("id2");
  await answer(three, 2);
  expect([started, watched]).toEqual([["id1", "again", "id2"], ["id3"]]);
  // Its watch broke.
  claims.deaf.add("id1");
  claims.unheard(one);
  pending[0]?.({ queue, own: queue.entries[1] });
  await settled();
  expect(watched).toEqual(["id3", "id2"]);
  claims.forget(one);
  await settled();
  expect(pending, "it waits for its own client no more").toHaveLength(1);
});

test("an entry is watched once, although it was to be watched later and somebody counts on it before", async () => {
  const clock = new FakeClock();
  const claims = new Noted(clock);
  const [one, two] = [claims.add(claimOf("one")), claims.add(claimOf("two"))];
  const started: string[] = [];
  for (const claim of [one, two]) claims.watchLater(claim, () => void started.push(claim.id));
  claims.watchLater(two, () => void started.push("twice"));
  expect(claims.countOn(one)).toBe(true);
  expect(started).toEqual(["one"]);
  claims.finish(two);
  await clock.advance(10_000);
  expect([started, clock.pending], "nor one that is over").toEqual([["one"], 0]);
});
