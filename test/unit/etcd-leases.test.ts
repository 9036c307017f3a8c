import { expect, test } from "vitest";
import { EngineRefusedError } from "../../src/core/errors.js";
import type { Calls, EtcdDriver } from "../../src/engines/etcd/driver.js";
import { EtcdError, STATUS, translated } from "../../src/engines/etcd/errors.js";
import { Keys } from "../../src/engines/etcd/keys.js";
import { Leases } from "../../src/engines/etcd/leases.js";
import type { Header } from "../../src/engines/etcd/messages.js";
import { Slots } from "../../src/engines/etcd/slots.js";
import { Store } from "../../src/engines/etcd/store.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { soon } from "./etcd-network.js";

/** Leases that are shared, revisions that only grow, keys that are used again: what an engine keeps in mind beside the store. */

type Asked = {
  readonly what: string;
  readonly request: object;
  answer(more?: object): void;
  fail(cause?: Error): void;
};

const header = (more: Partial<Header> = {}): Header => ({ cluster_id: 1n, revision: 1, raft_term: 1n, ...more });

/** A wire that the test answers. `grants`: leases are granted at once, each with the next number. */
function wire(grants = true) {
  const clock = new FakeClock();
  const asked: Asked[] = [];
  let id = 0n;
  const call = (what: string, request: object): Promise<object> =>
    new Promise((resolve, reject) => {
      const fail = (cause: Error = new EtcdError(STATUS.UNAVAILABLE, "the wire is cut")): void => reject(cause);
      const TTL = (request as { TTL?: number }).TTL ?? 5;
      const plain = what === "leaseGrant" ? { ID: (id += 1n), TTL } : { TTL };
      asked.push({ what, request, answer: (more = {}) => resolve({ header: header(), ...plain, ...more }), fail });
      if (what === "leaseGrant" && grants) asked.at(-1)?.answer();
    });
  const client = {
    call: (name: keyof Calls, request: object) => call(name, request),
    keepAlive: (lease: bigint) => call("keepAlive", { ID: lease }),
  } as unknown as EtcdDriver;
  const of = (what: string): Asked[] => asked.filter((one) => one.what === what);
  return { clock, asked, of, client, leases: new Leases(client, clock) };
}

test("claims of one length in whole seconds share a lease, also while it is asked for; one alone is shared by nobody", async () => {
  const { leases, of } = wire();
  const all = await Promise.all([leases.of(4001), leases.of(5000), leases.of(5001), leases.of(5000)]);
  expect(all.map(({ id, ttlMs, alone }) => [id, ttlMs, alone])).toEqual([
    [1n, 5000, false],
    [1n, 5000, false],
    [2n, 6000, false],
    [1n, 5000, false],
  ]);
  expect(of("leaseGrant").map(({ request }) => request)).toEqual([{ TTL: 5 }, { TTL: 6 }]);
  const own = await Promise.all([leases.alone(4001), leases.alone(5000)]);
  expect(own.map(({ id, ttlMs, alone }) => [id, ttlMs, alone])).toEqual([
    [3n, 5000, true],
    [4n, 5000, true],
  ]);
  expect((await leases.of(5000)).id, "still the shared one").toBe(1n);
});

test("a lease that may have ended, or has, is not shared any more: all who come then share a new one", async () => {
  const { clock, leases } = wire();
  const first = await leases.of(5000);
  await clock.advance(4999);
  expect((await leases.of(5000)).id).toBe(1n);
  await clock.advance(1);
  const again = await Promise.all([leases.of(5000), leases.of(5000)]);
  expect(again.map(({ id }) => id)).toEqual([2n, 2n]);
  leases.lost(again[0]);
  expect([first.gone, again[0]?.gone]).toEqual([false, true]);
  expect((await leases.of(5000)).id).toBe(3n);
});

test("a lease that could not be had is told to all who asked, and asked for anew by the next", async () => {
  const { leases, of } = wire(false);
  const both = [leases.of(5000), leases.of(5000)].map((one) => one.catch((error: unknown) => error));
  await settle();
  expect(of("leaseGrant")).toHaveLength(1);
  of("leaseGrant")[0]?.fail();
  await settle();
  // The second found that the first had failed, and asks for itself.
  expect(of("leaseGrant")).toHaveLength(2);
  of("leaseGrant")[1]?.answer();
  const [failed, had] = await Promise.all(both.map(soon));
  expect(String(failed)).toMatch(/the wire is cut/);
  expect(had).toMatchObject({ id: 2n });
});

