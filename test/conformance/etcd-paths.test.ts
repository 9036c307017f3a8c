import { afterAll, beforeAll, expect, test } from "vitest";
import type { Edit } from "../../scripts/broken-copy.js";
import { type EtcdDriver, etcdClient, etcdEngine } from "../../src/engines/etcd/index.js";
import type { SeededChance } from "../../src/testing/seeded-chance.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { etcdWorld } from "../virtual/lockstep/etcd.js";
import {
  Copies,
  comparedOf,
  comparePath,
  type FastPath,
  mistakenOf,
  mistakeShown,
  WAITS_FOR_OWN,
  WATCHED_LATER,
} from "../virtual/lockstep/fast-paths.js";
import type { PathsWorld } from "../virtual/lockstep/paths.js";

const START_MS = 60_000;
const RUN_MS = 600_000;
/** On a busy machine an answer takes long, and is none the worse for it. */
const PATIENT = { callTimeoutMs: 60_000 };
const SEEDS = Number(process.env["HOLDFAST_SEEDS"] ?? 1);
const FIRST = Number(process.env["HOLDFAST_FIRST_SEED"] ?? 1);

const BULK = "engines/etcd/bulk.js";
const CLAIM = "engines/etcd/claim.js";
const CLAIMS = "engines/etcd/claims.js";
const EVENTS = "engines/etcd/events.js";
const LEASES = "engines/etcd/leases.js";
const RELEASE = "engines/etcd/release.js";
const SERVER_WATCH = "engines/etcd/server-watch.js";
const SLOTS = "engines/etcd/slots.js";
const SNAPSHOTS = "engines/etcd/snapshots.js";
const WATCHER = "engines/etcd/watcher.js";
const READINGS = "queue/readings.js";

