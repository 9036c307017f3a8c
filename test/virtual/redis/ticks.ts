import assert from "node:assert/strict";
import type { Engine } from "../../../src/core/engine.js";
import { redisEngine } from "../../../src/engines/redis/index.js";
import { SeededChance } from "../../../src/testing/seeded-chance.js";
import { claimOf } from "../../faults/rig.js";
import type { VirtualRedis } from "../redis.js";

const TOMBSTONES = ["never", "never", "never", "always", "if-missing"] as const;
/** Few, so that most requests find something; more than hold at once, so that some are new. */
const IDS = ["id 1", "id 2", "id 3", "id 4", "id 5"] as const;
/** One that a claim takes whole, and one where a small claim finds room and the large one after it does not. */
const KINDS = [
  { capacity: 1, units: [1] },
  { capacity: 3, units: [1, 1, 2, 3] },
] as const;
/** Most ticks have claims and releases; in some, one name's releases have those of another between them. */
const CLAIMS_OF_ALL = [0.5, 0.7, 0] as const;

/**
 * What is asked in one tick, of several names and of the same ids again and again, is answered as if each request had waited
 * for the answer to the one before: a call that carries many serves the requests for a name in their order.
 */
export async function compareTicks({ client, clock, redis }: VirtualRedis, seed: number, ticks: number): Promise<void> {
  const shared = await client();
  const [together, apart] = [await open("together:"), await open("apart:")];
  const chance = new SeededChance(seed);
  const of = <T>(list: readonly T[]): T => list[chance.between(0, list.length - 1)] as T;
  for (let tick = 0; tick < ticks; tick += 1) {
    const claims = of(CLAIMS_OF_ALL);
    const asked = Array.from({ length: chance.between(2, 6) }, (): Asked => {
      const [kind, id] = [chance.between(0, 1), of(IDS)];
      const name = `${seed} ${tick % 7} ${kind}`;
      const { capacity, units } = KINDS[kind] ?? KINDS[0];
      const over = { id, capacity, units: of(units), wait: chance.chance(0.5), leaseMs: of([1000, 60_000]) };
      if (chance.chance(claims)) return { verb: "claim", ...claimOf(name, over) };
      return { verb: "release", name, id, tombstone: of(TOMBSTONES) };
    });
    const answers = await Promise.all(asked.map((one) => ask(together, one)));
    const expected: unknown[] = [];
    for (const one of asked) expected.push(await ask(apart, one));
    assert.deepEqual(answers, expected, `seed ${seed}, tick ${tick}: ${JSON.stringify(asked, null, 1)}`);
    if (chance.chance(0.2)) await clock.advance(of([1, 1000, 61_000]));
  }
  for (const engine of [together, apart]) await engine[Symbol.asyncDispose]();
  await redis.del("virtual:pushed");

  function open(prefix: string): Promise<Engine> {
    return redisEngine(shared, { prefix, idleMs: 600_000 });
  }
}

type Asked =
  | ({ readonly verb: "claim" } & ReturnType<typeof claimOf>)
  | {
      readonly verb: "release";
      readonly name: string;
      readonly id: string;
      readonly tombstone: (typeof TOMBSTONES)[number];
    };

function ask(engine: Engine, asked: Asked): Promise<unknown> {
  return asked.verb === "claim" ? engine.claim(asked) : engine.release(asked);
}
