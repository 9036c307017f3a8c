import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";

/** What the program in `holder.mjs` tells, a line each. */
export type Told = {
  readonly event: "ready" | "held" | "told" | "checked" | "released" | "failed";
  readonly [fact: string]: unknown;
};

/**
 * A process of its own that takes a lock and does as it is told: the one that tests kill, stop and let go on. It never
 * outlives the test.
 */
export class Child {
  readonly told: Told[] = [];
  readonly #process: ChildProcess;
  readonly #waiting = new Set<() => void>();

  /** @param options what to take: `{ url, name, recipe?, capacity?, acquire?: AcquireOptions, beside?: { name, acquire }[] }` */
  constructor(options: object, wrapper: readonly string[] = []) {
    const program = resolve(import.meta.dirname, "holder.mjs");
    const [command, ...words] = [...wrapper, process.execPath, program, JSON.stringify(options)];
    this.#process = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
    if (this.#process.stdout !== null) {
      createInterface(this.#process.stdout).on("line", (line) => {
        this.told.push(JSON.parse(line) as Told);
        for (const look of this.#waiting) look();
      });
    }
    onTestFinished(() => void this.#process.kill("SIGKILL"));
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  /** The next telling of this event, or one that came before. */
  async tells(event: Told["event"], limitMs = 45_000): Promise<Told> {
    const find = (): Told | undefined => this.told.find((one) => one.event === event);
    const known = find();
    if (known !== undefined) return known;
    return new Promise((fulfil, reject) => {
      const told = JSON.stringify(this.told);
      const timer = setTimeout(() => reject(new Error(`no "${event}" within ${limitMs} ms; told: ${told}`)), limitMs);
      const look = (): void => {
        const found = find();
        if (found === undefined) return;
        clearTimeout(timer);
        this.#waiting.delete(look);
        fulfil(found);
      };
      this.#waiting.add(look);
    });
  }

  /** `check`, `busy MS`, `release` or `exit`. */
  say(word: string): void {
    this.#process.stdin?.write(`${word}\n`);
  }

  signal(signal: "SIGKILL" | "SIGSTOP" | "SIGCONT" | "SIGTERM"): void {
    process.kill(this.pid, signal);
  }

  async exited(): Promise<void> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) await once(this.#process, "exit");
  }
}
