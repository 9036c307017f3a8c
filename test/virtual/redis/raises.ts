import assert from "node:assert/strict";
import type { RenewAnswer } from "../../../src/core/engine.js";
import { READERS_MAX } from "../../../src/core/limits.js";
import { redisEngine } from "../../../src/engines/redis/index.js";
import { SeededChance } from "../../../src/testing/seeded-chance.js";
import { claimOf } from "../../faults/rig.js";
import type { VirtualRedis } from "../redis.js";
import { storedName } from "./state.js";

const READERS = 6;
const IDLE_MS = 1000;
const LEASE_MS = 60_000;

/** Readers whose tokens are raised, past none, some or all of the others: they stand in the order of their tokens, however they are read. */
export async function raisedStandInOrder({ client, clock, redis }: VirtualRedis, seed: number): Promise<void> {
  const engine = await redisEngine(await client(), { idleMs: IDLE_MS });
  const chance = new SeededChance(seed);
  const name = `raised ${seed}`;
  const exact = { capacity: READERS_MAX, exact: true, leaseMs: LEASE_MS };
  const readers = Array.from({ length: READERS }, () => claimOf(name, exact));
  const tokens = new Map<string, number>();
  const nowUs = clock.wallMs() * 1000;
  for (const [n, reader] of readers.entries()) {
    const answer = await engine.claim({ ...reader, tokenAtLeast: nowUs + 100 * n });
    assert.ok(answer.kind === "granted");
    tokens.set(reader.id, answer.token);
  }
  for (let times = 0; times < 10 * READERS; times += 1) {
    const { id } = readers[chance.between(0, READERS - 1)] ?? claimOf(name);
    const tokenAtLeast = nowUs + chance.between(0, 100 * READERS + 10 * times);
    const [answer]: readonly (RenewAnswer | undefined)[] = await engine.renew([{ name, id, tokenAtLeast }]);
    tokens.set(id, Math.max(tokens.get(id) ?? 0, tokenAtLeast));
    const live = [...tokens.values()].toSorted((one, two) => one - two);
    assert.ok(answer?.kind === "granted");
    assert.deepEqual([answer.token, answer.live], [tokens.get(id), live], `seed ${seed}, raise ${times}`);
    // Reads the list from both of its ends.
    await storedName(redis, `holdfast:lock:${name}`, nowUs, IDLE_MS, 2 * LEASE_MS);
  }
  for (const { id } of readers) assert.equal(await engine.release({ name, id, tombstone: "never" }), "released");
  await engine[Symbol.asyncDispose]();
}
