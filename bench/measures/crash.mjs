import { median, progress } from "../lib/measure.mjs";
import { contender } from "../lib/processes.mjs";
import { applicable, broken, lockName } from "../lib/rounds.mjs";
import { pause } from "../stores/holdfast.mjs";

const AT_MOST_MS = 60_000;

/** From the kill of the process that holds the lock to the lock in the hand of a waiter. */
export async function crash(entrants, { rounds, random, sizes }) {
  const { does, not } = applicable(entrants, "crash");
  const taken = Object.fromEntries(does.map(({ key }) => [key, []]));
  const failed = {};
  const count = Math.min(rounds, 3);
  for (let round = 1; round <= count; round += 1) {
    progress(`round ${round} of ${count}: killing all holders`);
    // At some moment between two heartbeats. All at once: most of the time nothing is done but wait.
    const moments = does.map(() => random() * sizes.killWithinMs);
    const kills = does.map(async (entrant, at) => {
      const ms = await killed(entrant, lockName("crash", entrant.key, round), moments[at]);
      taken[entrant.key].push(ms);
    });
    const ends = await Promise.allSettled(kills);
    ends.forEach(({ reason }, at) => {
      if (reason !== undefined) failed[does[at].key] ??= broken(does[at].key, reason);
    });
  }
  progress("");
  const sum = (list) => ({ ms: median(list), least: Math.min(...list), most: Math.max(...list), rounds: list });
  return { ...Object.fromEntries(does.map(({ key }) => [key, failed[key] ?? sum(taken[key])])), ...not };
}

async function killed({ store, contestant, open, server }, name, afterMs) {
  const child = contender({ store, contestant, at: server.at, word: "hold", name });
  const waiter = await open(server.at);
  try {
    await child.next();
    const waiting = waiter.take(name);
    await pause(200 + afterMs);
    child.kill();
    const start = performance.now();
    const late = pause(AT_MOST_MS).then(() => {
      throw new Error(`not free within ${AT_MOST_MS} ms`);
    });
    const release = await Promise.race([waiting, late]);
    const ms = performance.now() - start;
    await release();
    return ms;
  } finally {
    child.kill();
    await waiter.close();
  }
}
