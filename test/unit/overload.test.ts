import { describe, expect, test } from "vitest";
import type { ClaimRequest, RenewRequest } from "../../src/core/engine.js";
import type { FakeClock } from "../../src/testing/fake-clock.js";
import { never, type Rigged, rig, types, watch } from "./rig.js";

/** What a client asked of a slow store, and how much of it was under way at once. */
type Watched = { underWay: number; most: number; readonly copies: Map<string, number>; mostCopies: number };

/** Calls with heartbeats reach the store after `arriveMs`, which knows how many there are, and are answered at once. */
function slowRenewals(
  { hooks }: Rigged,
  clock: FakeClock,
  arriveMs: (requests: readonly RenewRequest[]) => number,
): Watched {
  const watched: Watched = { underWay: 0, most: 0, copies: new Map(), mostCopies: 0 };
  const count = (requests: readonly RenewRequest[], by: number): void => {
    watched.underWay += by;
    watched.most = Math.max(watched.most, watched.underWay);
    for (const { id } of requests) {
      const copies = (watched.copies.get(id) ?? 0) + by;
      watched.copies.set(id, copies);
      watched.mostCopies = Math.max(watched.mostCopies, copies);
    }
  };
  hooks.renew = async (call, requests) => {
    count(requests, 1);
    await new Promise<void>((resolve) => void clock.after(arriveMs(requests), resolve));
    count(requests, -1);
    return call();
  };
  return watched;
}

/** A wire that takes `ms` for each heartbeat, one after the other. */
function narrow(clock: FakeClock, ms: () => number): (requests: readonly RenewRequest[]) => number {
  let freeAt = 0;
  return (requests) => {
    freeAt = Math.max(freeAt, clock.now()) + requests.length * ms();
    return freeAt - clock.now();
  };
}

async function holdMany({ locks }: Rigged, clock: FakeClock, count: number, leaseMs: number, prefix = "held") {
  const acquiring = Promise.all(
    Array.from({ length: count }, (_, n) => locks.mutex(`${prefix}:${n}`).acquire({ leaseMs })),
  );
  await clock.advance(0);
  return acquiring;
}

const LEASE_MS = 10_000;

