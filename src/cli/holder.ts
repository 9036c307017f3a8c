import { AcquireTimeoutError } from "../core/errors.js";
import { ThisMachine } from "../engines/sqlite/machine.js";
import { EXIT, Failure, flag, type Given, nameOf, text } from "./command.js";
import { exitCodeOf, tellError } from "./failing.js";
import { pidOf, type Word } from "./hold.js";
import { openStore } from "./store.js";
import { conflictCodeOf, lockOf, termsOf } from "./taking.js";

// What `holdfast hold` leaves in the background: holds the lock while the process lives.

/** How often to look whether it lives. */
const LOOK_EVERY_MS = 50;

let input = "";
for await (const piece of process.stdin.setEncoding("utf8")) input += String(piece);
// Whoever started this ended before it could say what for.
if (input === "") process.exit(EXIT.internal);
const given = JSON.parse(input) as Given;
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

/** False when nobody listens any more. */
function say(word: Word): Promise<boolean> {
  return new Promise((resolve) => process.stdout.write(`${JSON.stringify(word)}\n`, (error) => resolve(!error)));
}

async function main(): Promise<number> {
  const [name, pid, terms] = [nameOf(given), pidOf(given), termsOf(given)];
  // By its start too: its number may be another's tomorrow.
  const [here, target] = [new ThisMachine(), new ThisMachine(pid).process];
  const gone = (): boolean => here.hasEnded(target, true);
  if (gone()) throw new Failure(`there is no process ${pid} to hold "${name}" for`, EXIT.usage);
  const stop = new AbortController();
  process.once("SIGTERM", () => stop.abort());
  const patience = { waitMs: terms.waitMs, signal: stop.signal, json: flag(given, "json") };
  // Where the store can see processes, the script's own life guards the claim.
  const store = await openStore(given, { label: text(given, "label"), guardPid: pid, patience });
  const { clock } = store.client;
  const watch = new AbortController();
  const look = (): void => {
    if (gone()) stop.abort();
    else if (!watch.signal.aborted) clock.after(LOOK_EVERY_MS, look);
  };
  try {
    look();
    const hold = await lockOf(store.client, given, name).acquire({ ...terms, signal: stop.signal });
    const lost = new Promise<true>((resolve) => hold.signal.addEventListener("abort", () => resolve(true)));
    // The script may have been stopped while it waited.
    if (!(await say({ held: { name, token: hold.token, holder: process.pid } }))) return EXIT.ok;
    const ended = new Promise<false>((resolve) => stop.signal.addEventListener("abort", () => resolve(false)));
    if (!stop.signal.aborted && (await Promise.race([lost, ended]))) {
      if (!gone()) process.kill(pid, "SIGTERM");
      return EXIT.lost;
    }
    return EXIT.ok;
  } catch (error) {
    if (stop.signal.aborted) return EXIT.ok;
    throw error;
  } finally {
    watch.abort();
    await store.close();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  tellError(error, flag(given, "json"));
  const code = error instanceof AcquireTimeoutError ? conflictCodeOf(given, EXIT.conflict) : exitCodeOf(error);
  await say({ failed: code });
  process.exitCode = code;
}