test("a lease counts from when it was asked for, not from when that was answered", async () => {
  const { clock, leases, of } = wire(false);
  const asking = leases.of(5000);
  await clock.advance(2000);
  of("leaseGrant")[0]?.answer({ TTL: 7 });
  expect(await soon(asking)).toMatchObject({ ttlMs: 7000, provenUntil: 7000 });
});

test("tombstones of a minute are under one lease of two, which is never kept alive", async () => {
  const { clock, leases, of } = wire();
  const under = (): Promise<unknown> => soon(leases.bury(async (lease) => lease));
  expect([await under(), await under()]).toEqual([1n, 1n]);
  await clock.advance(59_999);
  expect(await under()).toBe(1n);
  await clock.advance(1);
  expect([await under(), await under()]).toEqual([2n, 2n]);
  expect(of("leaseGrant").map(({ request }) => request)).toEqual([{ TTL: 120 }, { TTL: 120 }]);
});

test("a lease for tombstones that could not be had is asked for anew by the next release", async () => {
  const { leases, of } = wire(false);
  const first = leases.bury(async (lease) => lease);
  of("leaseGrant")[0]?.fail();
  expect(String(await soon(first))).toMatch(/the wire is cut/);
  const next = leases.bury(async (lease) => lease);
  await settle();
  of("leaseGrant")[1]?.answer();
  expect(await soon(next)).toBe(2n);
});

test("heartbeats of one turn are one keep-alive; one that was sent before somebody asked does not count for it", async () => {
  const { clock, leases, of } = wire();
  const lease = await leases.of(5000);
  const first = [leases.beat(lease, 0), leases.beat(lease, 0)];
  await settle();
  expect(of("keepAlive").map(({ request }) => request)).toEqual([{ ID: 1n }]);
  const joins = leases.beat(lease, 0);
  await settle();
  expect(of("keepAlive"), "it is under way since then").toHaveLength(1);
  await clock.advance(1000);
  const later = leases.beat(lease, 1000);
  await settle();
  expect(of("keepAlive")).toHaveLength(2);
  of("keepAlive")[1]?.answer({ header: header({ raft_term: 7n }) });
  await soon(later);
  expect(lease.beat).toEqual({ sentAt: 1000, term: 7n });
  // The answer to the first comes behind that of the second: it says less.
  of("keepAlive")[0]?.answer({ header: header({ raft_term: 6n }) });
  await soon(Promise.all([...first, joins]));
  expect(lease.beat).toEqual({ sentAt: 1000, term: 7n });
  expect(lease.beating).toBeNull();
  void leases.beat(lease, 0);
  await settle();
  expect(of("keepAlive"), "nothing is under way any more").toHaveLength(3);
});

test("an older heartbeat that is answered while a newer one is under way does not hide that", async () => {
  const { clock, leases, of } = wire();
  const lease = await leases.of(5000);
  void leases.beat(lease, 0);
  await settle();
  await clock.advance(1000);
  void leases.beat(lease, 1000);
  await settle();
  of("keepAlive")[0]?.answer();
  await settle();
  void leases.beat(lease, 1000);
  await settle();
  expect(of("keepAlive")).toHaveLength(2);
});

test("a heartbeat that fails proves nothing, and one that finds no lease says so: then none is sent any more", async () => {
  const { leases, of } = wire();
  const lease = await leases.of(5000);
  const lost = leases.beat(lease, 0);
  await settle();
  of("keepAlive")[0]?.fail();
  await soon(lost);
  expect([lease.beat, lease.gone]).toEqual([null, false]);
  const gone = leases.beat(lease, 0);
  await settle();
  of("keepAlive")[1]?.answer({ TTL: 0 });
  await soon(gone);
  expect([lease.beat, lease.gone]).toEqual([null, true]);
  await soon(leases.beat(lease, 0));
  await settle();
  expect(of("keepAlive")).toHaveLength(2);
});

test("who closes revokes the leases that nobody uses, waits for all that are being revoked, and leaves the others", async () => {
  const { leases, of } = wire();
  const [used, idle] = [await leases.of(5000), await leases.of(9000)];
  leases.end(77n);
  const closing = leases.close(new Set([used])).then(() => "closed");
  await settle();
  expect(of("leaseRevoke").map(({ request }) => request)).toEqual([{ ID: 77n }, { ID: idle.id }]);
  of("leaseRevoke")[0]?.answer();
  expect(await soon(closing)).toBe("nothing yet");
  of("leaseRevoke")[1]?.fail();
  expect(await soon(closing)).toBe("closed");
});

