import type { InspectFilter, NameState } from "../../core/inspect.js";
import { LEASE_MAX_MS } from "../../core/limits.js";
import { nameStateOf } from "../../queue/inspect.js";
import type { KeyValue } from "./messages.js";
import { readName } from "./snapshots.js";
import { found, type Store } from "./store.js";

const PAGE = 500;

/** The names that have claims. */
export async function* namesOf(store: Store, { name, prefix = "" }: InspectFilter): AsyncGenerator<string> {
  if (name !== undefined) {
    yield name;
    return;
  }
  let before = "";
  for await (const { key } of keysFrom(store, store.keys.stem(prefix))) {
    const found = store.keys.parse(key)?.name;
    if (found === undefined || found === before) continue;
    before = found;
    yield found;
  }
}

async function* keysFrom(store: Store, stem: string): AsyncGenerator<KeyValue> {
  for (let key = stem; ; ) {
    const request = { key, range_end: store.keys.end, limit: PAGE, keys_only: true };
    const answered = await store.txn({ success: [{ request_range: request }] });
    const page = found(answered, 0);
    for (const kv of page) {
      if (!kv.key.startsWith(stem)) return;
      yield kv;
    }
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE) return;
    key = `${last.key}\0`;
  }
}

export async function stateOf(store: Store, name: string): Promise<NameState | null> {
  const { queue } = await readName(store, name);
  const ids = [...new Set(queue.entries.map((entry) => entry.lease))];
  const lefts = await Promise.all(ids.map((id) => leftSeconds(store, id)));
  const leftMs = new Map(ids.map((id, n) => [id, (lefts[n] ?? 0) * 1000]));
  return nameStateOf(name, queue, ({ token, record, lease }) => {
    const left = leftMs.get(lease) ?? 0;
    const known = { ...record, token };
    // What has ended is not shown, although etcd takes a moment to remove it.
    return left < 0 ? null : { known, units: record?.units ?? 1, leftMs: Math.max(1, left) };
  });
}

async function leftSeconds({ client }: Store, lease: bigint): Promise<number> {
  // Somebody put it there without a lease: it lasts for ever.
  if (lease === 0n) return LEASE_MAX_MS / 1000;
  return (await client.call("leaseTimeToLive", { ID: lease })).TTL;
}
