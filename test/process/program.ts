import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { onTestFinished } from "vitest";

/** A program of its own that prints one JSON value per line; killed at the end of the test, by its process id. */
export class Program {
  readonly process: ChildProcess;
  readonly exited: Promise<number | null>;
  readonly lines: unknown[] = [];
  #stderr = "";
  #closed = false;
  #news: () => void = () => {};

  constructor(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.process = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env } });
    this.exited = new Promise((resolve, reject) => {
      this.process.on("error", reject);
      this.process.on("close", (code) => {
        this.#closed = true;
        resolve(code);
        this.#news();
      });
    });
    this.process.stderr?.on("data", (chunk: Buffer) => (this.#stderr += chunk.toString()));
    const { stdout } = this.process;
    if (stdout === null) throw new Error("no output to read");
    createInterface({ input: stdout }).on("line", (line) => {
      this.lines.push(JSON.parse(line));
      this.#news();
    });
    onTestFinished(async () => {
      // A stopped process only dies of SIGKILL.
      this.process.kill("SIGKILL");
      await this.exited;
    });
  }

  /** The line with this number, from 0, when it comes. */
  async line<T>(number: number): Promise<T> {
    while (this.lines.length <= number) {
      const { exitCode, signalCode } = this.process;
      const ended = exitCode ?? signalCode;
      if (ended !== null && this.#closed) {
        throw new Error(`the program ended (${ended}) after ${this.lines.length} lines: ${this.#stderr}`);
      }
      await new Promise<void>((resolve) => (this.#news = resolve));
    }
    return this.lines[number] as T;
  }

  say(word: string): void {
    this.process.stdin?.write(`${word}\n`);
  }

  get stderr(): string {
    return this.#stderr;
  }
}