/** Not here: what only changes when something is sent, such as a keep-alive beside a transaction, or once an hour. */
const FAST_PATHS: readonly FastPath[] = [
  {
    name: "a free name is taken in one transaction, without reading it",
    off: [[CLAIM, "await this.#put(local, { compare,", "await this.#put(local, { compare: [createdAt(from, 1)],"]],
    broken: [
      [CLAIM, "[absent(from, to), absent(tombstone), absent(capacity)]", "[absent(tombstone), absent(capacity)]"],
    ],
  },
  {
    name: "behind a claim of its own a client does not ask whether the name is free",
    off: [[CLAIM, "claim.wait && this.#claims.isBusy(local)", "false"]],
    broken: [[CLAIM, "claim.wait && this.#claims.isBusy(local)", "this.#claims.isBusy(local)"]],
  },
  {
    name: "a claim's place in a short queue is read as it is appended",
    off: [[CLAIMS, "const SHORT = 16;", "const SHORT = 0;"]],
    broken: [[SNAPSHOTS, "youngest(from, to, 2)", "youngest(from, to, 1)"]],
  },
  {
    name: "a watch begins with what comes from now on, and what came before is read",
    off: [[SERVER_WATCH, "start_revision === undefined || missed !== undefined ?", "start_revision === undefined ?"]],
    broken: [
      [SERVER_WATCH, "kv.mod_revision >= (watch.start_revision ?? 0)", "kv.mod_revision > (watch.start_revision ?? 0)"],
    ],
  },
  {
    name: "a watch that nobody needs is kept for who watches the same keys next",
    quick: true,
    off: [[EVENTS, "shared?.serves(watch) ?", "shared?.serves(watch) && false ?"]],
    broken: [[EVENTS, "one.add(watch);", "if (one !== shared) one.add(watch);"]],
  },
  {
    name: "what is written in one turn goes out in one call",
    off: [[BULK, "const PARTS_MAX = 32;", "const PARTS_MAX = 1;"]],
    broken: [[BULK, "next.set(part.appends, n + 1);", "next.set(part.appends, 0);"]],
  },
  {
    name: "the event that the last predecessor left is a grant, without a lookup",
    off: [[WATCHER, "const clear = last &&", "const clear = false &&"]],
    broken: [[WATCHER, "const clear = last &&", "const clear ="]],
  },
  {
    name: "a lookup reads no more than shows whether its turn has come",
    off: [[WATCHER, "{ ...wanted, brief: true }", "wanted"]],
    broken: [[WATCHER, "const seen = holds ? first :", "const seen = true ? first :"]],
  },
  {
    name: "claims of one name share a reading",
    off: [
      [
        SNAPSHOTS,
        "return this.#readings.one(want.ref.name, want);",
        "return this.all([want]).then((seen) => at(seen, 0));",
      ],
    ],
    broken: [[READINGS, "return at(await batch.found, n);", "return at(await batch.found, 0);"]],
  },
  {
    name: "only as many of the oldest are read as can hold",
    quick: true,
    off: [[SNAPSHOTS, "oldest(from, to, limit)", "oldest(from, to, Infinity)"]],
    broken: [[SNAPSHOTS, "oldest(from, to, limit)", "oldest(from, to, 1)"]],
  },
  {
    name: "heartbeats of many claims read their name once",
    off: [[SNAPSHOTS, "const FEW = 4;", "const FEW = Infinity;"]],
    broken: [[SNAPSHOTS, "own: entries[n],", "own: entries[n + 1],"]],
  },
  WAITS_FOR_OWN,
  {
    name: "a predecessor that is watched is not read again",
    off: [[WATCHER, "!isWatching(local) && ", ""]],
    broken: [
      [
        WATCHER,
        "claim.unwatchPredecessor?.();\n        claim.unwatchPredecessor = null;",
        "claim.unwatchPredecessor?.();",
      ],
    ],
  },
  {
    name: "keys are used again",
    off: [[SLOTS, "slots.free.shift() ?? ", ""]],
    broken: [[SLOTS, "slots.free.shift() ?? ", "slots.free.at(0) ?? "]],
  },
  {
    name: "claims share a lease",
    quick: true,
    off: [[LEASES, "lease !== undefined && !lease.gone &&", "false &&"]],
    broken: [[LEASES, "const seconds = Math.ceil(ms / 1000);", "const seconds = 9;"]],
    roughly: true,
  },
  {
    name: "a lease that is known to last is not kept alive once more",
    off: [[WATCHER, "if (lease.provenUntil < until) {", "if (lease.provenUntil < until || !lease.alone) {"]],
    broken: [[WATCHER, "if (lease.provenUntil < until) {", "if (false) {"]],
    roughly: true,
  },
  {
    name: "a claim that is certain leaves in one transaction",
    off: [[RELEASE, "if (!claim.certain)", "if (true)"]],
    broken: [[RELEASE, "remove(key), ...bury]", "remove(key)]"]],
  },
  WATCHED_LATER,
];

const copies = new Copies();
const clients: EtcdDriver[] = [];
let cluster: EtcdCluster | undefined;
let client: EtcdDriver | undefined;
beforeAll(async () => {
  cluster = await startEtcd();
  client = await etcdClient(cluster.url, PATIENT);
}, START_MS);
afterAll(async () => {
  for (const one of [client, ...clients]) one?.close();
  await cluster?.stop();
  copies.remove();
}, START_MS);

const shipped = (chance: SeededChance): PathsWorld => {
  if (client === undefined) throw new Error("no server");
  return etcdWorld(client, chance);
};

/** With a client of its own: errors are known by their class. */
async function edited(edits: readonly Edit[]): Promise<(chance: SeededChance) => PathsWorld> {
  const code = (await copies.write(edits)("engines/etcd/index.js")) as {
    readonly etcdClient: typeof etcdClient;
    readonly etcdEngine: typeof etcdEngine;
  };
  const own = await code.etcdClient(cluster?.url ?? "", PATIENT, (library) => import(library));
  clients.push(own);
  return (chance) => etcdWorld(own, chance, undefined, code.etcdEngine);
}

test.concurrent.each(comparedOf(FAST_PATHS))(
  "with and without the fast path answers, pushes and keys are the same: %s",
  { timeout: RUN_MS },
  async (_, path) => {
    await comparePath(path, shipped, await edited(path.off), { first: FIRST, count: SEEDS });
  },
);

test.concurrent.each(mistakenOf(FAST_PATHS))(
  "a mistake in the fast path shows: %s",
  { timeout: RUN_MS },
  async (_, path) => {
    const shown = await mistakeShown(path, await edited(path.broken), await edited(path.off));
    expect(shown).toBeDefined();
  },
);
