import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { startMariadb } from "../servers/mariadb.js";
import { startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { startRedis } from "../servers/redis.js";
import { Program } from "./program.js";

export type Place = { readonly url: string; stop(): Promise<void> };

/** A store of each kind that several processes can share. */
export const PLACES: Readonly<Record<string, () => Promise<Place>>> = {
  async sqlite() {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-recipes-"));
    return { url: `sqlite:${join(folder, "locks.db")}`, stop: async () => rmSync(folder, { recursive: true }) };
  },
  async redis() {
    const { url, running } = await startRedis();
    return { url, stop: () => running.stop() };
  },
  async postgres() {
    const { url, running } = await startPostgres();
    return { url, stop: () => running.stop() };
  },
  async mariadb() {
    const { url, running } = await startMariadb();
    return { url, stop: () => running.stop() };
  },
};

type Line = { readonly number?: number; readonly answer?: unknown; readonly error?: string; readonly event?: string };

const PROGRAM = resolve(import.meta.dirname, "recipe-program.mjs");

/** One process of `recipe-program.mjs`, which ends with the test. */
export class Member {
  readonly #program: Program;
  #asked = 0;

  constructor(url: string, options: object = {}) {
    this.#program = new Program(process.execPath, [PROGRAM, JSON.stringify({ url, options })]);
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

export async function fleet(size: number, url: string, options: object = {}): Promise<Member[]> {
  const members = Array.from({ length: size }, () => new Member(url, options));
  return Promise.all(members.map((member) => member.ready()));
}
