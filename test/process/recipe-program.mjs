// One of several processes on one store. Does what the lines of its standard input ask for, each with a number, and answers
// each with a JSON line of that number. Times are of the machine's monotonic clock, which all processes share.
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, DeadlockError, HoldfastError } from "../../dist/index.js";
import { contend, SeededChance } from "../../dist/testing/index.js";
import { FencedCounter, FencedResource } from "./resource.mjs";

const { url, options = {} } = JSON.parse(process.argv[2]);
const locks = await connect(url, options);
const now = () => Number(process.hrtime.bigint() / 1000n) / 1000;
const tell = (facts) => process.stdout.write(`${JSON.stringify(facts)}\n`);

let goOn = () => {};

/** Until all parties of a run have come. By files: a quorum keeps no barriers. */
async function meet({ folder, run, first, parties }) {
  const place = join(folder, encodeURIComponent(run));
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, encodeURIComponent(first)), "");
  while (readdirSync(place).length < parties) await sleep(5);
}

const tasks = {
  /**
   * Adds one to a shared number under a lock, again and again: reads it, is told to go on, and writes. It does not ask whether
   * it still holds the lock: the resource must refuse it then.
   */
  async count({ name, leaseMs, resource: path }) {
    const counter = new FencedCounter(path);
    for (;;) {
      try {
        await locks.mutex(name).using({ leaseMs }, async ({ token }) => {
          const value = counter.read(token);
          if (value === null) return;
          const told = new Promise((resolve) => (goOn = resolve));
          tell({ event: "inside", token });
          await told;
          tell({ event: "wrote", token, accepted: counter.write(token, value + 1, process.pid) });
        });
      } catch (error) {
        // Lost, or the store did not answer: it asks again.
        if (!(error instanceof HoldfastError)) throw error;
      }
    }
  },

  async goOn() {
    goOn();
  },

  async counted({ resource: path }) {
    const counter = new FencedCounter(path);
    try {
      return counter.state();
    } finally {
      counter.close();
    }
  },

  /** Readers, writers and permit takers as chance has it, for a while; answers the history. */
  async contend({ stem, seed, stepMs, forMs }) {
    const pauses = [];
    let last = now();
    const beat = setInterval(() => {
      if (now() > last + 10) pauses.push({ client: 0, from: last, to: now() });
      last = now();
    }, 5);
    const clock = { ...timers, now };
    const chance = new SeededChance(seed);
    const merged = { attempts: [], holds: [], pauses };
    // On a slow machine for longer: a history of nothing shows nothing.
    for (const end = now() + forMs; now() < end || merged.holds.length < 5; ) {
      const { history, done } = contend({
        contenders: [{ locks, clock }],
        observer: clock,
        chance,
        rounds: 2,
        stepMs,
        stem,
        bursts: false,
      });
      await done;
      merged.attempts.push(...history.attempts);
      merged.holds.push(...history.holds);
    }
    clearInterval(beat);
    return merged;
  },

  /** Holds the first, waits until all of its ring do, then wants the second. */
  async nest({ first, second, holdMs, ...meeting }) {
    try {
      await locks.mutex(first).using(async () => {
        await meet({ first, ...meeting });
        await locks.mutex(second).using(() => sleep(holdMs));
      });
      return "done";
    } catch (error) {
      if (error instanceof DeadlockError) return `victim: ${error.message}`;
      throw error;
    }
  },

  async permit({ name, leaseMs }) {
    await locks.semaphore(name, 3).acquire({ permits: 3, leaseMs });
    return "held";
  },

  async job({ name, options }) {
    await locks.job(name, options).run(() => (tell({ event: "running" }), new Promise(() => {})));
  },

  /** Two tasks that have nothing to do with each other: one holds, the other waits. */
  async apart({ first, second, holdMs, ...meeting }) {
    const holding = locks.mutex(first).using(async () => {
      await meet({ first, ...meeting });
      await sleep(holdMs);
    });
    await sleep(50);
    const waiting = locks.mutex(second).using(() => {});
    try {
      await Promise.all([holding, waiting]);
      return "done";
    } catch (error) {
      if (error instanceof DeadlockError) return `victim: ${error.message}`;
      throw error;
    }
  },

  /**
   * Leads whenever it can, and writes to the resource as long as it believes to lead; and once more when it has learned
   * that it does not, as a careless program would.
   */
  async lead({ name, leaseMs, resource: path }) {
    const resource = new FencedResource(path);
    await locks.election(name).lead({ value: String(process.pid), leaseMs }, async (term) => {
      const { token } = term;
      const write = (checked) => {
        const at = now();
        const accepted = resource.write(token, process.pid);
        tell({ event: "write", token, at, checked, accepted });
      };
      tell({ event: "elected", token, at: now() });
      while (term.state !== "lost") {
        write(true);
        await sleep(50);
      }
      write(false);
    });
  },

  /** What the resource has accepted, in order. */
  async accepted({ resource: path }) {
    const resource = new FencedResource(path);
    try {
      return resource.accepted();
    } finally {
      resource.close();
    }
  },
};

const timers = {
  wallMs: () => Date.now(),
  after: (ms, run) => setTimeout(() => run(), ms),
  cancel: (timer) => clearTimeout(timer),
};

tell({ event: "ready" });
createInterface(process.stdin).on("line", (line) => void obey(JSON.parse(line)));

async function obey({ number, task, ...input }) {
  try {
    tell({ number, answer: await tasks[task](input) });
  } catch (error) {
    tell({ number, error: String(error?.stack ?? error) });
  }
}
