import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { onTestFinished, vi } from "vitest";
import { connect, type Locks } from "../../../dist/index.js";
import { until } from "../../servers/process.js";

// These tests start many processes, and each start takes seconds where others keep the machine busy.
const TIMEOUT_MS = 120_000;
vi.setConfig({ testTimeout: TIMEOUT_MS });

export const MAIN = resolve(import.meta.dirname, "../../../dist/cli/main.js");

/** A folder that ends with the test. */
function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "holdfast-cli-"));
  // What a command left running may still be writing when its test is over.
  onTestFinished(() => rmSync(path, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  return path;
}

export type Result = { readonly code: number | null; readonly signal: NodeJS.Signals | null; out: string; err: string };

/** A store of its own, a folder to work in, and `holdfast` as a process of its own. */
export class World {
  readonly folder = folder();
  readonly url: string;
  readonly env: NodeJS.ProcessEnv;
  /** For a shell's line. */
  readonly program = `${process.execPath} ${MAIN}`;

  constructor(url?: string) {
    this.url = url ?? `sqlite:${join(this.folder, "locks.db")}`;
    this.env = { ...process.env, HOLDFAST_URL: this.url };
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /** What a file says; empty while it is not there. */
  read(name: string): string {
    try {
      return readFileSync(this.path(name), "utf8");
    } catch {
      return "";
    }
  }

  /** Until a command has written something. */
  async says(name: string, what: RegExp = /\S/): Promise<string> {
    await until(`${name} says ${what}`, () => what.test(this.read(name)), TIMEOUT_MS / 2);
    return this.read(name).trim();
  }

  start(args: readonly string[], env: NodeJS.ProcessEnv = {}): Running {
    return this.startIn([process.execPath, MAIN, ...args], env);
  }

  /** Any program, in this world's folder and with its store. */
  startIn(words: readonly string[], env: NodeJS.ProcessEnv = {}): Running {
    return new Running(words, { ...this.env, ...env }, this.folder);
  }

  /** To its end. */
  async holdfast(...args: readonly string[]): Promise<Result> {
    return this.start(args).ended;
  }

  async locks(): Promise<Locks> {
    const locks = await connect(this.url);
    onTestFinished(() => locks.close());
    return locks;
  }
}

/** A world whose PATH knows `holdfast`; what goes on until Ctrl-C ends by itself. */
export function installed(url?: string): { world: World; env: NodeJS.ProcessEnv } {
  const world = new World(url);
  const bin = world.path("bin");
  mkdirSync(bin);
  const run = `"${process.execPath}" "${MAIN}" "$@"`;
  const script = `#!/bin/sh\ncase "$1 $2" in "watch "*|"ui "*|"doctor --watch") exec timeout --foreground --preserve-status -s INT 6 ${run};; esac\nexec ${run}\n`;
  writeFileSync(join(bin, "holdfast"), script, { mode: 0o755 });
  return { world, env: { PATH: `${bin}:${dirname(process.execPath)}:${process.env.PATH}` } };
}

export class Running {
  readonly process: ChildProcess;
  readonly ended: Promise<Result>;
  out = "";
  err = "";

  constructor([program = "", ...args]: readonly string[], env: NodeJS.ProcessEnv, cwd: string) {
    this.process = spawn(program, args, { env, cwd, stdio: ["pipe", "pipe", "pipe"] });
    this.process.stdin?.on("error", () => {});
    this.process.stdout?.on("data", (chunk: Buffer) => (this.out += chunk.toString()));
    this.process.stderr?.on("data", (chunk: Buffer) => (this.err += chunk.toString()));
    this.ended = new Promise((fulfil, reject) => {
      this.process.on("error", reject);
      this.process.on("close", (code, signal) => fulfil({ code, signal, out: this.out, err: this.err }));
    });
    onTestFinished(() => void this.process.kill("SIGKILL"));
  }

  get pid(): number {
    return this.process.pid ?? 0;
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.pid, signal);
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // The dead whom nobody has buried yet.
    return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

export function isStopped(pid: number): boolean {
  return /^\d+ \(.*\) T/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
}

/** The processes that this one started. */
export function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.trim().split(" ").filter(Boolean).map(Number);
}
