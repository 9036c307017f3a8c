import { expect, test } from "vitest";
import type { EtcdClaim } from "../../src/engines/etcd/claims.js";
import type { EtcdDriver } from "../../src/engines/etcd/driver.js";
import { Keys } from "../../src/engines/etcd/keys.js";
import type { KeyValue, RequestOp, TxnRequest } from "../../src/engines/etcd/messages.js";
import { Snapshots, type Wanted } from "../../src/engines/etcd/snapshots.js";
import { OPERATIONS_MAX, Store } from "../../src/engines/etcd/store.js";
import { wantedOf } from "../../src/engines/etcd/watcher.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

/** What is read of names, and in how many transactions: by a server that has the claims "own" and "ahead" of every name. */

const keys = new Keys("locks/");

function kv(key: string, create_revision: number): KeyValue {
  const id = key.split("/").at(-1);
  const value = Buffer.from(JSON.stringify({ holdfast: 1, id, units: 1, capacity: 1, leaseMs: 5000, owner: {} }));
  return { key, value, create_revision, mod_revision: create_revision, lease: 1n };
}

function answerTo({ request_range: asked }: RequestOp): readonly KeyValue[] {
  if (asked === undefined) throw new Error("something else than a reading");
  const { key, range_end, max_create_revision = Infinity, limit = 0, sort_order } = asked;
  if (key.includes("%")) return [];
  if (range_end === undefined) return [kv(key, 9)];
  const all = [kv(`${key}ahead`, 5), kv(`${key}own`, 9)].filter(
    (one) => one.create_revision <= max_create_revision && one.key < range_end,
  );
  return (sort_order === 2 ? all.toReversed() : all).slice(0, limit === 0 ? all.length : limit);
}

function reader() {
  const sizes: number[] = [];
  const call = async (_name: "txn", { success = [] }: TxnRequest) => {
    sizes.push(success.length);
    const responses = success.map((one) => ({ response_range: { kvs: answerTo(one) } }));
    return { header: { cluster_id: 1n, revision: 9, raft_term: 1n }, succeeded: true, responses };
  };
  const store = new Store({ call } as unknown as EtcdDriver, new FakeClock(), keys, () => {});
  return { snapshots: new Snapshots(store), sizes };
}

const ofOwn = (name: string, more: Partial<Wanted> = {}): Wanted => ({
  ref: { name, id: "own" },
  key: keys.claim(name, "own"),
  limit: 2,
  ...more,
});

test.each([1, 24, 25, 26, 33, 50, 51, 200])(
  "%i claims that are read at once: each is answered, and no transaction has more operations than a server takes",
  async (count) => {
    const { snapshots, sizes } = reader();
    const wants = Array.from({ length: count }, (_, n) => ofOwn(`name ${n}`, { token: 9 }));
    const seen = await snapshots.all(wants);
    expect(seen.map(({ own, before }) => [own?.key, before?.key])).toEqual(
      wants.map(({ ref }) => [keys.claim(ref.name, "own"), keys.claim(ref.name, "ahead")]),
    );
    for (const { queue, changed } of seen) {
      expect(queue.entries.map(({ id }) => id)).toEqual(["ahead", "own"]);
      expect(changed, "no record of a capacity").toEqual({ to: null, revision: 0, lease: 0n });
    }
    expect(Math.max(...sizes)).toBeLessThanOrEqual(OPERATIONS_MAX);
    expect(sizes).toHaveLength(Math.ceil((4 * count) / OPERATIONS_MAX));
  },
);

test("five claims of one name cost one reading of all of it, four cost one of what they need", async () => {
  const { snapshots, sizes } = reader();
  await snapshots.all(Array.from({ length: 4 }, () => ofOwn("few")));
  expect(sizes.splice(0)).toEqual([4 * 3]);
  const seen = await snapshots.all(Array.from({ length: 5 }, () => ofOwn("many", { token: 9 })));
  expect(sizes).toEqual([2]);
  expect(seen.map(({ own, before }) => [own?.id, before?.id])).toEqual(
    Array.from({ length: 5 }, () => ["own", "ahead"]),
  );
});

test("the claim before it is read for who waits and does not watch it yet, and for nobody else", () => {
  const ref = { name: "m", id: "own" };
  const at = (more: Partial<EtcdClaim>): EtcdClaim =>
    ({
      key: "key",
      limit: 2,
      token: 9,
      granted: false,
      unwatchPredecessor: null,
      waitsForOwn: false,
      ...more,
    }) as EtcdClaim;
  const tokenOf = (more: Partial<EtcdClaim>): number | undefined => wantedOf(ref, at(more)).token;
  expect(wantedOf(ref, at({}))).toEqual({ ref, key: "key", limit: 2, token: 9 });
  expect(tokenOf({ granted: true })).toBeUndefined();
  expect(tokenOf({ unwatchPredecessor: () => {} })).toBeUndefined();
  expect(tokenOf({ waitsForOwn: true })).toBeUndefined();
  expect(tokenOf({ token: 0 }), "its position is not known").toBeUndefined();
  expect(wantedOf(ref, undefined)).toEqual({ ref, key: undefined, limit: Infinity, token: undefined });
});
