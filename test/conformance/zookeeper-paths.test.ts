import { afterAll, beforeAll, expect, test } from "vitest";
import type { Edit } from "../../scripts/broken-copy.js";
import type { SeededChance } from "../../src/testing/seeded-chance.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
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
import { SESSION_MS, type ZooKeeperCode, zookeeperWorld } from "../virtual/lockstep/zookeeper.js";

const START_MS = 120_000;
const RUN_MS = 600_000;
const SEEDS = Number(process.env["HOLDFAST_SEEDS"] ?? 1);
const FIRST = Number(process.env["HOLDFAST_FIRST_SEED"] ?? 1);

const CLAIM = "engines/zookeeper/claim.js";
const FOLLOWED = "engines/zookeeper/followed.js";
const EVENTS = "engines/zookeeper/events.js";
const NODES = "engines/zookeeper/nodes.js";
const RELEASE = "engines/zookeeper/release.js";
const RENEW = "engines/zookeeper/renew.js";
const READINGS = "queue/readings.js";

/** Not here: a holder is read while its node is watched, only to be known by the time that it is asked for. */
const FAST_PATHS: readonly FastPath[] = [
  {
    name: "requests whose order matters are sent in a row, without waiting for each answer",
    off: [
      [NODES, "const reading = knows ? null :", "const reading = true ? null :"],
      [
        NODES,
        "await Promise.all([this.session.write((client) => client.confirm([])), this.queue(name)])",
        "[await this.session.write((client) => client.confirm([])), await this.queue(name)]",
      ],
      [RENEW, "const queue = nodes.queue(name);", "const queue = confirming.then(() => nodes.queue(name));"],
      [
        RELEASE,
        "await Promise.all([claim.remove(), buries ? this.#buryIfRoom(claim) : null])",
        "[await claim.remove(), buries ? await this.#buryIfRoom(claim) : null]",
      ],
    ],
    broken: [
      [
        NODES,
        "const creating = this.session.write(",
        "const early = this.queue(name); const creating = this.session.write(",
      ],
      [NODES, "const reading = knows ? null : this.sharedQueue(name);", "const reading = early;"],
    ],
  },
  {
    name: "what a node says is read once",
    off: [[NODES, "if (known !== undefined)", "if (false)"]],
    broken: [[NODES, "this.#known.get(name)?.nodes.get(key);", "this.#known.get(name)?.nodes.values().next().value;"]],
  },
  {
    name: "the heartbeat of the oldest holder does not read the queue",
    off: [[RENEW, "return !granted || !oldest || exact;", "return true;"]],
    broken: [[RENEW, "return !granted || !oldest || exact;", "return !granted || exact;"]],
  },
  {
    name: "claims and lookups of one name share a reading",
    off: [[NODES, "return this.#readings.one(name, name);", "return this.queue(name);"]],
    broken: [[READINGS, "this.#gathering.delete(name);", ""]],
  },
  {
    name: "a queue that nobody else has joined since is not read again",
    off: [[NODES, "const knows = followed !== undefined && followed.isKnown", "const knows = false"]],
    broken: [[FOLLOWED, "if (order !== this.next)", "if (false)"]],
  },
  {
    name: "without tombstones nobody asks for one",
    off: [[FOLLOWED, "queue.buried = tombstones;", "queue.buried = true;"]],
    broken: [[FOLLOWED, "queue.buried = tombstones;", "queue.buried = false;"]],
  },
  {
    name: "where others stand in a queue, a claim that nobody waits for is watched after a while",
    off: [[CLAIM, "if (claims.countOf(local.name) >= queue.entries.length)", "if (true)"]],
    broken: [[FOLLOWED, "this.watch(key, false);", ""]],
    // Another client has to remove a claim within its first fifth of a second; here time passes after each command.
    shownBy: "test/faults/zookeeper-rules.test.ts: a claim that another client removed before it was watched",
  },
  {
    name: "who wants to know a node that is being read shares the reading",
    off: [[NODES, "this.#knowing.get(path) ?? ", ""]],
    broken: [[NODES, "this.#knowing.get(path) ?? ", "this.#knowing.values().next().value ?? "]],
  },
  WAITS_FOR_OWN,
  {
    name: "the event that the last predecessor left is a grant, without a lookup",
    off: [[EVENTS, "const cleared = deleted &&", "const cleared = false &&"]],
    broken: [[EVENTS, "last && !this.#mayShrink && followed?.armed ?", "followed?.armed ?"]],
  },
  {
    name: "a predecessor that is watched is not read again",
    off: [[EVENTS, "path !== null && path !== this.#predecessor", "path !== null"]],
    broken: [[EVENTS, "this.#predecessor = null;\n        this.#last = null;", "this.#last = null;"]],
  },
  {
    name: "nodes are confirmed in one request",
    off: [[RENEW, "const CONFIRMED_AT_ONCE = 400;", "const CONFIRMED_AT_ONCE = 1;"]],
    broken: [[RENEW, "exist[index]", "index > 0 && exist[index]"]],
  },
  {
    name: "the order of arrival is that of the numbers, without reading the nodes",
    quick: true,
    off: [[NODES, "if (isOrdered(entries))", "if (false)"]],
    broken: [[NODES, "one.order - two.order", "two.order - one.order"]],
  },
  {
    name: "a folder that was never changed has no capacity to read",
    off: [[NODES, "stat.version === 0 || ", ""]],
    broken: [[NODES, "stat.version === 0 || ", "stat.version <= 1 || "]],
  },
  {
    name: "a folder is made without those above it",
    quick: true,
    off: [[NODES, "if (!hasCode(outcome, CODE.noNode))", "if (false)"]],
    broken: [[NODES, "await make(levels.length)", "await make(levels.length - 1)"]],
  },
  WATCHED_LATER,
];

const copies = new Copies();
let server: ZooKeeperServer | undefined;
beforeAll(async () => {
  server = await startZooKeeper({ lines: [`maxSessionTimeout=${SESSION_MS}`, "maxClientCnxns=0"] });
}, START_MS);
afterAll(async () => {
  await server?.running.stop();
  copies.remove();
}, START_MS);

function world(chance: SeededChance, code?: ZooKeeperCode): PathsWorld {
  if (server === undefined) throw new Error("no server");
  return zookeeperWorld(server.port, chance, chance.chance(0.5) ? "kazoo" : "curator", undefined, code);
}

async function edited(edits: readonly Edit[]): Promise<(chance: SeededChance) => PathsWorld> {
  const load = copies.write(edits);
  const files = ["engine.js", "options.js", "drivers/wire/client.js"];
  const parts = await Promise.all(files.map((file) => load(`engines/zookeeper/${file}`)));
  const code = Object.assign({}, ...parts) as ZooKeeperCode;
  return (chance) => world(chance, code);
}

test.concurrent.each(comparedOf(FAST_PATHS))(
  "with and without the fast path answers, pushes and nodes are the same: %s",
  { timeout: RUN_MS },
  async (_, path) => {
    await comparePath(path, (chance) => world(chance), await edited(path.off), { first: FIRST, count: SEEDS });
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
