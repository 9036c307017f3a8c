import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, statfsSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type Spawn = {
  readonly program: string;
  readonly args: (folder: string) => readonly string[];
  /** Resolves when the server answers; called again and again until then. */
  readonly ready: () => Promise<void>;
  /** Kept over a restart when given. */
  readonly folder?: string;
  readonly env?: Readonly<Record<string, string>>;
};

const READY_WITHIN_MS = 60_000;

/** A server of ours: its own process, its own data folder, ended by its process id. */
export class Running {
  readonly folder: string;
  readonly #child: ChildProcess;
  readonly #guard: ChildProcess;
  readonly #exited: Promise<void>;
  #over = false;

  private constructor(child: ChildProcess, folder: string) {
    this.#child = child;
    this.folder = folder;
    this.#exited = new Promise((resolve) => {
      const over = (): void => ((this.#over = true), resolve());
      child.once("exit", over);
      // What could not be started never exits.
      child.once("error", () => child.pid === undefined && over());
    });
    // If this process dies, the pipe closes and the guard ends the server: nothing is left behind by a killed test run.
    const script = 'cat > /dev/null; kill -9 "$1" 2> /dev/null; rm -rf "$2"';
    this.#guard = spawn("sh", ["-c", script, "guard", String(child.pid), folder], {
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.#guard.unref();
    (this.#guard.stdin as unknown as { unref?(): void })?.unref?.();
  }

  static async start({ program, args, ready, folder, env }: Spawn): Promise<Running> {
    const home = folder ?? mkdtempSync(join(tmpdir(), "holdfast-"));
    const child = spawn(program, args(home), { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
    let said = "";
    const note = (text: Buffer): void => void (said = (said + text.toString()).slice(-4000));
    child.stdout?.on("data", note);
    child.stderr?.on("data", note);
    child.on("error", (error) => note(Buffer.from(error.message)));
    const running = new Running(child, home);
    const until = Date.now() + READY_WITHIN_MS;
    for (;;) {
      try {
        await ready();
        return running;
      } catch (cause) {
        if (running.#over || Date.now() > until) {
          await running.stop();
          throw new Error(`${program} did not start:\n${said}`, { cause });
        }
        await pause(30);
      }
    }
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** SIGSTOP and SIGCONT, or an end without a goodbye. */
  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Ends the process and leaves its folder, for a restart. */
  async end(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    if (!this.#over) this.#child.kill(signal);
    await this.#exited;
    this.#guard.kill("SIGKILL");
  }

  async stop(): Promise<void> {
    await this.end();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Below those that systems give to outgoing connections: what is free there now is not taken by one a moment later. */
const PORTS = { from: 10_000, to: 32_000 } as const;

/** Ports that nobody listens on now. Drawn, so that tests which look for some at the same time find others. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = await Promise.all(Array.from({ length: count }, listenSomewhere));
  const ports = servers.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

async function listenSomewhere(): Promise<Server> {
  for (let tries = 1; ; tries += 1) {
    const server = createServer();
    try {
      await once(server.listen(randomInt(PORTS.from, PORTS.to), "127.0.0.1"), "listening");
      return server;
    } catch (error) {
      if (tries === 50) throw error;
    }
  }
}

/** Wait until something holds, for a bounded time. */
export async function until(what: string, holds: () => Promise<boolean> | boolean, withinMs = 45_000): Promise<void> {
  const end = Date.now() + withinMs;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`not within ${withinMs} ms: ${what}`);
    await pause(20);
  }
}

/** Where a server that waits for the disk at each commit does not wait for other programs' disk work: memory, if there is room. */
export function quickFolder(): string {
  try {
    const { bavail, bsize } = statfsSync("/dev/shm");
    return bavail * bsize > 2 ** 31 ? "/dev/shm" : tmpdir();
  } catch {
    return tmpdir();
  }
}
