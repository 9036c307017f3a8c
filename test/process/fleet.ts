import { resolve } from "node:path";
import type { ConnectOptions } from "../../src/connect.js";
import type { Place } from "../servers/places.js";
import { until } from "../servers/process.js";
import { Program } from "./program.js";

type Line = { readonly number?: number; readonly answer?: unknown; readonly error?: string; readonly event?: string };

const PROGRAM = resolve(import.meta.dirname, "recipe-program.mjs");

/** One process of `recipe-program.mjs`, which ends with the test. */
export class Member {
  readonly #program: Program;
  #asked = 0;

  constructor({ url, options }: Place, more: ConnectOptions = {}) {
    const connection = { url, options: { ...options, ...more } };
    this.#program = new Program(process.execPath, [PROGRAM, JSON.stringify(connection)]);
  }

  get pid(): number {
    return this.#program.process.pid ?? 0;
  }

  get lines(): readonly unknown[] {
    return this.#program.lines;
  }

  async ready(): Promise<this> {
    await this.#program.line(0);
    return this;
  }

  /** Give it a task without waiting for an answer. */
  begin(task: string, input: object): number {
    const number = (this.#asked += 1);
    this.#program.say(JSON.stringify({ number, task, ...input }));
    return number;
  }

  async ask<T>(task: string, input: object, withinMs = 60_000): Promise<T> {
    const number = this.begin(task, input);
    const find = (): Line | undefined => (this.lines as Line[]).find((line) => line.number === number);
    await until(`${task} is answered ${this.#program.stderr}`, () => find() !== undefined, withinMs);
    const { answer, error } = find() ?? {};
    if (error !== undefined) throw new Error(error);
    return answer as T;
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.pid, signal);
  }
}

export async function fleet(size: number, place: Place, more: ConnectOptions = {}): Promise<Member[]> {
  const members = Array.from({ length: size }, () => new Member(place, more));
  return Promise.all(members.map((member) => member.ready()));
}
