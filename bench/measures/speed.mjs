import { median } from "../lib/measure.mjs";
import { applicable, inRounds } from "../lib/rounds.mjs";
import { pause } from "../stores/holdfast.mjs";

async function openAll(entrants) {
  const opened = new Map();
  for (const entrant of entrants) opened.set(entrant, await entrant.open(entrant.server.at));
  const close = () => Promise.all([...opened.values()].map((contestant) => contestant.close()));
  return { opened, close };
}

/** How long each took, one after the other, for so long. */
async function timesFor(forMs, work) {
  const times = [];
  const end = performance.now() + forMs;
  for (let start = performance.now(); start < end; ) {
    await work();
    const now = performance.now();
    times.push(now - start);
    start = now;
  }
  return times;
}

const middle = (rounds) => ({ ms: median(rounds), rounds });

/** An uncontended pair (acquire, release), and beside it the cheapest question to the same server. */
export async function pair(entrants, context) {
  const { sliceMs, warmMs } = context.sizes;
  const { opened, close } = await openAll(entrants);
  const works = {};
  for (const [{ key, server, store }, contestant] of opened) {
    works[key] = async (ms) =>
      contestant.pairs
        ? contestant.pairs(Math.ceil(ms / 5))
        : timesFor(ms, async () => (await contestant.take("pair"))());
    if (server.roundTrip) works[`${store}/`] = (ms) => timesFor(ms, server.roundTrip.run);
  }
  for (const work of Object.values(works)) await work(warmMs);
  const once = ([key, work]) => [key, async () => median(await work(sliceMs))];
  const figures = await inRounds(Object.fromEntries(Object.entries(works).map(once)), context, middle);
  await close();
  for (const { key, store } of entrants) {
    const base = figures[`${store}/`];
    if (base && figures[key].rounds) {
      figures[key].roundTrips = median(figures[key].rounds.map((ms, round) => ms / base.rounds[round]));
    }
  }
  return figures;
}

/** Many pairs at once, on as many names, from one client. */
export async function flight(entrants, context) {
  const { sliceMs, inFlight } = context.sizes;
  const { does, not } = applicable(entrants, "flight");
  const { opened, close } = await openAll(does);
  const candidates = {};
  for (const [{ key }, contestant] of opened) {
    candidates[key] = async () => {
      let count = 0;
      const start = performance.now();
      const end = start + 2 * sliceMs;
      const task = async (_, at) => {
        for (; performance.now() < end; count += 1) await (await contestant.take(`flight-${at}`))();
      };
      await Promise.all(Array.from({ length: inFlight }, task));
      return (count * 1000) / (performance.now() - start);
    };
  }
  const figures = await inRounds(candidates, context, (rounds) => ({ perSecond: median(rounds), rounds }));
  await close();
  return { ...figures, ...not };
}

/** From the release call to the lock in the hand of a waiter of another client. */
export async function handOver(entrants, context) {
  const { handOvers, restMs, spreadMs, warmMs } = context.sizes;
  const { does, not } = applicable(entrants, "handOver");
  const [holders, waiters] = [await openAll(does), await openAll(does)];
  const once = async (holder, waiter, rest) => {
    const release = await holder.take("hand-over");
    const waiting = waiter.take("hand-over");
    await rest();
    const start = performance.now();
    const released = release();
    const next = await waiting;
    const taken = performance.now() - start;
    await released;
    await next();
    return taken;
  };
  // As likely at any moment between two looks of one that polls, of which the slowest looks every 250 ms.
  const rest = () => pause(restMs + spreadMs * context.random());
  const candidates = {};
  for (const entrant of does) {
    const [holder, waiter] = [holders.opened.get(entrant), waiters.opened.get(entrant)];
    candidates[entrant.key] = async () => {
      if (holder.handOvers) return holder.handOvers(handOvers);
      const times = [];
      while (times.length < handOvers) times.push(await once(holder, waiter, rest));
      return times;
    };
    const end = performance.now() + warmMs;
    while (!holder.handOvers && performance.now() < end) await once(holder, waiter, () => pause(0));
  }
  const figures = await inRounds(candidates, context, (rounds) => ({
    ms: median(rounds.flat()),
    worst: Math.max(...rounds.flat()),
    rounds: rounds.map(median),
  }));
  await Promise.all([holders.close(), waiters.close()]);
  return { ...figures, ...not };
}
