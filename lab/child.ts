import { type ChildProcess, spawn } from "node:child_process";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import type { Guarantees } from "../src/core/guarantees.js";

/** What `contender.mjs` tells, a line each. */
export type Told =
  | { readonly event: "ready"; readonly guarantees: Guarantees }
  | { readonly event: "asked" | "queued" | "stopping"; readonly at: number }
  | {
      readonly event: "granted";
      readonly id: string;
      readonly token: number;
      readonly floor: number;
      readonly askedAt: number;
      readonly queuedAt: number | null;
      readonly at: number;
      readonly deadline: number;
    }
  | { readonly event: "renewed"; readonly id: string; readonly at: number; readonly deadline: number }
  | { readonly event: "jeopardy" | "releasing"; readonly id: string; readonly at: number }
  | { readonly event: "lost"; readonly id: string; readonly at: number; readonly reason: string }
  | {
      readonly event: "wrote";
      readonly id: string;
      readonly at: number;
      /** In the order in which the resource took them. */
      readonly place: number;
      readonly checked: boolean;
      readonly fenced: boolean;
    }
  /** A call to the store failed or was not answered. */
  | { readonly event: "unavailable"; readonly at: number; readonly what: string }
  | { readonly event: "stood still"; readonly from: number; readonly to: number };

type Answer = { readonly number: number; readonly answer?: unknown; readonly error?: string };

export type Task = "take" | "write" | "stopBetweenCheckAndWrite" | "release" | "look" | "leave";

export type ChildOptions = {
  readonly library: string;
  readonly url: string;
  readonly options: object;
  readonly name: string;
  readonly leaseMs: number;
  readonly resource: string;
  readonly seed: number;
};

/** The machine's monotonic clock in milliseconds, which all processes share. */
export const now = (): number => Number(process.hrtime.bigint() / 1000n) / 1000;

/** A contender as its runner sees it. */
export class Child {
  readonly told: Told[] = [];
  readonly #process: ChildProcess;
  readonly #answers = new Map<number, { resolve(answer: unknown): void; reject(error: Error): void }>();
  readonly #waiting = new Set<() => void>();
  #stderr = "";
  #asked = 0;
  #endedAt: number | null = null;

  constructor(options: ChildOptions, env: Readonly<Record<string, string>> = {}) {
    const program = resolve(import.meta.dirname, "contender.mjs");
    this.#process = spawn(process.execPath, [program, JSON.stringify(options)], {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    this.#process.stderr?.on("data", (data: Buffer) => (this.#stderr += data.toString()));
    this.#process.stdin?.on("error", () => {});
    this.#process.on("close", () => this.#end());
    if (this.#process.stdout !== null) {
      createInterface(this.#process.stdout).on("line", (line) => this.#heard(JSON.parse(line) as Told | Answer));
    }
  }

  get ended(): boolean {
    return this.#endedAt !== null;
  }

  get endedAt(): number | null {
    return this.#endedAt;
  }

  signal(signal: "SIGKILL" | "SIGSTOP" | "SIGCONT"): void {
    this.#process.kill(signal);
  }

  /** Rejects when the process dies before it has answered. */
  ask<T = unknown>(task: Task): Promise<T> {
    const number = (this.#asked += 1);
    const answer = new Promise<T>((resolve, reject) => this.#answers.set(number, { resolve, reject }));
    // Some are asked for and only looked at later, or never.
    answer.catch(() => {});
    if (this.ended) this.#end();
    else this.#process.stdin?.write(`${JSON.stringify({ number, task })}\n`);
    return answer;
  }

  all<Event extends Told["event"]>(event: Event): (Told & { event: Event })[] {
    return this.told.filter((one): one is Told & { event: Event } => one.event === event);
  }

  /** Until it holds, looked at after each thing that this process tells. */
  async until(what: string, holds: () => boolean, withinMs = 30_000): Promise<void> {
    if (holds()) return;
    await new Promise<void>((resolve, reject) => {
      const look = (): void => {
        if (holds()) done(resolve);
        else if (this.ended) done(() => reject(new Error(`the contender ended before ${what}: ${this.#stderr}`)));
      };
      const done = (settle: () => void): void => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        settle();
      };
      const timer = setTimeout(() => done(() => reject(new Error(`not within ${withinMs} ms: ${what}`))), withinMs);
      this.#waiting.add(look);
      look();
    });
  }

  async kill(): Promise<void> {
    const over = this.ended;
    this.#endedAt ??= now();
    this.#process.kill("SIGKILL");
    if (!over) await new Promise((resolve) => this.#process.once("close", resolve));
  }

  #heard(line: Told | Answer): void {
    if ("number" in line) {
      const waiting = this.#answers.get(line.number);
      this.#answers.delete(line.number);
      if (line.error === undefined) waiting?.resolve(line.answer);
      else waiting?.reject(new Error(line.error));
    } else this.told.push(line);
    for (const look of this.#waiting) look();
  }

  #end(): void {
    this.#endedAt ??= now();
    for (const waiting of this.#answers.values()) waiting.reject(new Error(`the contender is gone: ${this.#stderr}`));
    this.#answers.clear();
    for (const look of this.#waiting) look();
  }
}
