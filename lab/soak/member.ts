import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import type { Guarantees } from "../../src/core/guarantees.js";
import { now } from "../child.js";
import type { Told } from "./judge.js";

export type MemberOptions = {
  readonly library: string;
  readonly url: string;
  readonly options: object;
  readonly seed: number;
  readonly leaseMs: number;
  readonly clients: number;
  readonly tasks: number;
  readonly stem: string;
};

/** What is asked of the resource. */
export type Ask = {
  readonly event: "write";
  readonly number: number;
  readonly id: string;
  readonly token: number;
  readonly floor: number;
  readonly live?: readonly number[];
};

type Measured = {
  readonly event: "measured";
  readonly heap: number;
  readonly resources: Readonly<Record<string, number>>;
};

type Line =
  | Told
  | Ask
  | Measured
  | { readonly event: "ready"; readonly guarantees: Guarantees }
  | { readonly event: "resting" }
  | { readonly event: "left" };

export type Footprint = {
  readonly heap: number;
  readonly sockets: number;
  readonly timers: number;
  readonly files: number;
};

type Order = { readonly say: "rest" | "go" | "measure" | "leave" } | { readonly say: "epoch"; readonly epoch: number };
type Answer = { readonly say: "answer"; readonly number: number; readonly accepted: boolean };

const PROGRAM = resolve(import.meta.dirname, "worker.mjs");
const SAID_MAX = 8000;

/** All that run, so that none outlives this program, whichever way it ends. */
const running = new Set<Member>();
process.on("exit", () => running.forEach((member) => member.signal("SIGKILL")));

/** One process of `worker.mjs` as its driver sees it. */
export class Member {
  readonly client: number;
  guarantees: Guarantees | null = null;
  /** It was told to rest, and nothing of it is under way. */
  resting = false;
  left = false;
  /** Set before it is killed on purpose. */
  killed = false;
  stopped = false;
  exit: string | null = null;
  readonly exited: Promise<void>;
  readonly #process: ChildProcess;
  readonly #guard: ChildProcess;
  #said = "";
  #measured: ((measured: Measured) => void) | null = null;

  constructor(client: number, options: MemberOptions, hear: (told: Told | Ask) => void) {
    this.client = client;
    // In a group of its own: Ctrl-C on a terminal is for the driver, which tells everybody in order.
    this.#process = spawn(process.execPath, ["--expose-gc", PROGRAM, JSON.stringify(options)], {
      stdio: ["pipe", "pipe", "pipe"],
      detached: true,
    });
    // If the driver is killed, a process that is stopped could not notice.
    this.#guard = spawn("sh", ["-c", 'cat > /dev/null; kill -9 "$1" 2> /dev/null', "guard", String(this.pid)], {
      stdio: ["pipe", "ignore", "ignore"],
      detached: true,
    });
    running.add(this);
    this.#process.stdin?.on("error", () => {});
    this.#process.stderr?.on("data", (data: Buffer) => (this.#said = (this.#said + data.toString()).slice(-SAID_MAX)));
    if (this.#process.stdout !== null) {
      createInterface(this.#process.stdout).on("line", (line) => this.#heard(JSON.parse(line) as Line, hear));
    }
    this.exited = new Promise((fulfil) => {
      this.#process.on("close", (code, signal) => {
        this.exit = String(signal ?? code);
        this.#guard.kill("SIGKILL");
        running.delete(this);
        fulfil();
      });
    });
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  /** What it wrote to its standard error. */
  get said(): string {
    return this.#said;
  }

  get alive(): boolean {
    return this.exit === null && !this.killed;
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  say(order: Order | Answer): void {
    if (order.say === "go") this.resting = false;
    this.#process.stdin?.write(`${JSON.stringify(order)}\n`);
  }

  /** When: just before it dies. */
  async kill(): Promise<number> {
    this.killed = true;
    const at = now();
    this.signal("SIGKILL");
    await this.exited;
    return at;
  }

  /** At rest: what it uses. */
  async measure(): Promise<Footprint> {
    const measured = await new Promise<Measured | null>((fulfil) => {
      this.#measured = fulfil;
      void this.exited.then(() => fulfil(null));
      this.say({ say: "measure" });
    });
    if (measured === null) return { heap: 0, sockets: 0, timers: 0, files: 0 };
    const { heap, resources } = measured;
    const sum = (kinds: readonly string[]): number => kinds.reduce((all, kind) => all + (resources[kind] ?? 0), 0);
    return {
      heap,
      sockets: sum(["TCPSocketWrap", "TLSWrap", "TCPWRAP", "TCPConnectWrap"]),
      timers: sum(["Timeout"]),
      files: readdirSync(`/proc/${this.pid}/fd`).length,
    };
  }

  #heard(line: Line, hear: (told: Told | Ask) => void): void {
    if (line.event === "ready") this.guarantees = line.guarantees;
    else if (line.event === "resting") this.resting = true;
    else if (line.event === "left") this.left = true;
    else if (line.event === "measured") this.#measured?.(line);
    else hear(line);
  }
}
