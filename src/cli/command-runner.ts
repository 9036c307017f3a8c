import { basename } from "node:path";
import type { Client } from "../core/client.js";
import { LockLostError } from "../core/errors.js";
import { EXIT, flag, type Given, type Options, seconds, text, UsageError } from "./command.js";
import { printError } from "./print-error.js";
import { jsonText, printable } from "./printable.js";
import { QueueStatus } from "./queue-status.js";
import { hideSecrets } from "./secrets.js";
import { endBy, Signals } from "./signals.js";
import { openStore } from "./store.js";
import { type Ended, type Held, supervise } from "./supervise.js";
import { Watchdog } from "./watchdog.js";

/** What every command that runs a command takes. */
export const COMMAND_OPTIONS: Options = {
  command: { type: "string", short: "c", value: "TEXT", help: "a line for the shell, instead of a command behind --" },
  "kill-after": { type: "string", value: "SECONDS", help: "SIGKILL so long after SIGTERM when the lock is lost (5)" },
  verbose: { type: "boolean", help: "say when the lock is taken and given back" },
};

const KILL_AFTER_MS = 5_000;

/** What a command that runs a command works with. */
export type CommandRunner = {
  readonly client: Client;
  readonly signals: Signals;
  /** Run the command under what is held. */
  readonly run: (held: Held) => Promise<Ended>;
  /** With `--verbose`. */
  readonly note: (event: string, facts: object, text: string) => void;
  /** The code to end with. `failure`: why the lock could not be given back, if so. */
  readonly codeOf: (ended: Ended, failure?: unknown) => number;
};

/**
 * Opens what a command runs with (the watchdog, the signals, the store) and closes all three. The store is retried for as long
 * as the lock would be waited for.
 */
export async function withCommandRunner(
  given: Given,
  name: string,
  waitMs: number | undefined,
  main: (runner: CommandRunner) => Promise<number>,
): Promise<number> {
  const command = commandOf(given);
  const killAfterMs = seconds(given, "kill-after") ?? KILL_AFTER_MS;
  const label = text(given, "label") ?? labelOf(text(given, "command") ?? command[0] ?? "");
  const json = flag(given, "json");
  const signals = new Signals();
  const watchdog = new Watchdog();
  try {
    const retry = { waitMs, signal: signals.leaving, json };
    const store = await openStore(given, { label, endsWithPid: watchdog.pid, retry });
    const { client } = store;
    const status = new QueueStatus(client, name);
    try {
      return await main({
        client,
        signals,
        run(held) {
          status.clear();
          return supervise(command, held, { clock: client.clock, watchdog, signals, killAfterMs });
        },
        note(event, facts, words) {
          if (!flag(given, "verbose")) return;
          status.clear();
          const told = json ? jsonText({ event, name, ...facts }) : `holdfast: ${printable(hideSecrets(words))}`;
          process.stderr.write(`${told}\n`);
        },
        codeOf: (ended, failure) => codeOf(ended, failure, json),
      });
    } finally {
      status.stop();
      await store.close();
    }
  } catch (error) {
    // Whoever stopped us knows why we ended.
    if (signals.received !== null) return endBy(signals.received);
    throw error;
  } finally {
    await watchdog.stop();
  }
}

const LABEL_LENGTH = 64;

/** The name of the program alone: what follows it may be secret. */
function labelOf(command: string): string {
  const name = basename(command.trim().split(/\s/)[0] ?? "");
  return printable(name).slice(0, LABEL_LENGTH).toWellFormed();
}

function commandOf(given: Given): readonly string[] {
  const line = text(given, "command");
  if (line !== undefined && given.rest.length > 0) throw new UsageError("give -c or a command behind --, not both");
  if (line !== undefined) return [process.env.SHELL || "/bin/sh", "-c", line];
  if (given.rest.length === 0) throw new UsageError("the command is missing: put it behind --");
  return given.rest;
}

function codeOf({ code, signal, lost }: Ended, failure: unknown, json: boolean): number {
  const trouble = lost ?? failure;
  if (trouble !== undefined) printError(trouble, json);
  // Lost before the command ended: what it did last was unprotected. Otherwise the lease ends by itself.
  if (lost !== null || failure instanceof LockLostError) return EXIT.lost;
  return signal === null ? (code ?? EXIT.internal) : endBy(signal);
}
