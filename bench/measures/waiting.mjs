import { median } from "../lib/measure.mjs";
import { applicable, lockName, sideBySide } from "../lib/rounds.mjs";
import { pause } from "../stores/holdfast.mjs";
import { STORES } from "../stores/index.mjs";

/** How many requests the server gets: from each waiter while it waits, and for each hand-over of a line that is served. */
export async function waiting(entrants, context) {
  const { lines } = context.sizes;
  const { does, not } = applicable(entrants, "waiting");
  const servers = {};
  for (const store of new Set(does.map((entrant) => entrant.store))) {
    servers[store] = await STORES[store].start({ counting: true });
  }
  const figures = await sideBySide(
    does,
    { rounds: Math.min(context.rounds, 3) },
    async ({ key, open, store }, round) => {
      const counts = [];
      for (const length of lines) {
        counts.push(await line(open, servers[store], lockName("line", key, length, round), length, context.sizes));
      }
      return counts;
    },
    (rounds) => {
      const middle = (figure) => lines.map((_, at) => median(rounds.map((round) => round[at][figure])));
      return { lines, perWaiter: middle("perWaiter"), perHandOver: middle("perHandOver"), rounds };
    },
  );
  await Promise.all(Object.values(servers).map((server) => server.stop()));
  return { ...figures, ...not };
}

async function line(open, { at, requests }, name, length, { waitMs }) {
  const [holder, waiter] = [await open(at), await open(at)];
  // What is only sent the first time, and what a client says when it comes.
  for (const client of [holder, waiter]) await (await client.take(`${name}-first`))();
  const release = await holder.take(name);
  await pause(100);
  const before = await requests();
  const turns = Promise.all(Array.from({ length }, async () => (await waiter.take(name))()));
  await pause(waitMs);
  const waited = await requests();
  await release();
  await turns;
  const served = await requests();
  await Promise.all([holder.close(), waiter.close()]);
  return { perWaiter: (waited - before) / length, perHandOver: (served - waited) / length };
}
