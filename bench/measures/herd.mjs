import { median } from "../lib/measure.mjs";
import { lockName, sideBySide } from "../lib/rounds.mjs";
import { pause } from "../stores/holdfast.mjs";

/** The queue, and the lock that everybody watches. */
const RIVALS = new Set(["holdfast", "one node"]);

/** ZooKeeper only: messages to and from the server, and time, for each hand-over of a line of sessions that is served. */
export async function herd(entrants, { rounds, sizes }) {
  const rivals = entrants.filter(({ store, contestant }) => store === "zookeeper" && RIVALS.has(contestant));
  return sideBySide(
    rivals,
    { rounds: Math.min(rounds, 3) },
    async ({ key, open, server }, round) => {
      const counts = [];
      for (const sessions of sizes.sessions) {
        counts.push(await served(open, server, lockName("herd", key, sessions, round), sessions));
      }
      return counts;
    },
    (all) => {
      const middle = (figure) => sizes.sessions.map((_, at) => median(all.map((round) => round[at][figure])));
      return { sessions: sizes.sessions, messages: middle("messages"), ms: middle("ms"), rounds: all };
    },
  );
}

/** A watch belongs to a session, and of a program's watches on one node only one message comes: so each waiter is a session. */
async function served(open, { at, messages }, name, sessions) {
  const holder = await open(at);
  const clients = [];
  for (let n = 0; n < sessions; n += 1) clients.push(await open(at));
  const release = await holder.take(name);
  const turns = Promise.all(clients.map(async (client) => (await client.take(name))()));
  // Until what they watch is watched.
  await pause(500 + 5 * sessions);
  const [before, start] = [await messages(), performance.now()];
  await release();
  await turns;
  const ms = (performance.now() - start) / sessions;
  const count = ((await messages()) - before) / sessions;
  await Promise.all([holder, ...clients].map((client) => client.close()));
  return { messages: count, ms };
}
