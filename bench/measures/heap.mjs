import { median } from "../lib/measure.mjs";
import { contender } from "../lib/processes.mjs";
import { applicable, lockName, sideBySide } from "../lib/rounds.mjs";

/** What one more waiter takes of its process's memory, buffers included, in a process that does nothing else. */
export async function heap(entrants, { rounds, sizes }) {
  const { does, not } = applicable(entrants, "heap");
  const figures = await sideBySide(
    does,
    { rounds: Math.min(rounds, 3) },
    async ({ key, store, contestant, server, waiters: most = sizes.waiters }, round) => {
      const name = lockName("heap", key, round);
      const settings = { name, waiters: Math.min(most, sizes.waiters), settleMs: sizes.settleMs };
      return contender({ store, contestant, at: server.at, word: "wait", ...settings }).next();
    },
    (list) => ({ bytes: median(list), rounds: list }),
  );
  return { ...figures, ...not };
}
