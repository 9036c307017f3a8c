// One process of a soak: a few clients whose tasks take locks of every kind as chance has it, write to a fenced resource, and
// tell everything that happens to them, a line each. A pipe is written to at once, so what was told is told even when the process is
// stopped or killed right after. Times are of the machine's monotonic clock, which all processes share.
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

/** `library`: the built library, or a copy that was broken on purpose. */
const { library, url, options, seed, leaseMs, clients, tasks, stem } = JSON.parse(process.argv[2]);
const { connect } = await import(`${library}/index.js`);
const { SeededChance } = await import(`${library}/testing/index.js`);

const READERS_MAX = 1_048_576;
const PERMITS = 3;
const KEPT = 4;
/** What a task of a good program has to expect of a call; anything else ends the process, which the soak reports. */
const BUSY = ["HOLDFAST_ACQUIRE_TIMEOUT", "ABORT_ERR", "HOLDFAST_CLOSED", "HOLDFAST_LOCK_LOST"];
const UNKNOWN = ["HOLDFAST_ENGINE_UNAVAILABLE"];
const ENDED = ["HOLDFAST_LOCK_LOST", "HOLDFAST_ENGINE_UNAVAILABLE", "HOLDFAST_CLOSED", "HOLDFAST_CLAIM_ENDED"];
const codeOf = (error) => (error?.name === "AbortError" ? "ABORT_ERR" : error?.code);

const now = () => Number(process.hrtime.bigint() / 1000n) / 1000;
const tell = (facts) => process.stdout.write(`${JSON.stringify(facts)}\n`);

// Whoever stood still could not have acted: the machine is busy, or the process was stopped.
let beatAt = now();
let toldAt = 0;
setInterval(() => {
  const at = now();
  if (at > beatAt + 10) tell({ event: "stood still", from: beatAt, to: at });
  if (at > toldAt + 250) tell({ event: "beat", at: (toldAt = at) });
  beatAt = at;
}, 5).unref();

const chance = new SeededChance(seed);
const steps = (least, most) => leaseMs * (least + chance.fraction() * (most - least));
/** Which of the names that come and go is used now; moved on by the driver. */
let epoch = 0;
/** Not null: no new round begins until it is resolved. */
let rest = null;
const state = { leaving: false };
let busyTasks = 0;
let numbers = 0;
const answers = new Map();

/** The resource is the driver's. It answers whether it took the write. */
function askResource(facts) {
  const number = (numbers += 1);
  tell({ event: "write", number, ...facts });
  return new Promise((resolve) => answers.set(number, resolve));
}

/** What a writer shows to the resource. */
const shownBy = ({ token, floor, live }) => ({ token, floor, ...(live === undefined ? {} : { live }) });

/** A kind of lock under a name that is always of that kind. Some names live as long as the run, some are used for a while. */
function targetOf(locks) {
  const kind = ["mutex", "mutex", "read-write", "read-write", "semaphore"][chance.between(0, 4)];
  const place = chance.chance(0.5) ? `kept ${chance.between(0, KEPT - 1)}` : `epoch ${epoch}`;
  const name = `${stem} ${kind} ${place}`;
  if (kind === "mutex") return { name, units: 1, capacity: 1, lock: locks.mutex(name), more: {} };
  if (kind === "semaphore") {
    const permits = chance.between(1, PERMITS);
    const fence = chance.chance(0.3) ? { fence: "exact" } : {};
    const lock = locks.semaphore(name, PERMITS);
    return { name, units: permits, capacity: PERMITS, lock, more: { permits, ...fence } };
  }
  const writes = chance.chance(0.4);
  const { read, write } = locks.readWrite(name);
  return { name, units: writes ? READERS_MAX : 1, capacity: READERS_MAX, lock: writes ? write : read, more: {} };
}

