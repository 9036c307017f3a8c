// A worker process: ann falls asleep in the middle of her job, bob hangs in it until he is killed, cy does it.
import { setTimeout as sleep } from "node:timers/promises";
import { StaleTokenError } from "holdfast";
import { addLine } from "../lib/files.mjs";
import { open, say, serve, settings } from "../lib/member.mjs";
import { openDocument } from "../paused-writer/document.mjs";
import { guarded, rescue } from "./guard.mjs";
import { QUEUES } from "./queues.mjs";

const { name, lock, marks, kind, folder, url } = settings;
const locks = await open(url, 2000);
const free = { using: (run) => run(null), tryAcquire: async () => ({ release: async () => {} }) };
const guards = lock ? locks : { mutex: () => free };
const document = await openDocument(url, folder);
// Three workers start at once, and Graphile Worker's own migration fails when two do it at the same time. The default lease: nobody is
// killed here, and making tables keeps a busy machine busy.
const queue = await locks.mutex("tables of the queue").using({ leaseMs: 10_000 }, () => QUEUES[kind](url));
const closing = new AbortController();

async function handle(id) {
  await guarded(guards, id, async (hold) => {
    hold?.signal.addEventListener("abort", () => {
      addLine(marks, `${name} told`);
      say("is told by its signal that another run may have begun");
    });
    say(hold ? `runs the job, token ${hold.token}` : "runs the job");
    if (name === "ann") fallAsleep();
    if (name === "bob") await hang();
    try {
      await (hold ? document.writeFenced(`written by ${name}`, hold) : document.write(`written by ${name}`));
    } catch (error) {
      if (!(error instanceof StaleTokenError)) throw error;
      say(`was refused: ${error.message}`);
      addLine(marks, `${name} refused`);
      throw error; // this run did not do the job
    }
    say("wrote");
    addLine(marks, `${name} wrote`);
  });
}

/** As a long garbage collection or a moved virtual machine: everything stops, between two lines. */
function fallAsleep() {
  addLine(marks, "ann asleep");
  process.kill(process.pid, "SIGSTOP");
}

async function hang() {
  addLine(marks, "bob hangs");
  await sleep(600_000);
}

/** Each worker looks after the others' jobs. */
async function watch() {
  for (; !closing.signal.aborted; await sleep(300))
    await rescue(guards, queue.active).catch((error) => say(error.message));
}

serve({
  add: ({ id }) => queue.add(id).then(() => {}),
  async work() {
    await queue.work(handle);
    if (name !== "ann") void watch();
  },
  async close() {
    closing.abort();
    await queue.close();
    await document.close();
    await locks.close();
    process.exit();
  },
});
