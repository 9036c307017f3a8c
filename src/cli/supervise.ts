import { type ChildProcess, spawn } from "node:child_process";
import type { Writable } from "node:stream";
import type { Clock } from "../core/clock.js";
import { EXIT, Failure } from "./command.js";
import type { Guard } from "./guard.js";
import type { Signals } from "./signals.js";

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
  readonly guard: Guard;
  readonly signals: Signals;
  /** How long after SIGTERM a command that lost its lock is killed. */
  readonly killAfterMs: number;
};

/**
 * Nobody guards a command in the moment between its start and the guard's hearing of it. So what is started first is a
 * shell that waits for a word, and only then becomes the command; its way to say "not found" is the shell's own too.
 */
const START = 'read -r go <&3 || exit 75; exec "$@" 3<&-';

/** For the command alone: what it started may die of them. All others are for all, so that nothing goes on without the lock. */
const PRIVATE: ReadonlySet<string> = new Set(["SIGUSR1", "SIGUSR2"]);

/** Run the command while the lock is held, and end it when the lock is lost. */
export async function supervise(command: readonly string[], held: Held, how: Supervision): Promise<Ended> {
  const { clock, guard, signals, killAfterMs } = how;
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
    // One that is stopped hears nothing.
    kill("SIGCONT");
    timer = clock.after(killAfterMs, () => kill("SIGKILL"));
  };
  const look = (): void => {
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
    if (signal === "SIGCONT") look();
    if (PRIVATE.has(signal)) child.kill(signal);
    else kill(signal);
  });
  let over = false;
  void guard.ended.then(() => {
    if (over) return;
    // The claim may be free this moment: no time for goodbyes.
    lost ??= new Failure(`the guard process of "${held.name}" was killed, and the command with it`, EXIT.lost);
    kill("SIGKILL");
  });
  try {
    await guard.protect(group);
    look();
    const go = child.stdio[3] as Writable;
    go.on("error", () => {});
    if (lost === null) go.end("go\n");
    else go.destroy();
    const end = await ended;
    // What the command left running is not to go on without the lock.
    if (lost !== null) kill("SIGKILL");
    return { ...end, lost };
  } finally {
    over = true;
    await guard.rest();
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
