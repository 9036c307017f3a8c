// node sqlite-full.mjs <folder>: holds a lock in a small file system, fills it, and says what becomes of the lock.
import { closeSync, openSync, statfsSync, unlinkSync, writeSync } from "node:fs";
import { connect } from "../../dist/index.js";

const [folder] = process.argv.slice(2);
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const locks = await connect(`sqlite:${folder}/locks.db`);
const other = await connect(`sqlite:${folder}/locks.db`);
// Renewed by hand, as often as it takes to fill the log: no lease ends while we are at it, however slow the machine is.
const hold = await locks.mutex("kept").acquire({ leaseMs: 3_600_000, renew: false });

const filler = openSync(`${folder}/filler`, "w");
for (const bytes of [4096, 1]) {
  try {
    for (;;) writeSync(filler, Buffer.alloc(bytes));
  } catch (error) {
    if (error.code !== "ENOSPC") throw error;
  }
}
closeSync(filler);
const free = statfsSync(folder).bfree;

const outcomeOf = (promise, done) =>
  promise.then(
    () => done,
    (error) => error.message,
  );
let outcome = "renewed";
for (let n = 0; n < 300 && outcome === "renewed"; n += 1) {
  outcome = await outcomeOf(hold.extend(3_600_000 + n * 1000), "renewed");
}
say({ free, outcome });
say({ release: await outcomeOf(hold.release(), "released") });
const again = await other.mutex("kept").tryAcquire();
say({ again: again === null ? "busy" : "granted" });
await again?.release();

// What needs more room than there is.
const code = async (promise) =>
  promise.then(
    () => "granted",
    (error) => ({ code: error.code, message: error.message }),
  );
let refused = "granted";
for (let n = 0; n < 10_000 && refused === "granted"; n += 1) {
  refused = await code(locks.mutex(`${n}-${"x".repeat(400)}`).tryAcquire({ leaseMs: 3_600_000 }));
}
say({ refused });
const waiting = code(locks.mutex("y".repeat(500)).acquire());
await new Promise((resolve) => locks.on("unavailable", resolve));
unlinkSync(`${folder}/filler`);
say({ waiting: await waiting });
process.exit(0);
