// Some of the ten workers. Each has a connection of its own, as it would on a machine of its own.
import { setTimeout as sleep } from "node:timers/promises";
import { addLine } from "../lib/files.mjs";
import { die, open, serve, settings } from "../lib/member.mjs";

const { lock, log } = settings;
const NAME = "example:workers";
const clients = [];
/** @type {Promise<unknown>[]} */
const working = [];
let begin;
const begun = new Promise((resolve) => (begin = resolve));

async function work(number, fail) {
  addLine(log, `${number} in`);
  await begun; // the first one waits in here until all ten have come
  await sleep(5);
  if (fail) die();
  addLine(log, `${number} out`);
}

/** Whether this worker stands in the store's queue, or holds. */
async function isThere(locks, label) {
  for await (const { holders, waiters } of locks.inspect({ prefix: NAME }))
    if ([...holders, ...waiters].some(({ owner }) => owner.label === label)) return true;
  return false;
}

serve({
  /** Answers when the store has the worker in its queue: the next one comes after it. */
  async queue({ number, fail }) {
    const locks = await open();
    clients.push(locks);
    const label = `worker ${number}`;
    const run = () => work(number, fail);
    working.push(lock ? locks.mutex(NAME).using({ label }, run) : run());
    if (!lock) return;
    while (!(await isThere(locks, label))) await sleep(5);
  },
  begin: () => begin(),
  async done() {
    for (const worker of working) await worker;
  },
  close: () => Promise.all(clients.map((locks) => locks.close())),
});
