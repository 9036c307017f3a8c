import { type ChildProcess, spawn } from "node:child_process";
import type { Writable } from "node:stream";
import type { Clock } from "../core/clock.js";
import { EXIT, Failure } from "./command.js";
import type { Signals } from "./signals.js";
import type { Watchdog } from "./watchdog.js";

/** What is held while the command runs: a hold, a leader's term. */
export type Held = { readonly name: string; readonly token: number; readonly signal: AbortSignal; throwIfLost(): void };

/** How the command ended; `lost`: why it was ended, when it did not end by itself. */
export type Ended = {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly lost: unknown;
};

export type Supervision = {
  readonly clock: Clock;
  readonly watchdog: Watchdog;
  readonly signals: Signals;
  /** How long after SIGTERM a command that lost its lock is killed. */
  readonly killAfterMs: number;
};

/**
 * Between its start and the moment when the watchdog knows of it, a command could outlive this process. So a shell is
 * started first, which waits for a line and only then becomes the command; "not found" is reported as the shell does.
 */
const START = 'read -r go <&3 || exit 75; exec "$@" 3<&-';

/** For the command alone: what it started may die of them. All others are for all, so that nothing goes on without the lock. */
const PRIVATE: ReadonlySet<string> = new Set(["SIGUSR1", "SIGUSR2"]);

/** Run the command while the lock is held, and end it when the lock is lost. */
export async function supervise(command: readonly string[], held: Held, how: Supervision): Promise<Ended> {
  const { clock, watchdog, signals, killAfterMs } = how;
  const child = spawn("/bin/sh", ["-c", START, "holdfast", ...command], {
    // A group that can be ended as a whole without ending whoever called us.
    detached: true,
    stdio: ["inherit", "inherit", "inherit", "pipe"],
    env: { ...process.env, HOLDFAST_NAME: held.name, HOLDFAST_TOKEN: String(held.token) },
  });
  const ended = endOf(child);
  const group = child.pid;
  if (group === undefined) return ended;

  let lost: unknown = null;
  let timer: object | null = null;
  const kill = (signal: NodeJS.Signals): void => signalGroup(group, signal);
  const lose = (reason: unknown): void => {
    if (lost !== null) return;
    lost = reason;
    kill("SIGTERM");
    // A stopped process gets no other signal before this one.
    kill("SIGCONT");
    timer = clock.after(killAfterMs, () => kill("SIGKILL"));
  };
  const checkLost = (): void => {
    try {
      held.throwIfLost();
    } catch (error) {
      lose(error);
    }
  };
  const aborted = (): void => lose(held.signal.reason);
  held.signal.addEventListener("abort", aborted);
  signals.passTo((signal) => {
    // Stopped together and awake again: the lock may be gone, and the command must not run on before that is known.
    if (signal === "SIGCONT") checkLost();
    if (PRIVATE.has(signal)) child.kill(signal);
    else kill(signal);
  });
  let over = false;
  void watchdog.ended.then(() => {
    if (over) return;
    // The claim may be free already: there is no time for SIGTERM.
    lost ??= new Failure(`the watchdog process of "${held.name}" was killed, and the command with it`, EXIT.lost);
    kill("SIGKILL");
  });
  try {
    await watchdog.watch(group);
    checkLost();
    const go = child.stdio[3] as Writable;
    // A command that was killed meanwhile is reported by its end.
    go.on("error", () => {});
    if (lost === null) go.end("go\n");
    else go.destroy();
    const end = await ended;
    // What the command left running is not to go on without the lock.
    if (lost !== null) kill("SIGKILL");
    return { ...end, lost };
  } finally {
    over = true;
    await watchdog.unwatch();
    signals.passTo(null);
    held.signal.removeEventListener("abort", aborted);
    if (timer !== null) clock.cancel(timer);
  }
}

function endOf(child: ChildProcess): Promise<Ended> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve({ code, signal, lost: null }));
  });
}

function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal);
  } catch {
    // It has ended.
  }
}
