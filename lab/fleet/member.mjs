// One process of a fleet: the package in the folder that it is told, on the store that it is told. Connects, prints a line, waits for
// one, contends for so long, and prints what it did. Times are of the machine's monotonic clock, which all processes share.
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const { dist, url, options = {}, seed, ms, counts } = JSON.parse(process.argv[2]);
const load = (file) => import(pathToFileURL(join(dist, file)).href);
const { connect } = await load("index.js");
const { contend, SeededChance } = await load("testing/index.js");

const locks = await connect(url, { leaseMs: 30_000, ...options });
const now = () => Number(process.hrtime.bigint() / 1000n) / 1000;
const tell = (facts) => process.stdout.write(`${JSON.stringify(facts)}\n`);
const timers = {
  now,
  wallMs: () => Date.now(),
  after: (wait, run) => setTimeout(() => run(), wait),
  cancel: (timer) => clearTimeout(timer),
};
const history = { attempts: [], holds: [], writes: [], pauses: [] };
const chance = new SeededChance(seed);

let last = now();
const beat = setInterval(() => {
  if (now() > last + 10) history.pauses.push({ client: 0, from: last, to: now() });
  last = now();
}, 5);

tell({ ready: true });
await once(createInterface(process.stdin), "line");
const end = now() + ms;

/** One mutex that all want: neighbours in its queue are of different processes. */
async function hot() {
  const queued = new Map();
  const off = locks.on("queued", ({ id }) => queued.set(id, now()));
  const mutex = locks.mutex("hot");
  while (now() < end) {
    try {
      const askedAt = now();
      const hold = await mutex.acquire();
      const { id, token, floor } = hold;
      const [grantedAt, queuedAt] = [now(), queued.get(id) ?? null];
      const deadline = grantedAt + hold.remainingMs;
      const held = {
        client: 0,
        name: "hot",
        id,
        units: 1,
        capacity: 1,
        token,
        floor,
        askedAt,
        grantedAt,
        queuedAt,
        deadline,
      };
      let lostAt = null;
      hold.signal.addEventListener("abort", () => (lostAt = now()));
      await sleep(chance.between(0, 2));
      const ended = hold.state === "lost" ? "lost" : "released";
      history.holds.push({ ...held, endedAt: lostAt ?? now(), ended });
      await hold.release();
    } catch (error) {
      // Lost, or the store did not answer: on a busy machine a session may end.
      if (!String(error?.code).startsWith("HOLDFAST_")) throw error;
    }
    queued.clear();
    await sleep(chance.between(0, 2));
  }
  off();
}

/** Mutexes, readers, writers and permits as chance has it: short leases, waits that end, aborts, downgrades. */
async function mixed() {
  while (now() < end) {
    const parts = { contenders: [{ locks, clock: timers }], observer: timers, chance, rounds: 2, stepMs: 100 };
    const { history: part, done } = contend({ ...parts, stem: "mixed", bursts: false });
    await done;
    history.attempts.push(...part.attempts);
    history.holds.push(...part.holds);
  }
}

/** Cells, where the store has them: every addition of every version counts once. */
async function counted() {
  if (!counts) return 0;
  let added = 0;
  for (const counter = locks.counter("counted"); now() < end; added += 1) {
    await counter.add(1);
    await sleep(20);
  }
  return added;
}

const [added] = await Promise.all([counted(), hot(), hot(), mixed()]);
clearInterval(beat);
tell({ history, added });
await locks.close();
process.stdin.destroy();
