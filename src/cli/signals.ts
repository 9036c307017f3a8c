import { constants } from "node:os";

/** What ends a program that says nothing about it: while there is no command yet, it ends the wait. */
const ENDING = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"] as const;
const PASSED = [...ENDING, "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT", "SIGTSTP"] as const;

/** Every signal that reaches us is meant for the command. */
export class Signals {
  readonly #abort = new AbortController();
  #forward: ((signal: NodeJS.Signals) => void) | null = null;
  /** The one that ended the wait. */
  received: NodeJS.Signals | null = null;
  /** The last one that was meant to end us, whoever got it. */
  ending: NodeJS.Signals | null = null;

  constructor() {
    for (const signal of PASSED) process.on(signal, () => this.#came(signal));
  }

  /** Aborted when there is nothing to wait for any more. */
  get leaving(): AbortSignal {
    return this.#abort.signal;
  }

  /** From now on they go here; null: nowhere. */
  passTo(forward: ((signal: NodeJS.Signals) => void) | null): void {
    this.#forward = forward;
  }

  #came(signal: NodeJS.Signals): void {
    // The command has no terminal that could stop it: it is stopped by us, and we with it.
    this.#forward?.(signal === "SIGTSTP" ? "SIGSTOP" : signal);
    if (signal === "SIGTSTP") process.kill(process.pid, "SIGSTOP");
    if (!(ENDING as readonly string[]).includes(signal)) return;
    this.ending = signal;
    if (this.#forward !== null) return;
    this.received ??= signal;
    this.#abort.abort(new Error(`stopped by ${signal}`));
  }
}

/** Signals that a shell looks for in its child's end, so that Ctrl-C ends a loop around us too. */
const RAISED: ReadonlySet<string> = new Set(["SIGHUP", "SIGINT", "SIGTERM"]);

/** End as the command ended: by the same signal where shells care, else with the number they would show. */
export function endBy(signal: NodeJS.Signals): number {
  if (RAISED.has(signal)) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  }
  return 128 + constants.signals[signal];
}
