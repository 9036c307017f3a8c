// A worker as Kubernetes runs it: on SIGTERM it finishes the part that it is at, gives the lock back, and ends by itself.
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, DrainingError } from "holdfast";

const [name, url, log, lock] = process.argv.slice(2);
const note = (what) => appendFileSync(log, `${name} ${what}\n`);
const locks = await connect(url, { label: name });
// Below terminationGracePeriodSeconds, with room for closing.
process.once("SIGTERM", () => void locks.drain({ graceMs: 20_000 }));

const noLock = { using: (run) => run({ draining: locks.draining, throwIfLost: () => {} }) };
const mutex = lock === "true" ? locks.mutex("example:drain") : noLock;

try {
  await mutex.using(async (hold) => {
    note("begins");
    for (let part = 1; !hold.draining.aborted; part += 1) {
      hold.throwIfLost();
      note("part-begun");
      await sleep(50);
      note("part-done");
    }
    note("ends");
  });
} catch (error) {
  // It waited when the signal came: the work is another program's.
  if (!(error instanceof DrainingError)) throw error;
  note("leaves");
}
await locks.close();
