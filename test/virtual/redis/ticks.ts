import assert from "node:assert/strict";
import type { Engine } from "../../../src/core/engine.js";
import { redisEngine } from "../../../src/engines/redis/index.js";
import { SeededChance } from "../../../src/testing/seeded-chance.js";
import { claimOf } from "../../faults/rig.js";
import type { VirtualRedis } from "../redis.js";

const TOMBSTONES = ["never", "always", "if-missing"] as const;

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
    // A few ids on few names, so that most requests find something.
    const names = [`${seed} ${tick % 7} a`, `${seed} ${tick % 7} b`];
    const asked = Array.from({ length: chance.between(2, 6) }, (): Asked => {
      const [name, id] = [of(names), of(["id 1", "id 2", "id 3"])];
      const over = { id, wait: chance.chance(0.7), leaseMs: of([1000, 60_000]) };
      if (chance.chance(0.5)) return { verb: "claim", ...claimOf(name, over) };
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
