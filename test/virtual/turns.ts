import assert from "node:assert/strict";
import type { ClaimRequest, Engine, ReleaseRequest } from "../../src/core/engine.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { Kit, type Setting, stateOf } from "../../src/testing/conformance/kit.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

const LEASES_MS = [600, 3_000, 3_000, 60_000] as const;
const PASSES_MS = [1, 250, 599, 600, 601, 3_000, 9_999] as const;
const SHOWN = 12;

type Options = { readonly seed: number; readonly runs: number; readonly commands: number };
type Ask = { readonly text: string; readonly ask: (engines: readonly Engine[]) => Promise<unknown> };

/**
 * Queues of one unit or two, and what clients with many waiters ask of them: several claims in one tick, and runs of releases, each to the claim
 * behind it, as tasks of one client make them that hand a lock on among themselves, also with their next claims in the same tick. After each
 * tick the answers and the queue are compared with the reference's. The general comparison (`compareWithReference`) asks for all there is, and
 * for little of this.
 */
export async function compareTurns(setting: Setting, { seed, runs, commands }: Options): Promise<void> {
  const { clock } = setting;
  assert.ok(clock);
  const kit = new Kit(setting);
  const store = memoryStore(clock);
  const sides = [
    [await kit.open(), await kit.open()],
    [memoryEngine(store), memoryEngine(store)],
  ] as const;
  try {
    for (let run = 0; run < runs; run += 1) {
      const chance = new SeededChance(seed + run);
      const queue = new RandomQueue(kit, chance, chance.between(1, 2), sides[1][0]);
      const said: string[] = [];
      for (let n = 0; n < commands; n += 1) {
        if (chance.chance(0.2)) {
          const ms = picked(chance, PASSES_MS);
          said.push(`pass ${ms} ms`);
          await clock.advance(ms);
          continue;
        }
        const asked = await queue.tick();
        said.push(asked.map(({ text }) => text).join(" + "));
        const [own, expected] = await Promise.all(
          sides.map(async (engines) =>
            ranked([
              await Promise.all(asked.map(({ ask }) => ask(engines))),
              shown(await stateOf(engines[0], queue.name)),
            ]),
          ),
        );
        assert.deepEqual(own, expected, `seed ${seed + run}:\n${said.slice(-SHOWN).join("\n")}`);
      }
    }
  } finally {
    for (const engine of sides[1]) await engine[Symbol.asyncDispose]();
    await kit.close();
  }
}

class RandomQueue {
  readonly name: string;
  readonly #kit: Kit;
  readonly #chance: SeededChance;
  readonly #capacity: number;
  readonly #reference: Engine;
  readonly #claims = new Map<string, { readonly claim: ClaimRequest; readonly by: number }>();

  /** The ids of those that were not released yet. */
  #arrived: string[] = [];

  constructor(kit: Kit, chance: SeededChance, capacity: number, reference: Engine) {
    this.name = kit.name("turns");
    this.#kit = kit;
    this.#chance = chance;
    this.#capacity = capacity;
    this.#reference = reference;
  }

