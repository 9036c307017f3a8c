import { type ChildProcess, spawn } from "node:child_process";

/**
 * A second process, whose life guards the claim: when this one is gone, however it went, its end of the pipe closes, and the
 * guard ends the command's process group before it ends itself. A store that can see processes waits for that; in the
 * others the lease is still running.
 *
 * A shell, because a second Node.js would take as long to start as the first. It lets no signal end it (a service manager
 * sends SIGTERM to all processes at once, and the command may take its time to stop), and what it has killed it waits for, at
 * most a second: the dead whom nobody buries would keep it for ever.
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

export class Guard {
  /** Resolves when it has ended, which it should not do by itself. */
  readonly ended: Promise<void>;
  readonly #process: ChildProcess;

  constructor() {
    const env = { PATH: process.env.PATH ?? "/usr/bin:/bin" };
    this.#process = spawn("/bin/sh", ["-c", SCRIPT, "holdfast-guard"], {
      // A session of its own: no terminal's signals reach it.
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
      cwd: "/",
      env,
    });
    // A guard that is gone is told by its end.
    this.#process.stdin?.on("error", () => {});
    this.ended = new Promise((resolve) => {
      this.#process.once("exit", () => resolve());
      this.#process.once("error", () => resolve());
    });
  }

  get pid(): number {
    const { pid } = this.#process;
    if (pid === undefined) throw new Error("/bin/sh could not be started, which guards the command");
    return pid;
  }

  /** Resolves when the guard cannot miss it any more, even if this process ends the moment after. */
  protect(group: number): Promise<void> {
    return this.#say(String(group));
  }

  /** The command has ended: its number may be another's soon. */
  rest(): Promise<void> {
    return this.#say("none");
  }

  /** There is nothing to guard any more. */
  async dismiss(): Promise<void> {
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
