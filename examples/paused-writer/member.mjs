// A process that takes a lock and writes. One of them falls asleep in between and does not know it.
import { StaleTokenError } from "holdfast";
import { addLine } from "../lib/files.mjs";
import { open, say, serve, settings } from "../lib/member.mjs";
import { openDocument } from "./document.mjs";

const { name, lock, marks, fence, folder, url } = settings;
const locks = await open(url, 2000);
const document = await openDocument(url, folder);
let hold;

async function take() {
  hold = lock ? await locks.mutex("example:paused-writer").acquire() : { throwIfLost() {}, async release() {} };
  if (lock) say(`holds the lock, token ${hold.token}`);
}

async function write({ sleepFirst }) {
  hold.throwIfLost(); // the lock is ours, without any doubt
  if (sleepFirst) fallAsleep();
  // ... and now? Nothing that this process could ask itself here helps: it may sleep once more right after the answer.
  try {
    await (lock && fence ? document.writeFenced(`written by ${name}`, hold) : document.write(`written by ${name}`));
    say("wrote");
  } catch (error) {
    if (!(error instanceof StaleTokenError)) throw error;
    say(`was refused: ${error.message}`);
  }
}

/** As a long garbage collection, a suspended laptop or a moved virtual machine: everything stops, between two lines. */
function fallAsleep() {
  addLine(marks, "asleep");
  process.kill(process.pid, "SIGSTOP");
}

serve({
  take,
  write,
  async close() {
    await hold.release().catch((error) => say(`learns when it gives back: ${error.message}`));
    await document.close();
    await locks.close();
  },
});