test("who closes does not wait for what was revoked long ago, nor for a lease that could not be had", async () => {
  const { leases, of } = wire(false);
  const failed = leases.of(5000).catch(() => {});
  await settle();
  of("leaseGrant")[0]?.fail();
  await soon(failed);
  leases.end(77n);
  of("leaseRevoke")[0]?.answer();
  expect(await soon(leases.close(new Set()))).toBeUndefined();
  expect(of("leaseRevoke")).toHaveLength(1);
});

/** A store on a wire that the test answers. */
function storeOf() {
  const { clock, of, client } = wire();
  let wentBack = 0;
  const store = new Store(client, clock, new Keys("p/"), () => (wentBack += 1));
  const send = () => {
    const promise = store.txn({}).then(
      ({ revision, term, sentAt }) => ({ revision, term, sentAt }),
      (error: unknown) => error,
    );
    const asked = of("txn").at(-1) as Asked;
    return { promise, answer: (more: Partial<Header>) => asked.answer({ header: header(more) }) };
  };
  return { clock, of, store, send, wentBack: () => wentBack };
}

test("an answer says when it was asked for; one that was overtaken by a newer one is older, and that is no restore", async () => {
  const { clock, send, wentBack } = storeOf();
  const [first, second] = [send(), send()];
  await clock.advance(500);
  second.answer({ revision: 10, raft_term: 3n });
  expect(await soon(second.promise)).toEqual({ revision: 10, term: 3n, sentAt: 0 });
  first.answer({ revision: 9 });
  expect(await soon(first.promise)).toMatchObject({ revision: 9, sentAt: 0 });
  const third = send();
  third.answer({ revision: 10 });
  expect(await soon(third.promise)).toMatchObject({ revision: 10, sentAt: 500 });
  expect(wentBack()).toBe(0);
});

test("pitfall 33: a revision below what was known when it was asked for is refused, for good, and told once", async () => {
  const { of, send, wentBack } = storeOf();
  const [first, early] = [send(), send()];
  first.answer({ revision: 10 });
  await soon(first.promise);
  const back = [send(), send()];
  for (const one of back) {
    one.answer({ revision: 9 });
    expect(String(await soon(one.promise))).toMatch(/its revision went back from 10 to 9/);
  }
  expect(wentBack()).toBe(1);
  const asked = of("txn").length;
  const refused = await soon(send().promise);
  expect(translated(refused)).toBeInstanceOf(EngineRefusedError);
  expect(of("txn"), "nothing is asked any more").toHaveLength(asked);
  early.answer({ revision: 11 });
  expect(await soon(early.promise), "what was asked before that and belongs to the old store").toMatchObject({
    revision: 11,
  });
});

test("another cluster at the same address is refused, and what it tells is not what was asked", async () => {
  const { store, send, wentBack } = storeOf();
  expect(store.isSame(header())).toBe(false);
  const first = send();
  first.answer({});
  await soon(first.promise);
  expect([store.isSame(header()), store.isSame(header({ cluster_id: 2n }))]).toEqual([true, false]);
  const other = send();
  other.answer({ cluster_id: 2n, revision: 99 });
  expect(String(await soon(other.promise))).toMatch(/another cluster answers/);
  expect([wentBack(), store.isSame(header())]).toEqual([1, true]);
});

test("keys are used again in the order in which they were left, as long as nothing can hit them", () => {
  const slots = new Slots("e");
  expect([slots.take("n"), slots.take("n"), slots.take("n"), slots.take("m")]).toEqual([
    "e-0-0",
    "e-0-1",
    "e-0-2",
    "e-0-0",
  ]);
  slots.leave("n", "e-0-1", true);
  slots.leave("n", "e-0-0", true);
  expect([slots.take("n"), slots.take("n"), slots.take("n")]).toEqual(["e-0-1", "e-0-0", "e-0-3"]);
  // What may still be hit is never used again, and a name that forgot its numbers begins with others.
  slots.leave("n", "e-0-3", false);
  expect(slots.take("n")).toBe("e-1-4");
  for (const slot of ["e-0-0", "e-0-1", "e-0-2", "e-1-4"]) slots.leave("n", slot, true);
  expect(slots.take("n")).toBe("e-1-0");
  slots.leave("m", "e-0-0", true);
  expect(() => slots.leave("m", "e-0-0", true)).toThrow("a slot is left once");
});
