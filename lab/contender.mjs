// One client of a run: a process of its own that takes the lock, writes to the resource and gives the lock back as the lines
// of its standard input say, and tells everything that happens to it. Times are of the machine's monotonic clock, which all
// processes share.
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";
import Database from "libsql";
import { sqliteFence } from "../dist/fence/index.js";
import { SeededChance } from "../dist/testing/index.js";

/** `library`: the built library, or a copy that was broken on purpose. */
const { library, url, options, name, leaseMs, resource, seed } = JSON.parse(process.argv[2]);
const { connect } = await import(`${library}/index.js`);

const now = () => Number(process.hrtime.bigint() / 1000n) / 1000;
// A pipe is written to at once, so what was told is told even when the process stops or dies right after.
const tell = (facts) => process.stdout.write(`${JSON.stringify(facts)}\n`);

// Whoever stood still could not have acted: the machine is busy, or the process was stopped.
let beatAt = now();
setInterval(() => {
  if (now() > beatAt + 10) tell({ event: "stood still", from: beatAt, to: now() });
  beatAt = now();
}, 5).unref();

const file = new Database(resource);
file.exec("PRAGMA busy_timeout = 20000");
const fence = sqliteFence(file);
const note = file.prepare("INSERT INTO writes (token, unfenced, fenced) VALUES (?, ?, ?)");

// Delays by the seed; ids are never the same twice.
const seeded = new SeededChance(seed);
const chance = { id: () => randomBytes(16).toString("base64url"), fraction: () => seeded.fraction() };
// How long a busy machine takes to connect is not what is looked at here.
let locks = null;
for (const end = now() + 30_000; locks === null; ) {
  locks = await connect(url, { ...options, chance }).catch((error) => {
    if (now() > end || error.code !== "HOLDFAST_ENGINE_UNAVAILABLE") throw error;
    return null;
  });
}
const queued = new Map();
locks.on("queued", ({ id }) => {
  queued.set(id, now());
  tell({ event: "queued", at: now() });
});
locks.on("renewed", ({ id, remainingMs }) => tell({ event: "renewed", id, at: now(), deadline: now() + remainingMs }));
locks.on("jeopardy", ({ id }) => tell({ event: "jeopardy", id, at: now() }));
locks.on("unavailable", ({ doing, cause }) =>
  tell({ event: "unavailable", at: now(), what: `${doing}: ${cause?.message}` }),
);

let hold = null;

/**
 * The unfenced resource takes what comes from somebody who believes to hold the lock; the fenced one is always asked, also by
 * somebody who knows better, because the guard must not depend on that.
 */
function write(checked) {
  const { id, token } = hold;
  file.exec("BEGIN IMMEDIATE");
  let fenced = true;
  try {
    fence.acceptSync(name, hold);
  } catch (error) {
    if (error.code !== "HOLDFAST_STALE_TOKEN") throw error;
    fenced = false;
  }
  const { lastInsertRowid } = note.run(token, checked ? 1 : 0, fenced ? 1 : 0);
  const at = now();
  file.exec("COMMIT");
  tell({ event: "wrote", id, at, place: Number(lastInsertRowid), checked, fenced });
  return { checked, fenced };
}

const isHeld = () => hold.state === "held" || hold.state === "jeopardy";

const tasks = {
  async take() {
    const askedAt = now();
    tell({ event: "asked", at: askedAt });
    const taken = await locks.mutex(name).acquire({ leaseMs });
    const at = now();
    const { id, token, floor } = taken;
    const times = { askedAt, queuedAt: queued.get(id) ?? null, at, deadline: at + taken.remainingMs };
    tell({ event: "granted", id, token, floor, ...times });
    hold = taken;
    const lost = () => tell({ event: "lost", id, at: now(), reason: taken.signal.reason.reason });
    if (taken.signal.aborted) lost();
    else taken.signal.addEventListener("abort", lost);
    return token;
  },
  write: () => (hold === null ? null : write(isHeld())),
  /** Checks, stands still until somebody sends SIGCONT, and writes: there is nothing in between that could look again. */
  stopBetweenCheckAndWrite() {
    const checked = isHeld();
    tell({ event: "stopping", at: now() });
    process.kill(process.pid, "SIGSTOP");
    return write(checked);
  },
  async release() {
    const { id } = hold;
    tell({ event: "releasing", id, at: now() });
    try {
      await hold.release();
      return "released";
    } catch (error) {
      return error.code ?? String(error);
    }
  },
  /** What the store still knows of the name. */
  async look() {
    const seen = { holders: 0, waiters: 0 };
    for await (const { holders, waiters } of locks.inspect({ name })) {
      seen.holders += holders.length;
      seen.waiters += waiters.length;
    }
    return seen;
  },
  async leave() {
    await locks.close();
    file.close();
    setImmediate(() => process.exit(0));
  },
};

const words = createInterface(process.stdin);
words.on("line", (line) => void obey(JSON.parse(line)));
// Whoever started it is gone.
words.on("close", () => process.exit(0));

async function obey({ number, task }) {
  try {
    tell({ number, answer: (await tasks[task]()) ?? null });
  } catch (error) {
    tell({ number, error: String(error?.stack ?? error) });
  }
}
tell({ event: "ready", guarantees: locks.guarantees });