function chosenOptions() {
  const lease = Math.round(steps(0.7, 2));
  const waits = chance.between(0, 9);
  const waitMs = waits === 0 ? 0 : waits < 5 ? Math.round(steps(0.2, 4)) : undefined;
  const controller = new AbortController();
  const aborts = chance.chance(0.15);
  const timer = aborts ? setTimeout(() => controller.abort(), steps(0, 1.5)) : undefined;
  const renew = chance.chance(0.7);
  return {
    timer,
    chosen: {
      leaseMs: lease,
      renew,
      ...(waitMs === undefined ? {} : { waitMs }),
      ...(renew && chance.chance(0.1) ? { maxHoldMs: Math.round(steps(0.2, 1)) } : {}),
      // A session gives less than a lease that is longer than it: never more than this would wait for ever.
      ...(chance.chance(0.2) ? { minRemainingMs: Math.floor(leaseMs * 0.2) } : {}),
      ...(aborts ? { signal: controller.signal } : {}),
    },
  };
}

/** Mostly a moment, so that locks change hands often; now and then longer than the lease. */
const workMs = () => (chance.chance(0.008) ? steps(0.5, 2.5) : chance.fraction() * 25);

async function round(locks, others) {
  const { name, units, capacity, lock, more } = targetOf(locks);
  const { chosen, timer } = chosenOptions();
  const terms = { ...chosen, ...more };
  const number = (numbers += 1);
  const askedAt = now();
  const way = ["using", "acquire", "tryAcquire"][chance.between(0, 2)];
  const { signal, ...plain } = terms;
  tell({ event: "asked", number, name, at: askedAt, how: { way, ...plain, aborts: signal !== undefined } });
  const queued = new Map();
  const off = locks.on("queued", ({ id }) => queued.set(id, now()));
  const end = (outcome, why) => {
    off();
    clearTimeout(timer);
    tell({ event: "answered", number, at: now(), outcome, ...(why === undefined ? {} : { why }) });
  };
  const begin = (hold, passing) => {
    const at = now();
    const { id, token, floor, remainingMs } = hold;
    const queuedAt = queued.get(id) ?? null;
    tell({
      event: "granted",
      name,
      id,
      token,
      floor,
      units,
      capacity,
      askedAt,
      queuedAt,
      at,
      deadline: at + remainingMs,
    });
    end("ok");
    return use(hold, locks, passing, remainingMs > 0 ? null : at);
  };
  let taken = false;
  try {
    if (way === "using") {
      await lock.using(terms, async (hold) => {
        taken = true;
        // What `using` gives back stays with it.
        await (await begin(hold, []))(false);
      });
      return;
    }
    const hold = way === "acquire" ? await lock.acquire(terms) : await lock.tryAcquire(terms);
    if (hold === null) return end("fail");
    taken = true;
    const leave = await begin(hold, others);
    await leave(true);
  } catch (error) {
    const code = codeOf(error);
    if (taken ? !ENDED.includes(code) : ![...BUSY, ...UNKNOWN].includes(code)) throw error;
    if (!taken) end(UNKNOWN.includes(code) ? "unknown" : "fail", code);
  }
}

/** Works and writes for a while. The result gives the lock back: asked for while it runs inside `using`, only tells it. */
async function use(first, locks, others, lostAt) {
  const { id } = first;
  let hold = first;
  let by = locks;
  let over = false;
  const finish = (event, facts) => {
    if (!over) tell({ event, id, ...facts });
    over = true;
  };
  const lost = (at = now()) => finish("lost", { at, reason: hold.signal.reason?.reason ?? "by the clock" });
  const follow = () => {
    const off = by.on("renewed", (one) => {
      if (one.id === id && !over) tell({ event: "renewed", id, deadline: now() + one.remainingMs });
    });
    if (hold.signal.aborted) lost();
    const told = () => lost();
    const { signal } = hold;
    signal.addEventListener("abort", told);
    return () => (off(), signal.removeEventListener("abort", told));
  };
  let unfollow = follow();
  if (lostAt !== null) lost(lostAt);
  for (let writes = chance.between(0, 2); writes > 0; writes -= 1) {
    await sleep(workMs());
    await write(hold, id);
  }
  await sleep(workMs());
  // Another client goes on with it, as another process would.
  const other = others.length === 0 ? undefined : others[chance.between(0, others.length - 1)];
  const mayPass = !over && hold === first && locks.guarantees.crashRelease !== "session";
  if (mayPass && other !== undefined && chance.chance(0.05) && hold.state !== "lost") {
    const passed = await passOn(hold, other);
    if (passed !== undefined) {
      unfollow();
      if (passed === null) over = true;
      else {
        [hold, by] = [passed, other];
        unfollow = follow();
        await sleep(workMs());
        await write(hold, id);
      }
    }
  }
  return async (release) => {
    try {
      // By the state, which compares clocks: the signal may still be on its way.
      const at = now();
      if (hold.state === "lost") lost(at);
      else finish("releasing", { at });
      // A careless program writes once more, when it has given the lock back or lost it: that is what the fence is for.
      if (chance.chance(0.1)) await askResource({ id, ...shownBy(hold) });
      if (release) await hold.release();
    } finally {
      unfollow();
    }
  };
}

