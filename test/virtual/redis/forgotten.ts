import assert from "node:assert/strict";
import type { CellWrite } from "../../../src/core/cells.js";
import type { ClaimRequest, Engine } from "../../../src/core/engine.js";
import { TOMBSTONE_MS, waiterLeaseMs } from "../../../src/core/limits.js";
import { redisEngine } from "../../../src/engines/redis/index.js";
import { claimOf } from "../../faults/rig.js";
import type { VirtualRedis } from "../redis.js";

const SECOND_MS = 1000;
const HOUR_MS = 3_600_000;

/** What a cell's key keeps: the cell for ever, its operations for a minute, and nothing once there is neither. */
export async function cellsAreForgotten({ clock, client, redis }: VirtualRedis): Promise<void> {
  const engine = await redisEngine(await client(), { idleMs: 1 });
  const { cells } = engine;
  assert.ok(cells);
  const write = async (write: Omit<CellWrite, "operation">): Promise<number> => {
    const { cell } = await cells.write({ ...write, operation: `${write.name} ${clock.now()}` });
    await clock.advance(SECOND_MS);
    return cell.version;
  };
  let version = 0;
  for (let n = 0; n < 130; n += 1) version = await write({ name: "kept", expected: version, value: "x" });
  // A write each second, each remembered for a minute in two fields, beside five fields of the cell itself.
  const fields = await redis.hlen("holdfast:cell:kept");
  assert.ok(fields <= 2 * (TOMBSTONE_MS / SECOND_MS + 2) + 5, `${fields} fields`);
  // Nor does one who expected another version end it.
  await write({ name: "kept", expected: version + 5, value: "y" });
  await clock.advance(HOUR_MS);
  assert.equal((await cells.read("kept")).value, "x");
  await write({ name: "kept", expected: version, value: null });
  await clock.advance(TOMBSTONE_MS);
  assert.equal(await redis.exists("holdfast:cell:kept"), 0);
  // A conflict with nothing is remembered, and no more.
  await write({ name: "never", expected: 5, value: "x" });
  assert.equal(await redis.exists("holdfast:cell:never"), 1);
  await clock.advance(TOMBSTONE_MS);
  assert.equal(await redis.exists("holdfast:cell:never"), 0);
  await engine[Symbol.asyncDispose]();
}

type Use = (engine: Engine, claim: ClaimRequest, next: ClaimRequest) => Promise<unknown>;

/** Whatever is done with a name after a release, for however short a time: its tombstone lasts for its minute. */
const USES: Readonly<Record<string, Use>> = {
  claimed: (engine, claim) => engine.claim(claim),
  renewed: async (engine, claim) => {
    await engine.claim(claim);
    await engine.renew([claim]);
  },
  "given back": async (engine, claim) => {
    await engine.claim(claim);
    await engine.release({ ...claim, tombstone: "never" });
  },
  "given back, with a tombstone of its own": async (engine, claim) => {
    await engine.claim(claim);
    await engine.release(claim);
  },
  "handed over": async (engine, claim, next) => {
    await engine.claim(claim);
    await engine.claim(next);
    await engine.release({ ...claim, tombstone: "never" });
  },
  "waited for and renewed": async (engine, claim, next) => {
    await engine.claim(claim);
    await engine.claim(next);
    await engine.renew([claim, next]);
  },
  "made larger": async (engine, claim) => {
    await engine.claim(claim);
    await engine.setCapacity(claim.name, 1, 2);
  },
};

export async function tombstonesLast({ clock, client }: VirtualRedis): Promise<void> {
  const engine = await redisEngine(await client(), { idleMs: 1 });
  for (const [what, use] of Object.entries(USES)) {
    const name = `a name that is ${what}`;
    const short = () => claimOf(name, { leaseMs: SECOND_MS });
    const old = claimOf(name);
    await engine.claim(old);
    await engine.release(old);
    await clock.advance(SECOND_MS);
    await use(engine, short(), short());
    await clock.advance(TOMBSTONE_MS - 2 * SECOND_MS);
    assert.deepEqual(await engine.claim(old), { kind: "gone" }, name);
  }
  await engine[Symbol.asyncDispose]();
}

