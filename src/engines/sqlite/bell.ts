import { closeSync, constants, fchmodSync, writeSync } from "node:fs";
import type { Machine } from "./machine.js";
import { fileAt, isSame, openRegular, type Which } from "./regular.js";

/** One small file that is touched after every change of a cell, and watched by all who watch cells. */
export class Bell {
  readonly #path: string;
  readonly #mode: number;
  readonly #machine: Machine;
  #unwatch: (() => void) | null = null;

  constructor(path: string, mode: number, machine: Machine) {
    this.#path = path;
    this.#mode = mode;
    this.#machine = machine;
  }

  /** Is it watched? Where it cannot be, whoever wants to know has to look by itself. */
  get heard(): boolean {
    return this.#unwatch !== null;
  }

  /** Does nothing where it is heard already. */
  hear(listener: () => void): void {
    if (this.#unwatch !== null) return;
    try {
      const file = this.#make();
      const changed = (): void => {
        if (!this.#isThere(file)) this.close();
        this.hear(listener);
        listener();
      };
      this.#unwatch = this.#machine.watch(this.#path, changed, () => this.close());
    } catch {
      // No rights, no more watches for this user, or something else has the name: there is the poll.
      this.close();
    }
  }

  /** Others ring the file that has the name now. */
  #isThere(file: Which): boolean {
    try {
      return isSame(file, fileAt(this.#path));
    } catch {
      return false;
    }
  }

  #make(): Which {
    const { file, which, made } = openRegular(this.#path, constants.O_WRONLY | constants.O_CREAT, this.#mode);
    try {
      // The rights of the database count, not the umask of whoever comes first.
      if (made) fchmodSync(file, this.#mode);
    } finally {
      closeSync(file);
    }
    return which;
  }

  ring(): void {
    try {
      const { file } = openRegular(this.#path, constants.O_WRONLY);
      try {
        writeSync(file, ".", 0);
      } finally {
        closeSync(file);
      }
    } catch {
      // Nobody has ever listened, or it is not ours to touch: there is the poll.
    }
  }

  close(): void {
    this.#unwatch?.();
    this.#unwatch = null;
  }
}