/** A hold of another client, null when it could not be taken over; undefined when the first one cannot hand it over. */
async function passOn(hold, other) {
  const at = now();
  let data;
  try {
    data = hold.handOver();
  } catch (error) {
    if (!["HOLDFAST_MISUSE", ...ENDED].includes(codeOf(error))) throw error;
    return undefined;
  }
  tell({ event: "releasing", id: data.id, at });
  try {
    const adopted = await other.adopt(data);
    const again = now();
    tell({ event: "adopted", id: data.id, at: again, deadline: again + adopted.remainingMs });
    return adopted;
  } catch (error) {
    if (!ENDED.includes(codeOf(error))) throw error;
    return null;
  }
}

/** Held before the resource is asked and after it has answered: then it must not be refused. */
async function write(hold, id) {
  const held = () => hold.state === "held" || hold.state === "jeopardy";
  const before = held();
  const { number } = await askResource({ id, ...shownBy(hold) });
  if (before && held()) tell({ event: "wrote while held", number });
}

async function run(locks, others) {
  while (!state.leaving) {
    if (rest !== null) {
      await rest.promise;
      continue;
    }
    busyTasks += 1;
    try {
      await sleep(chance.fraction() * 20);
      if (rest === null) await round(locks, others);
    } finally {
      busyTasks -= 1;
      if (rest !== null && busyTasks === 0) tell({ event: "resting" });
    }
  }
}

const orders = {
  epoch: (order) => (epoch = order.epoch),
  rest() {
    let go;
    const promise = new Promise((resolve) => (go = resolve));
    rest ??= { promise, go };
    if (busyTasks === 0) tell({ event: "resting" });
  },
  go() {
    rest?.go();
    rest = null;
  },
  answer({ number, ...answer }) {
    answers.get(number)?.({ number, ...answer });
    answers.delete(number);
  },
  async measure() {
    // What was let go of in the last turns is garbage only now.
    for (let n = 0; n < 3; n += 1) {
      await sleep(20);
      globalThis.gc();
    }
    const resources = {};
    for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
    tell({ event: "measured", heap: process.memoryUsage().heapUsed, resources });
  },
  async leave() {
    state.leaving = true;
    rest?.go();
    await Promise.all(all.map((locks) => locks.close()));
    tell({ event: "left" });
    process.exit(0);
  },
};

const words = createInterface(process.stdin);
// Whoever started it is gone.
words.on("close", () => process.exit(0));
words.on("line", (line) => {
  const order = JSON.parse(line);
  void orders[order.say](order);
});

/** Ids are never the same twice, whatever the seed. */
const chanceOf = (place) => {
  const own = new SeededChance(seed + 1 + place);
  return { id: () => randomBytes(16).toString("base64url"), fraction: () => own.fraction() };
};

/** Whoever starts while the store is away tries again. */
async function open(place) {
  for (;;) {
    try {
      return await connect(url, { ...options, chance: chanceOf(place) });
    } catch (error) {
      if (!UNKNOWN.includes(error.code)) throw error;
      await sleep(200);
    }
  }
}

const all = await Promise.all(Array.from({ length: clients }, (_, place) => open(place)));
tell({ event: "ready", guarantees: all[0].guarantees });
for (const locks of all) {
  const others = all.filter((other) => other !== locks);
  for (let n = 0; n < tasks; n += 1) void run(locks, others);
}