  /** By one client, as what one turn of the event loop asks. */
  async tick(): Promise<readonly Ask[]> {
    const chance = this.#chance;
    const by = chance.between(0, 1);
    const draw = chance.fraction();
    if (draw < 0.45) return Array.from({ length: chance.between(1, 5) }, () => this.#claim(by));
    if (draw < 0.55) return [this.#renew(by)];
    const { owner, asks } = await this.#run(by);
    const more = chance.chance(0.3) ? chance.between(1, 2) : 0;
    return [...asks, ...Array.from({ length: more }, () => this.#claim(owner))];
  }

  #claim(by: number): Ask {
    const chance = this.#chance;
    // Now and then for another capacity: refused.
    const capacity = chance.chance(0.1) ? 3 - this.#capacity : this.#capacity;
    const claim = this.#kit.claim(this.name, {
      capacity,
      units: chance.between(1, capacity),
      leaseMs: picked(chance, LEASES_MS),
      exact: chance.chance(0.3),
    });
    this.#claims.set(claim.id, { claim, by });
    if (capacity === this.#capacity) this.#arrived.push(claim.id);
    const text = `claim ${by} ${short(claim.id)} ${claim.units} of ${capacity} for ${claim.leaseMs}`;
    return { text, ask: async (engines) => told(await (engines[by] as Engine).claim(claim)) };
  }

  #renew(by: number): Ask {
    const mine = [...this.#claims.values()].filter((one) => one.by === by).map(({ claim }) => claim);
    const some = mine.filter(() => this.#chance.chance(0.5)).slice(-8);
    const refs = some.map(({ name, id }) => ({ name, id }));
    const text = `renew ${by} ${refs.map(({ id }) => short(id)).join(" ")}`;
    return { text, ask: async (engines) => (await (engines[by] as Engine).renew(refs)).map(told) };
  }

  /** From a holder, or a waiter, on: those of its client that stand directly behind each other leave together. */
  async #run(by: number): Promise<{ readonly owner: number; readonly asks: readonly Ask[] }> {
    const chance = this.#chance;
    const state = await stateOf(this.#reference, this.name);
    // In the order of arrival, with those that have ended: their own client does not know.
    const queue = this.#arrived;
    const holder = queue.indexOf(state?.holders[0]?.id ?? "");
    const from = chance.chance(0.7) && holder !== -1 ? holder : chance.between(0, Math.max(0, queue.length - 1));
    const first = queue[from];
    if (first === undefined) return { owner: by, asks: [this.#claim(by)] };
    const owner = this.#claims.get(first)?.by ?? by;
    const run = queue.slice(from, from + chance.between(1, 4));
    const end = run.findIndex((id) => this.#claims.get(id)?.by !== owner);
    const own = end === -1 ? run : run.slice(0, end);
    const follows = queue[from + own.length];
    this.#arrived = queue.filter((id) => !own.includes(id));
    const asks = own.map((id, n) => {
      const next = own[n + 1] ?? (chance.chance(0.5) ? follows : undefined);
      const tombstone = chance.chance(0.75) ? "never" : "always";
      const request: ReleaseRequest = { name: this.name, id, tombstone, ...(next === undefined ? {} : { to: next }) };
      const text = `release ${owner} ${short(id)} ${tombstone} to ${short(next ?? "")}`;
      return { text, ask: (engines: readonly Engine[]) => (engines[owner] as Engine).release(request) };
    });
    return { owner, asks };
  }
}

const TOKENS = new Set(["token", "floor", "live"]);

/** Tokens by their order: a store that forgets idle names begins them anew at other numbers. */
function ranked(value: unknown): unknown {
  const tokens = new Set<number>();
  const text = JSON.stringify(value, (key, one) => {
    if (TOKENS.has(key)) for (const token of [one].flat()) tokens.add(token as number);
    return one;
  });
  const order = [...tokens].toSorted((one, two) => one - two);
  const rank = (token: number): number => order.indexOf(token);
  return JSON.parse(text, (key, one) =>
    TOKENS.has(key) ? (Array.isArray(one) ? one.map(rank) : rank(one as number)) : one,
  );
}

/** When to ask again may be told too early. */
function told(answer: object): object {
  if (!("nextMs" in answer)) return answer;
  const { nextMs, ...rest } = answer;
  return { ...rest, first: nextMs !== null };
}

function shown(state: Awaited<ReturnType<typeof stateOf>>): unknown {
  if (state === undefined) return undefined;
  const { capacity, holders, waiters } = state;
  return {
    capacity,
    holders: holders.map(({ id, token, units, leftMs, heldMs }) => ({ id, token, units, leftMs, heldMs })),
    waiters: waiters.map(({ id, units, leftMs, waitingMs }) => ({ id, units, leftMs, waitingMs })),
  };
}

const short = (id: string): string => id.slice(0, 4);

function picked(chance: SeededChance, list: readonly number[]): number {
  return list[chance.between(0, list.length - 1)] ?? 0;
}