const YEAR_MS = 365 * 24 * HOUR_MS;
/** The longest that may be asked for, and one none of whose digits is another's. */
const IDLES_MS = [YEAR_MS, 1_234_567_890];

/** A name outlives what is in it by as long as was asked for, however long that is, and a tombstone its minute. */
export async function namesAreKept({ clock, client, redis }: VirtualRedis): Promise<void> {
  const shared = await client();
  for (const idleMs of IDLES_MS) {
    const engine = await redisEngine(shared, { idleMs, prefix: `${idleMs}:` });
    const keptMs = async (): Promise<number> =>
      Number(await redis.zscore("virtual:ends", `${idleMs}:lock:kept`)) - Math.floor(clock.wallMs());
    const [held, next, last] = [claimOf("kept"), claimOf("kept"), claimOf("kept")];
    await engine.claim(held);
    assert.equal(await keptMs(), held.leaseMs + idleMs, "held");
    await engine.release(held);
    assert.equal(await keptMs(), idleMs, "given back");
    await clock.advance(TOMBSTONE_MS - SECOND_MS);
    assert.deepEqual(await engine.claim(held), { kind: "gone" });
    await clock.advance(2 * SECOND_MS);
    assert.equal((await engine.claim(held)).kind, "granted");
    const queuedMs = next.leaseMs + waiterLeaseMs(next.leaseMs) + SECOND_MS;
    for (const claim of [next, last]) {
      assert.equal((await engine.claim(claim)).kind, "queued");
      assert.equal(await keptMs(), queuedMs + idleMs, "waited for");
      await clock.advance(2 * SECOND_MS);
    }
    for (const { name, id } of [last, next, held]) await engine.release({ name, id, tombstone: "never" });
    assert.equal(await keptMs(), idleMs, "left by all");
    await engine[Symbol.asyncDispose]();
  }
}

/** Whoever keeps a name, asks for it again or waits for it clears away tombstones that are over: a hold that lasts leaves no old ones. */
export async function tombstonesAreCleared({ clock, client, redis }: VirtualRedis): Promise<void> {
  const engine = await redisEngine(await client(), { idleMs: 1 });
  for (const what of ["renewed", "claimed", "waited for"] as const) {
    const name = `a name that is ${what} when its tombstones are over`;
    const old = claimOf(name);
    const long = { leaseMs: 10 * TOMBSTONE_MS };
    await engine.release(old);
    const [held, next] = [claimOf(name, long), claimOf(name, long)];
    await engine.claim(held);
    const tombstones = async (): Promise<string[]> =>
      (await redis.hkeys(`holdfast:lock:${name}`)).filter((field) => /^[tx]:/.test(field));
    assert.equal((await tombstones()).length, 2);
    await clock.advance(TOMBSTONE_MS + SECOND_MS);
    if (what === "renewed") await engine.renew([held]);
    else await engine.claim(what === "claimed" ? held : next);
    assert.deepEqual(await tombstones(), [], name);
  }
  await engine[Symbol.asyncDispose]();
}

/** With ack an answer counts when the replicas have what it says, so what is asked again is written again. */
export async function heldIsWrittenAgain({ client, redis }: VirtualRedis): Promise<void> {
  const engine = await redisEngine(await client(), { idleMs: 1000 });
  const writes = async (): Promise<number> => {
    const stats = await redis.info("commandstats");
    return [...stats.matchAll(/cmdstat_h?set:calls=(\d+)/g)].reduce((sum, [, count]) => sum + Number(count), 0);
  };
  const isWritten = async (what: string, ask: () => Promise<unknown>): Promise<void> => {
    const before = await writes();
    await ask();
    assert.ok((await writes()) > before, what);
  };
  const [alone, first, second] = [claimOf("alone"), claimOf("two", { capacity: 2 }), claimOf("two", { capacity: 2 })];
  for (const claim of [alone, first, second]) assert.equal((await engine.claim(claim)).kind, "granted");
  for (const claim of [alone, first, second]) {
    await isWritten("a copy of a claim", () => engine.claim(claim));
    await isWritten("a renewal that moves nothing", () => engine.renew([{ ...claim, leaseMs: 1 }]));
  }
  await engine[Symbol.asyncDispose]();
}
