import type { HolderState, InspectFilter, NameState } from "../../core/inspect.js";
import { LEASE_MAX_MS } from "../../core/limits.js";
import { nameStateOf } from "../../queue/inspect.js";
import { type Entry, EtcdQueue, entryOf } from "./entries.js";
import type { KeyValue } from "./messages.js";
import { get, oldest } from "./requests.js";
import { changedOf } from "./snapshots.js";
import { found, type Store } from "./store.js";

const PAGE = 500;

/** To etcd: all keys from the first one on. */
const NO_END = "\0";

/** Busy names, each read in one moment of its own. */
export async function* inspect(store: Store, { name, prefix = "" }: InspectFilter): AsyncGenerator<NameState> {
  if (name !== undefined) {
    const state = name.startsWith(prefix) ? await stateOf(store, name) : null;
    if (state !== null) yield state;
    return;
  }
  let before = "";
  for await (const { key } of keysFrom(store, store.keys.stem(prefix))) {
    const found = store.keys.parse(key)?.name;
    if (found === undefined || found === before) continue;
    before = found;
    const state = await stateOf(store, found);
    if (state !== null) yield state;
  }
}

async function* keysFrom(store: Store, stem: string): AsyncGenerator<KeyValue> {
  for (let key = stem; ; ) {
    const request = { key, range_end: NO_END, limit: PAGE, keys_only: true };
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

async function stateOf(store: Store, name: string): Promise<NameState | null> {
  const [from, to] = store.keys.claims(name);
  const answered = await store.txn({ success: [get(store.keys.capacity(name)), oldest(from, to, Infinity)] });
  const entries = found(answered, 1).map((kv) => entryOf(kv, from));
  const queue = new EtcdQueue(entries, changedOf(found(answered, 0)[0]).to);
  const ids = [...new Set(queue.entries.map((entry) => entry.lease))];
  const lefts = await Promise.all(ids.map((id) => leftSeconds(store, id)));
  const leftMs = new Map(ids.map((id, n) => [id, (lefts[n] ?? 0) * 1000]));
  return nameStateOf(name, queue, (entry) => shown(entry, leftMs.get(entry.lease) ?? 0));
}

async function leftSeconds({ client }: Store, lease: bigint): Promise<number> {
  // Somebody put it there without a lease: it lasts for ever.
  if (lease === 0n) return LEASE_MAX_MS / 1000;
  return (await client.call("leaseTimeToLive", { ID: lease })).TTL;
}

function shown({ id, token, record }: Entry, leftMs: number): HolderState | null {
  // What has ended is not shown, although etcd takes a moment to remove it.
  if (leftMs < 0) return null;
  // Not ours: what `etcdctl lock` left says nothing of who made it.
  const { units, owner, data } = record ?? { units: 1, owner: { client: id, host: "unknown", pid: 0 } };
  return { id, units, leftMs: Math.max(1, leftMs), owner, token, ...(data === undefined ? {} : { data }) };
}
