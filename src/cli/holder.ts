import { AcquireTimeoutError } from "../core/errors.js";
import { ThisMachine } from "../engines/sqlite/machine.js";
import { EXIT, Failure, flag, type Given, nameOf, text } from "./command.js";
import { pidOf, type Report } from "./hold.js";
import { acquireOptionsOf, conflictCodeOf, lockOf } from "./lock-options.js";
import { exitCodeOf, printError } from "./print-error.js";
import { openStore } from "./store.js";

// What `holdfast hold` leaves in the background: holds the lock while the process lives.

/** How often to check whether it lives. */
const CHECK_EVERY_MS = 50;

let input = "";
for await (const piece of process.stdin.setEncoding("utf8")) input += String(piece);
// The process that started this one ended before it could send its options.
if (input === "") process.exit(EXIT.internal);
const given = JSON.parse(input) as Given;
// Whoever started it may have gone: then there is nobody to tell.
for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});

/** False when nobody reads it any more. */
function report(message: Report): Promise<boolean> {
  return new Promise((resolve) => process.stdout.write(`${JSON.stringify(message)}\n`, (error) => resolve(!error)));
}

async function main(): Promise<number> {
  const [name, pid, terms] = [nameOf(given), pidOf(given), acquireOptionsOf(given)];
  // By its start time too: PIDs are reused.
  const [here, target] = [new ThisMachine(), new ThisMachine(pid).process];
  const hasEnded = (): boolean => here.hasEnded(target, true);
  if (hasEnded()) throw new Failure(`there is no process ${pid} to hold "${name}" for`, EXIT.usage);
  const stop = new AbortController();
  process.once("SIGTERM", () => stop.abort());
  const retry = { waitMs: terms.waitMs, signal: stop.signal, json: flag(given, "json") };
  // Where the store can see processes, the claim ends with the script.
  const store = await openStore(given, { label: text(given, "label"), endsWithPid: pid, retry });
  const { clock } = store.client;
  const watch = new AbortController();
  const check = (): void => {
    if (hasEnded()) stop.abort();
    else if (!watch.signal.aborted) clock.after(CHECK_EVERY_MS, check);
  };
  try {
    check();
    const hold = await lockOf(store.client, given, name).acquire({ ...terms, signal: stop.signal });
    const lost = new Promise<true>((resolve) => hold.signal.addEventListener("abort", () => resolve(true)));
    // The script may have been stopped while it waited.
    if (!(await report({ held: { name, token: hold.token, holder: process.pid } }))) return EXIT.ok;
    const ended = new Promise<false>((resolve) => stop.signal.addEventListener("abort", () => resolve(false)));
    if (!stop.signal.aborted && (await Promise.race([lost, ended]))) {
      if (!hasEnded()) process.kill(pid, "SIGTERM");
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
  printError(error, flag(given, "json"));
  const code = error instanceof AcquireTimeoutError ? conflictCodeOf(given, EXIT.conflict) : exitCodeOf(error);
  await report({ failed: code });
  process.exitCode = code;
}
