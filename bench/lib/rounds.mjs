// How the measures go round: each contestant once per round, in an order drawn anew, and one that breaks down does not stop the others.
import { interleave, progress } from "./measure.mjs";

/** Chance that a seed decides (mulberry32): a fraction from 0 to 1 at each call. */
export function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function shuffled(list, random) {
  return list
    .map((item) => [random(), item])
    .toSorted(([a], [b]) => a - b)
    .map(([, item]) => item);
}

/**
 * @param {Record<string, () => Promise<object>>} candidates each measures one round
 * @param {(rounds: object[]) => object} sum makes one figure of them
 */
export async function inRounds(candidates, { rounds, order, warmUps }, sum) {
  const failed = {};
  const guarded = Object.entries(candidates).map(([key, measure]) => [
    key,
    async () => (key in failed ? null : measure().catch((error) => void (failed[key] = broken(key, error)))),
  ]);
  const figures = await interleave(Object.fromEntries(guarded), rounds, order, warmUps);
  return Object.fromEntries(Object.entries(figures).map(([key, list]) => [key, failed[key] ?? sum(list)]));
}

/** For what is counted, not timed: stores side by side, each one's entrants one after the other. */
export async function sideBySide(entrants, { rounds }, measure, sum) {
  const figures = {};
  const stores = [...new Set(entrants.map(({ store }) => store))].map((name) =>
    entrants.filter(({ store }) => store === name),
  );
  await Promise.all(
    stores.map(async (list) => {
      for (const entrant of list) {
        const all = [];
        try {
          for (let round = 1; round <= rounds; round += 1) {
            progress(`round ${round} of ${rounds}: ${entrant.key}`);
            all.push(await measure(entrant, round));
          }
          figures[entrant.key] = sum(all);
        } catch (error) {
          figures[entrant.key] = broken(entrant.key, error);
        }
      }
    }),
  );
  progress("");
  return figures;
}

export function broken(key, error) {
  console.error(`\n${key} broke down:`, error);
  return { failed: error.message };
}

/** Those that a measure applies to, and for the others why it does not. */
export function applicable(entrants, measure) {
  const does = entrants.filter(({ not }) => not?.[measure] === undefined);
  const not = entrants.filter((entrant) => !does.includes(entrant));
  return { does, not: Object.fromEntries(not.map((entrant) => [entrant.key, { not: entrant.not[measure] }])) };
}

/** A name for a lock that no store takes offence at. */
export const lockName = (...words) => words.join(" ").replaceAll(/\W+/g, "-");
