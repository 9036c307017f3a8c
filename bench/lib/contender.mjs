// A process of its own that takes part in a measurement: what to do is its argument, what it saw a JSON line each.
import { holdfastBursts } from "../stores/holdfast.mjs";
import { heapUsed } from "./measure.mjs";

const { store, contestant, at, word, ...settings } = JSON.parse(process.argv[2]);
// Only this one: the clients of all stores would take longer to load than some measurements last.
const { [store]: module } = await import(`../stores/${store}.mjs`);
const { open } = contestant === "holdfast bursts" ? holdfastBursts : module.contestants[contestant];
const { take, close } = await open(at);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const tell = (value) => new Promise((resolve) => process.stdout.write(`${JSON.stringify(value)}\n`, resolve));

/** Some tasks fight for one lock for a while; with `restMs` each stays away for so long on average before it asks again. */
async function hot({ name, tasks, forMs, warmMs, restMs = 0 }) {
  const untilThen = async (end, work) => {
    while (performance.now() < end) await work();
  };
  // Code that was never run is slow for everybody: first some pairs that nobody disputes.
  const warm = performance.now() + warmMs;
  const own = (_, task) => untilThen(warm, async () => (await take(`warm ${process.pid} ${task}`))());
  await Promise.all(Array.from({ length: tasks }, own));
  // Everybody starts together, when told.
  await tell("ready");
  await new Promise((resolve) => process.stdin.once("data", resolve));
  const start = performance.now();
  const end = start + forMs;
  const cpu = process.cpuUsage();
  const halves = [];
  const halfOver = () => {
    const { user, system } = process.cpuUsage(cpu);
    halves.push(user + system);
  };
  // By a timer, for those who wait all the time; and by whoever is served, for a lock that never waits for anything.
  const half = forMs / 2;
  const ifHalfOver = () => {
    if (halves.length === 0 && performance.now() - start >= half) halfOver();
  };
  setTimeout(ifHalfOver, Math.ceil(half) + 1);
  const fight = async () => {
    const holds = [];
    await untilThen(end, async () => {
      if (restMs > 0) await pause(-Math.log(1 - Math.random()) * restMs);
      const asked = performance.now();
      const release = await take(name);
      const held = performance.now();
      holds.push([Math.round(held - start), Math.round((held - asked) * 1000) / 1000]);
      await release();
      ifHalfOver();
    });
    return holds;
  };
  const fights = await Promise.all(Array.from({ length: tasks }, fight));
  halfOver();
  const [cold, both] = halves;
  await tell({ tasks: fights, cpuUs: { cold, warm: both - cold } });
  await close();
}

/** Takes the lock and stays, to be killed. */
async function hold({ name }) {
  await take(name);
  await tell("held");
  setInterval(() => {}, 1000);
}

/** What a waiter takes of this process's memory, buffers included. */
async function wait({ name, waiters, settleMs }) {
  await (await take("warm"))();
  await take(name);
  // The first one may open what all of them share.
  void take(name);
  await pause(settleMs);
  const used = () => heapUsed() + process.memoryUsage().external;
  const before = used();
  for (let n = 0; n < waiters; n += 1) void take(name);
  await pause(settleMs);
  await tell((used() - before) / waiters);
}

await { hot, hold, wait }[word](settings);
if (word !== "hold") process.exit(0);
