import { median } from "../lib/measure.mjs";
import { hotRound } from "../lib/processes.mjs";
import { applicable, inRounds } from "../lib/rounds.mjs";
import { STORES } from "../stores/index.mjs";

const TASKS = 16;

const FIGURES = ["perSecond", "jain", "luckiest", "unluckiest", "p50", "p99", "clientUs", "serverUs"];

/**
 * Sixteen tasks, in four processes where the store has them, fight for one lock. Whoever was served asks again at once. The first
 * half is `cold`, the second, which counts, `warm`: what polls gets faster while it runs. Other shapes: `npm run bench -- hot`.
 */
export async function hot(entrants, context) {
  const { hotMs: forMs, hotWarmMs: warmMs } = context.sizes;
  const { does, not } = applicable(entrants, "hot");
  const candidates = {};
  for (const { key, store, contestant, server } of does) {
    const processes = STORES[store].processes ?? 4;
    const settings = { processes, tasks: TASKS / processes, forMs, warmMs };
    candidates[key] = () => hotRound(store, contestant, server.at, settings);
  }
  const half = (rounds, which) =>
    Object.fromEntries(
      FIGURES.flatMap((figure) => {
        const middle = median(rounds.map((round) => round[which][figure]));
        // What a server costs is not known of every store.
        return Number.isNaN(middle) ? [] : [[figure, middle]];
      }),
    );
  const sum = (rounds) => {
    const warm = half(rounds, "warm");
    if (warm.perSecond === 0) return { not: "nobody got it in the last two seconds" };
    return { ...warm, cold: half(rounds, "cold") };
  };
  // No round to warm up: each contender is a new process and does so itself.
  const rounds = { ...context, rounds: Math.min(context.rounds, 3), warmUps: 0 };
  return { ...(await inRounds(candidates, rounds, sum)), ...not };
}