describe("a store that is slow for a while", () => {
  test("at little more than half of the speed that the heartbeats need all holds are kept, and few calls are under way", async () => {
    const { clock, open } = rig();
    const a = await open();
    const holds = await holdMany(a, clock, 10_000, LEASE_MS);
    // All of them in 0.6 of a lease, where a third of it was needed. Two thirds are left when the first round begins.
    let perHeartbeatMs = (0.6 * LEASE_MS) / holds.length;
    const watched = slowRenewals(
      a,
      clock,
      narrow(clock, () => perHeartbeatMs),
    );
    await clock.advance(30_000);
    expect(holds.filter(({ state }) => state === "lost")).toHaveLength(0);
    expect(watched.most).toBe(4);
    expect(watched.mostCopies).toBe(1);
    expect(types(a.told)).not.toContain("unavailable");
    perHeartbeatMs = 0;
    await clock.advance(2 * LEASE_MS);
    expect(holds.filter(({ state }) => state === "held")).toHaveLength(holds.length);
    expect(watched.underWay).toBe(0);
  });

  test("two seconds on the way each time: all holds are kept", async () => {
    const { clock, open } = rig();
    const a = await open();
    const holds = await holdMany(a, clock, 5000, LEASE_MS);
    const watched = slowRenewals(a, clock, () => 2000);
    await clock.advance(30_000);
    expect(holds.filter(({ state }) => state === "lost")).toHaveLength(0);
    expect(watched.most).toBe(4);
  });

  test("what a stop of five seconds held up is answered late, and counts: all holds are kept", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 2000 });
    const holds = await holdMany(a, clock, 5000, LEASE_MS);
    let stoppedUntil = 0;
    const watched = slowRenewals(a, clock, () => Math.max(0, stoppedUntil - clock.now()));
    for (let stops = 0; stops < 3; stops += 1) {
      stoppedUntil = clock.now() + 5000;
      await clock.advance(15_000);
    }
    expect(types(a.told)).toContain("unavailable");
    expect(holds.filter(({ state }) => state === "lost")).toHaveLength(0);
    expect(watched.most).toBeLessThanOrEqual(4);
    expect(watched.mostCopies).toBeLessThanOrEqual(2);
  });

  test("waiters' heartbeats are put off before holders', and shorter leases come first", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    const others = holdMany(b, clock, 3000, 60_000, "wanted");
    await others;
    const short = await holdMany(a, clock, 100, 6000, "short");
    const holds = await holdMany(a, clock, 4000, LEASE_MS);
    const waiting = Array.from({ length: 3000 }, (_, n) =>
      watch(a.locks.mutex(`wanted:${n}`).acquire({ leaseMs: LEASE_MS, waitMs: 120_000 })),
    );
    await clock.advance(0);
    // As many as the holds need, in all; three quarters more are wanted.
    const watched = slowRenewals(
      a,
      clock,
      narrow(clock, () => 1),
    );
    await clock.advance(30_000);
    expect([...short, ...holds].filter(({ state }) => state === "lost")).toHaveLength(0);
    expect(watched.most).toBeLessThanOrEqual(6);
    expect(waiting.filter(({ state }) => state === "pending")).toHaveLength(3000);
  });

  test("waiters that ask again whenever a short lease may have ended do not keep the holders' heartbeats back", async () => {
    const { clock, open } = rig();
    const [a, b] = [await open(), await open()];
    // Each of them is the first in its queue, and asks when the lease before it ends: far more often than its own heartbeats are due.
    await holdMany(b, clock, 2000, 1200, "wanted");
    const holds = await holdMany(a, clock, 1500, LEASE_MS);
    const waiting = Array.from({ length: 2000 }, (_, n) =>
      watch(a.locks.mutex(`wanted:${n}`).acquire({ leaseMs: LEASE_MS, waitMs: 120_000 })),
    );
    await clock.advance(0);
    // Twice what the holds need; those who wait ask for four times as much.
    let sent = 0;
    const wire = narrow(clock, () => 1);
    slowRenewals(a, clock, (requests) => {
      sent += requests.length;
      return wire(requests);
    });
    await clock.advance(30_000);
    expect(holds.filter(({ state }) => state === "lost")).toHaveLength(0);
    expect(types(a.told)).not.toContain("jeopardy");
    // It was as busy as it can be, and nobody lost its place.
    expect(sent).toBeGreaterThan(25_000);
    expect(waiting.filter(({ state }) => state === "pending")).toHaveLength(2000);
  });
});

test("each answer comes after the time limit, and counts from its sending: the hold is kept, and is told of each", async () => {
  const { clock, open } = rig();
  const a = await open({ callTimeoutMs: 5000 });
  const [hold] = await holdMany(a, clock, 1, LEASE_MS);
  const watched = slowRenewals(a, clock, () => 6000);
  await clock.advance(60_000);
  expect(hold?.state).not.toBe("lost");
  expect(watched.mostCopies).toBe(2);
  const unavailable = a.told.filter(({ type }) => type === "unavailable");
  expect(unavailable.length).toBeGreaterThan(5);
  expect(unavailable.length).toBeLessThanOrEqual(a.calls.renew);
});

test("an answer that comes too late for the lease brings nothing back", async () => {
  const { clock, open } = rig();
  const a = await open();
  const [hold] = await holdMany(a, clock, 1, LEASE_MS);
  slowRenewals(a, clock, () => 12_000);
  await clock.advance(9895);
  expect(hold?.state).toBe("lost");
  await clock.advance(30_000);
  expect(hold?.state).toBe("lost");
  expect(types(a.told).filter((type) => type === "lost")).toHaveLength(1);
});

test("pitfall 5: calls that are never answered give their places back, and new holds are renewed", async () => {
  const { clock, open } = rig();
  const a = await open({ callTimeoutMs: 1000 });
  await holdMany(a, clock, 4000, 3000);
  a.hooks.renew = () => never();
  await clock.advance(4000);
  const lost = a.calls.renew;
  expect(lost).toBeGreaterThanOrEqual(4);
  expect(types(a.told).filter((type) => type === "lost")).toHaveLength(4000);
  delete a.hooks.renew;
  const [hold] = await holdMany(a, clock, 1, 6000, "new");
  await clock.advance(60_000);
  expect(hold?.state).toBe("held");
});

