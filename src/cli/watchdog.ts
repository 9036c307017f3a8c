import { type ChildProcess, spawn } from "node:child_process";

/**
 * A second process, with which the claim ends: when this one ends, in whatever way, its end of the pipe closes, and the
 * watchdog kills the command's process group before it ends itself. A store that can see processes waits for that; in the
 * others the lease is still running.
 *
 * A shell, because a second Node.js would take as long to start as the first. It lets no signal end it (a service manager
 * sends SIGTERM to all processes at once, and the command may take its time to stop), and it waits at most a second
 * for what it has killed: zombies would keep it for ever.
 */
const SCRIPT = `trap '' HUP INT QUIT TERM
group=
while read -r word; do
  case $word in
    over) exit 0 ;;
    none) group= ;;
    *) group=$word ;;
  esac
done
[ -n "$group" ] || exit 0
kill -s KILL -- "-$group" 2> /dev/null
tries=0
while [ $tries -lt 100 ] && kill -s 0 -- "-$group" 2> /dev/null; do sleep 0.01; tries=$((tries + 1)); done`;

export class Watchdog {
  /** Resolves when it has ended, which it should not do by itself. */
  readonly ended: Promise<void>;
  readonly #process: ChildProcess;

  constructor() {
    const env = { PATH: process.env.PATH ?? "/usr/bin:/bin" };
    this.#process = spawn("/bin/sh", ["-c", SCRIPT, "holdfast-watchdog"], {
      // A session of its own: no terminal's signals reach it.
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
      cwd: "/",
      env,
    });
    // That the watchdog was killed is told by `ended`.
    this.#process.stdin?.on("error", () => {});
    this.ended = new Promise((resolve) => {
      this.#process.once("exit", () => resolve());
      this.#process.once("error", () => resolve());
    });
  }

  get pid(): number {
    const { pid } = this.#process;
    if (pid === undefined) throw new Error("/bin/sh could not be started, which watches over the command");
    return pid;
  }

  /** Kill this process group when this process ends. Resolves when the watchdog has been told, even if this process ends right after. */
  watch(group: number): Promise<void> {
    return this.#say(String(group));
  }

  /** The command has ended: its number may be another's soon. */
  unwatch(): Promise<void> {
    return this.#say("none");
  }

  /** There is nothing to watch any more. */
  async stop(): Promise<void> {
    await this.#say("over");
    this.#process.stdin?.end();
    this.#process.unref();
  }

  #say(word: string): Promise<void> {
    return new Promise((resolve) => {
      const { stdin } = this.#process;
      if (stdin?.writable) stdin.write(`${word}\n`, () => resolve());
      else resolve();
    });
  }
}
