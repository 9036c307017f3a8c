// What is measured of every contestant on every store, in one shape:
//
//   measure(entrants, context) -> { [entrant.key]: figure }
//     entrant  { key, store, contestant, open, not, waiters, server }: a contestant on a store that runs
//     context  { rounds, order, random, sizes }: how many rounds, each one's order, chance from the seed, how much at once
//     figure   plain data; `{ not: why }` where it does not apply, `{ failed: message }` where a contestant broke down
import { crash } from "./crash.mjs";
import { heap } from "./heap.mjs";
import { herd } from "./herd.mjs";
import { hot } from "./hot.mjs";
import { flight, handOver, pair } from "./speed.mjs";
import { waiting } from "./waiting.mjs";

export const MEASURES = { pair, flight, handOver, hot, waiting, crash, heap, herd };

/** How much of everything; `quick` only shows that it all works. */
export const SIZES = {
  full: {
    sliceMs: 150,
    warmMs: 400,
    inFlight: 64,
    handOvers: 6,
    restMs: 15,
    spreadMs: 250,
    hotMs: 4000,
    hotWarmMs: 300,
    waitMs: 2000,
    lines: [8, 64],
    waiters: 500,
    settleMs: 1500,
    killWithinMs: 3300,
    sessions: [10, 100],
  },
  quick: {
    sliceMs: 10,
    warmMs: 10,
    inFlight: 8,
    handOvers: 2,
    restMs: 5,
    spreadMs: 10,
    hotMs: 100,
    hotWarmMs: 20,
    waitMs: 100,
    lines: [2, 4],
    waiters: 20,
    settleMs: 100,
    killWithinMs: 10,
    sessions: [2, 4],
  },
};