test("whoever was woken is asked about while all other places are taken by what is late", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  const holds = await holdMany(a, clock, 4000, LEASE_MS);
  const [other] = await holdMany(b, clock, 1, LEASE_MS, "wanted");
  // A fixed lease is confirmed before it is handed out.
  const waiting = watch(a.locks.mutex("wanted:0").acquire({ leaseMs: LEASE_MS, renew: false }));
  await clock.advance(0);
  a.hooks.renew = (call, requests) => (requests.length > 1 ? never() : call());
  await clock.advance(4000);
  await other?.release();
  await clock.advance(1);
  expect(waiting.state).toBe("done");
  expect(holds[0]?.state).toBe("held");
});

describe("claims and releases", () => {
  const slowly =
    (clock: FakeClock, ms: number) =>
    async <T>(call: () => Promise<T>): Promise<T> => {
      await new Promise<void>((resolve) => void clock.after(ms, resolve));
      return call();
    };

  test("the answer to an earlier try counts, from the time at which that one was sent", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 5000 });
    const claims: ClaimRequest[] = [];
    a.hooks.claim = async (call, claim) => {
      claims.push(claim);
      return slowly(clock, 6000)(call);
    };
    const taking = watch(a.locks.mutex("m").acquire({ leaseMs: LEASE_MS, renew: false }));
    await clock.advance(6000);
    expect(taking.state).toBe("done");
    expect(taking.value?.remainingMs).toBe(LEASE_MS - 105 - 6000);
    // The second copy came after the first was held, and changes nothing.
    await clock.advance(1000);
    expect(new Set(claims.map(({ id }) => id)).size).toBe(1);
    expect(claims).toHaveLength(2);
    await taking.value?.release();
  });

  test("while nothing is answered the pauses between copies grow: four in a minute", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 5000 });
    const at: number[] = [];
    a.hooks.claim = () => (at.push(clock.now()), never());
    const leaving = new AbortController();
    const taking = watch(a.locks.mutex("m").acquire({ signal: leaving.signal }));
    await clock.advance(60_000);
    expect(at.map((time) => Math.round(time / 5000))).toEqual([0, 1, 3, 7]);
    a.hooks.release = () => (at.push(clock.now()), never());
    at.length = 0;
    leaving.abort();
    await clock.advance(60_000);
    expect(taking.state).toBe("failed");
    expect(at).toHaveLength(2);
  });

  test("a try that fails is made again soon, also after its time limit", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 5000 });
    const at: number[] = [];
    a.hooks.claim = async (call) => {
      at.push(clock.now());
      if (at.length === 1) return never();
      if (at.length > 2) return call();
      await new Promise<void>((resolve) => void clock.after(6000, resolve));
      throw new Error("the connection was replaced");
    };
    const taking = watch(a.locks.mutex("m").acquire());
    await clock.advance(12_000);
    expect(taking.state).toBe("done");
    expect(at).toHaveLength(3);
    expect(at[2]).toBeLessThan(11_500);
    await taking.value?.release();
  });

  test("a release that is answered late, within its lease, is confirmed without another copy", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 2000 });
    const [hold] = await holdMany(a, clock, 1, LEASE_MS);
    a.hooks.release = slowly(clock, 5000);
    const releasing = watch(hold?.release() ?? never());
    await clock.advance(5000);
    expect(releasing.state).toBe("done");
    expect(a.calls.release).toBe(2);
  });

  test("a release whose copies are all answered is told once, and closing still waits for another one", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 2000 });
    const [twice, other] = await holdMany(a, clock, 2, LEASE_MS);
    a.hooks.release = slowly(clock, 5000);
    const releasing = watch(twice?.release() ?? never());
    await clock.advance(4000);
    expect(a.calls.release).toBe(2);
    const slow = watch(other?.release() ?? never());
    // Both copies of the first one are answered, and none of the second.
    a.hooks.release = () => never();
    await clock.advance(4500);
    expect([releasing.state, slow.state]).toEqual(["done", "pending"]);
    expect(types(a.told).filter((type) => type === "released")).toHaveLength(1);
    const closing = watch(a.locks.close());
    await clock.advance(0);
    expect(closing.state).toBe("pending");
    await clock.advance(60_000);
    expect(closing.state).not.toBe("pending");
  });

  test("whoever leaves when it is told that the store is unavailable is not asked for again", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 1000 });
    const leaving = new AbortController();
    a.hooks.claim = () => never();
    a.locks.on("unavailable", () => leaving.abort());
    const taking = watch(a.locks.mutex("m").acquire({ signal: leaving.signal }));
    await clock.advance(20_000);
    expect(taking.state).toBe("failed");
    expect(a.calls.claim).toBe(1);
  });
});
