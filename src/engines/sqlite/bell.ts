import { closeSync, constants, type FSWatcher, openSync, watch, writeSync } from "node:fs";

/** One small file that is touched after every change of a cell, and watched by all who watch cells. */
export class Bell {
  readonly #path: string;
  readonly #mode: number;
  #watcher: FSWatcher | null = null;

  constructor(path: string, mode: number) {
    this.#path = path;
    this.#mode = mode;
  }

  /** Is it watched? Where it cannot be, whoever wants to know has to look by itself. */
  get heard(): boolean {
    return this.#watcher !== null;
  }

  hear(listener: () => void): void {
    if (this.#watcher !== null) return;
    try {
      closeSync(openSync(this.#path, constants.O_WRONLY | constants.O_CREAT, this.#mode));
      this.#watcher = watch(this.#path, { persistent: false }, listener);
      this.#watcher.on("error", () => this.close());
    } catch {
      // No rights, or no more watches for this user: there is the poll.
      this.close();
    }
  }

  ring(): void {
    try {
      const file = openSync(this.#path, constants.O_WRONLY | (constants.O_NOFOLLOW ?? 0));
      writeSync(file, ".", 0);
      closeSync(file);
    } catch {
      // Nobody has ever listened, or it is not ours to touch: there is the poll.
    }
  }

  close(): void {
    this.#watcher?.close();
    this.#watcher = null;
  }
}
