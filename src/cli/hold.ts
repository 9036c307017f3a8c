import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { type Command, EXIT, flag, type Given, JSON_OPTION, URL_OPTION, UsageError, whole } from "./command.js";
import { LOCK_OPTIONS } from "./lock-options.js";
import { print } from "./print.js";
import { jsonText } from "./printable.js";
import { endBy } from "./signals.js";

const PID_MAX = 2 ** 31 - 1;

/** What the holder in the background reports once: that it holds the lock, or how it failed. */
export type Report =
  | { readonly held: { readonly name: string; readonly token: number; readonly holder: number } }
  | { readonly failed: number };

export const hold: Command = {
  usage: "hold --pid PID [options] NAME",
  summary: "hold a lock while a process lives, for shell scripts",
  options: {
    ...URL_OPTION,
    pid: { type: "string", short: "p", value: "PID", help: "the process; in a script: $$. It gets SIGTERM on a loss" },
    ...LOCK_OPTIONS,
    ...JSON_OPTION,
  },
  examples: ["holdfast hold --pid $$ deploy || exit 1", "token=$(holdfast hold -w 10 --pid $$ deploy) || exit 1"],
  async main(given) {
    pidOf(given);
    return inBackground(given);
  },
};

export function pidOf(given: Given): number {
  const pid = whole(given, "pid", 1, PID_MAX);
  if (pid === undefined)
    throw new UsageError("--pid is missing: the process that the lock is held for, in a script $$");
  return pid;
}

/** The lock is held by a process of its own, which lives on when this one has told the script that it may go on. */
async function inBackground(given: Given): Promise<number> {
  const program = fileURLToPath(new URL("./holder.js", import.meta.url));
  const child = spawn(process.execPath, [program], { detached: true, stdio: ["pipe", "pipe", "pipe"] });
  // Not as an argument: everybody on the machine can read those, and the URL may hold a password.
  // A child that ended without reading it is reported below, by its exit.
  child.stdin.on("error", () => {});
  child.stdin.end(JSON.stringify(given));
  let stopped: NodeJS.Signals | null = null;
  for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      stopped = signal;
      child.kill("SIGTERM");
    });
  }
  child.stderr.on("data", (chunk: Buffer) => process.stderr.write(chunk));
  const report = await new Promise<Report>((resolve, reject) => {
    child.once("error", reject);
    createInterface(child.stdout).once("line", (line) => resolve(JSON.parse(line) as Report));
    child.once("close", (code) => resolve({ failed: code ?? EXIT.internal }));
  });
  if (stopped !== null) return endBy(stopped);
  if ("failed" in report) return report.failed;
  try {
    await print(flag(given, "json") ? jsonText(report.held) : String(report.held.token));
  } catch (error) {
    // A script that goes on must know its token: it is told, and holds nothing.
    child.kill("SIGTERM");
    throw error;
  }
  // Open pipes to the other process would keep this one running.
  child.stdout.destroy();
  child.stderr.destroy();
  child.unref();
  return EXIT.ok;
}
