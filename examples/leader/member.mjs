// A process that wants to be the leader. Only the leader gives out the next number.
import { setTimeout as sleep } from "node:timers/promises";
import { addLine, linesOf } from "../lib/files.mjs";
import { open, say, serve, settings } from "../lib/member.mjs";

const { name, lock, ledger } = settings;
const locks = await open();
const election = locks.election("example:leader");
const retiring = new AbortController();

/** What the leader does, over and over, until its term ends or it has had enough. */
async function giveNumbers(term) {
  say(`leads, term ${term.token}`);
  while (!retiring.signal.aborted) {
    const last = Number.parseInt(linesOf(ledger).at(-1) ?? "0", 10);
    await sleep(10); // this is where another leader would read the same number
    term.throwIfLost(); // throws when somebody else may lead by now
    addLine(ledger, `${last + 1} ${name}`);
  }
}

async function campaign() {
  if (!lock) return giveNumbers({ token: "none", throwIfLost() {} }); // everybody leads
  await election.lead({ value: name, signal: retiring.signal }, giveNumbers).catch((error) => {
    if (error !== retiring.signal.reason) throw error;
  });
}

let campaigning;
async function retire() {
  retiring.abort();
  await campaigning;
}

serve({
  campaign() {
    campaigning = campaign();
  },
  retire,
  async close() {
    await retire();
    await locks.close();
  },
});
