import { type FenceToken, StaleTokenError } from "../../src/fence/index.js";
import type { Resource } from "./kinds.js";
import { numbers, world } from "./world.js";

/**
 * What a fence must do, as one plain rule: a token below the highest floor is stale, and so is one that an exact set of a newer
 * grant leaves out. Of a grant's sets the first that was shown counts. The interleavings of `property.ts` allow whatever is
 * safe; here one writer at a time has one right answer.
 */
class Rule {
  fence = 0;
  #newest = 0;
  #live: readonly number[] = [];
  value: string | null = null;

  raise(token: number): void {
    this.fence = Math.max(this.fence, token);
  }

  accepts(shown: FenceToken): boolean {
    const { token, floor = token, live } = typeof shown === "number" ? { token: shown } : shown;
    const leftOut = live !== undefined && token <= this.#newest && !this.#live.includes(token);
    if (token < this.fence || leftOut) return false;
    this.raise(floor);
    if (live !== undefined && token > this.#newest) [this.#newest, this.#live] = [token, live];
    return true;
  }
}

/** Long enough that a holder renews, somebody in its set dies, and the dead one writes. */
const STEPS = 60;

export type RuleTally = { accepted: number; refused: number; raised: number };

/** Random holders, one after the other on a name, beside the rule. Rejects with the first difference, and the seed. */
export async function compareWithRule(
  resource: Resource,
  exact: boolean,
  seeds: { readonly from: number; readonly count: number },
): Promise<RuleTally> {
  const tally: RuleTally = { accepted: 0, refused: 0, raised: 0 };
  const all = Array.from({ length: seeds.count }, (_, n) => seeds.from + n);
  await Promise.all(all.map((seed) => compare(resource, seed, exact && seed % 3 !== 0, tally)));
  return tally;
}

async function compare(resource: Resource, seed: number, withSets: boolean, tally: RuleTally): Promise<void> {
  const [name, rule, draw] = [`rule${seed}`, new Rule(), numbers(seed + 7_000_000)];
  for (const step of world(numbers(seed), withSets, STEPS)) {
    if (step.kind === "raise") {
      await resource.raise(name, step.token);
      rule.raise(step.token);
      tally.raised += 1;
      continue;
    }
    for (const { shown, floor, holder, value } of step.writes) {
      // Some holders of an exact hold show it without its set.
      const given = withSets && draw(6) === 0 ? { token: holder.token, floor } : shown;
      const { fence } = rule;
      const accepted = rule.accepts(given);
      if (accepted) rule.value = value;
      const outcome = await resource.write(name, value, given).catch((error: unknown) => error);
      const told = `seed ${seed}: ${JSON.stringify(given)} at fence ${fence}`;
      if (accepted ? outcome !== undefined : !(outcome instanceof StaleTokenError)) {
        throw new Error(`${told} should be ${accepted ? "accepted" : "refused"}: ${String(outcome)}`);
      }
      if (outcome instanceof StaleTokenError) {
        const wrong = outcome.token !== holder.token || (outcome.fence !== undefined && outcome.fence !== fence);
        if (wrong) throw new Error(`${told}: the refusal names token ${outcome.token} and fence ${outcome.fence}`);
      }
      tally[accepted ? "accepted" : "refused"] += 1;
      const read = await resource.read(name);
      if (read !== rule.value) throw new Error(`${told}: the value is ${read}, not ${rule.value}`);
    }
  }
}

/** What random holders come to about once in a hundred seeds. Rejects where a later set of a grant replaces its first. */
export async function showTwoSets(resource: Resource): Promise<void> {
  await resource.write("sets", "a", { token: 7, floor: 5, live: [5, 6, 7] });
  // The same grant after a renewal, when the permit 6 had ended.
  await resource.write("sets", "b", { token: 7, floor: 5, live: [5, 7] });
  await resource.write("sets", "c", { token: 6, floor: 5, live: [5, 6] });
}
