// The programs that the process tests run: node sqlite-program.mjs <what> <file> <name> [options as JSON].
import { appendFileSync, readdirSync, readlinkSync } from "node:fs";
import { createInterface } from "node:readline";
import { connect } from "../../dist/index.js";

const [what, file, name, json = "{}"] = process.argv.slice(2);
const options = JSON.parse(json);
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const heard = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const unavailable = [];

async function open() {
  const locks = await connect(`sqlite:${file}`);
  locks.on("unavailable", (event) => unavailable.push(String(event.cause)));
  return locks;
}

async function takeOnce(locks) {
  const hold = await locks.mutex(name).acquire({ leaseMs: 600_000 });
  appendFileSync(options.log, `${hold.token} ${process.pid}\n`);
  await hold.release();
  await locks.close();
}

/** Did the kernel give us one of the user's watchers? */
function isWatching() {
  return readdirSync("/proc/self/fd").some((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).includes("inotify");
    } catch {
      return false; // The folder was open for reading a moment ago.
    }
  });
}

const programs = {
  /** Takes the lock, says so, and keeps it until told to release it, or for ever. */
  async hold() {
    const locks = await open();
    const hold = await locks.mutex(name).acquire(options);
    const lost = new Promise((resolve) =>
      hold.signal.addEventListener("abort", () => resolve(hold.signal.reason.code)),
    );
    say({ token: hold.token, pid: process.pid });
    const word = await Promise.race([heard.next().then(({ value }) => value), lost]);
    let outcome = word;
    if (word === "release")
      outcome = await hold.release().then(
        () => "released",
        (error) => error.code,
      );
    if (word === "hand over") outcome = hold.handOver();
    say({ outcome, state: hold.state });
    await locks.close();
    process.exit(0);
  },

  /** Takes the lock and says so, then how it lost it and how often it had been renewed by then. */
  async told() {
    const locks = await open();
    let renewals = 0;
    locks.on("renewed", () => (renewals += 1));
    const lost = new Promise((resolve) => locks.on("lost", ({ reason }) => resolve(reason)));
    const hold = await locks.mutex(name).acquire(options);
    say({ id: options.id, watched: isWatching(), token: hold.token });
    say({ lost: await lost, renewals });
    await locks.close();
  },

  /** Many tasks at once, each takes the lock in turn and writes it down. */
  async tasks() {
    const locks = await open();
    const tasks = Array.from({ length: options.tasks }, async (_, n) => {
      const id = `${options.who}-${n}`.padEnd(32, "_");
      const hold = await locks.mutex(name).acquire({ id, leaseMs: 60_000 });
      appendFileSync(options.log, `${hold.token} ${id}\n`);
      await hold.release();
    });
    say({ asked: options.tasks });
    await Promise.all(tasks);
    await locks.close();
    say({ unavailable });
  },

  /** Opens the file at a given moment and uses it once. */
  async once() {
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, options.at - Date.now())));
    await takeOnce(await open());
    say({ unavailable });
  },

  /** Opens the file, says so, and uses it once when told to. */
  async together() {
    const locks = await open();
    say({ watched: isWatching() });
    await heard.next();
    await takeOnce(locks);
    say({ unavailable });
  },
};

await programs[what]();
process.exit(0);
