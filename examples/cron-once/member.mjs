// One machine of a fleet on which the same job is scheduled everywhere.
import { setTimeout as sleep } from "node:timers/promises";
import { addLine } from "../lib/files.mjs";
import { open, say, serve, settings } from "../lib/member.mjs";

const { name, lock, log, everyMs } = settings;
const locks = await open();

async function report({ at, token }) {
  addLine(log, `${at.getTime()} ${name}`);
  say(`makes the report of ${at.toISOString().slice(14, 23)}${token ? `, token ${token}` : ""}`);
  await sleep(everyMs / 4);
}

/** What every machine does by itself: each tick, on time, and so as often as there are machines. */
function everybodysTimer() {
  let timer;
  const plan = () => {
    const at = new Date((Math.floor(Date.now() / everyMs) + 1) * everyMs);
    timer = setTimeout(() => {
      plan();
      void report({ at });
    }, at - Date.now());
  };
  plan();
  return { stop: () => clearTimeout(timer) };
}

let schedule;
serve({
  async start() {
    // With a `cron` pattern in place of `everyMs`: { cron: "0 3 * * *" }
    schedule = lock ? await locks.schedule("example:cron-once", { everyMs }, report) : everybodysTimer();
  },
  async close() {
    await schedule.stop();
    await locks.close();
  },
});
