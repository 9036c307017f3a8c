import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { ConnectOptions } from "../../src/connect.js";
import { startEtcd } from "../servers/etcd.js";
import { startMariadb } from "../servers/mariadb.js";
import { startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { startRedis } from "../servers/redis.js";
import { startEnsemble, startZooKeeper, untilLeader } from "../servers/zookeeper.js";
import { Program } from "./program.js";

export type Place = { readonly url: string; readonly options?: ConnectOptions; stop(): Promise<void> };

/** `HOLDFAST_LONG=1`: for half an hour, and with three servers where a store is made of several. */
export const LONG = process.env.HOLDFAST_LONG === "1";

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
  async zookeeper() {
    // Three ticks: a process that was killed is noticed soon, and a busy machine keeps its sessions.
    const options = { sessionTimeoutMs: 1500 };
    if (!LONG) {
      const { port, running } = await startZooKeeper();
      return { url: `zookeeper://127.0.0.1:${port}`, options, stop: () => running.stop() };
    }
    const ensemble = await startEnsemble();
    await untilLeader(ensemble);
    const hosts = ensemble.ports.map((port) => `127.0.0.1:${port}`).join(",");
    return { url: `zookeeper://${hosts}`, options, stop: ensemble.stop };
  },
  etcd: () => startEtcd(LONG ? 3 : 1),
  async quorum() {
    const servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
    return {
      url: `redlock://${servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
      stop: async () => void (await Promise.all(servers.map(({ running }) => running.stop()))),
    };
  },
};

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
