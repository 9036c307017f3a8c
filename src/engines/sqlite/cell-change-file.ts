// Beside the usual files: SQLite does not tell other processes of a change.
import { closeSync, constants, fchmodSync, writeSync } from "node:fs";
import type { Machine } from "./machine.js";
import { type FileId, fileAt, isSameFile, openRegularFile } from "./regular-file.js";

/** One small file that is touched after every change of a cell, and watched by all clients that watch cells. */
export class CellChangeFile {
  readonly #path: string;
  readonly #mode: number;
  readonly #machine: Machine;
  #unwatch: (() => void) | null = null;

  constructor(path: string, mode: number, machine: Machine) {
    this.#path = path;
    this.#mode = mode;
    this.#machine = machine;
  }

  /** Whether the file system tells of changes. Where it does not, watched cells have to be polled. */
  get watched(): boolean {
    return this.#unwatch !== null;
  }

  /** Does nothing where it is watched already. */
  watch(listener: () => void): void {
    if (this.#unwatch !== null) return;
    try {
      const file = this.#create();
      const changed = (): void => {
        if (!this.#hasName(file)) this.close();
        this.watch(listener);
        listener();
      };
      this.#unwatch = this.#machine.watch(this.#path, changed, () => this.close());
    } catch {
      // No rights, no more watches for this user, or something else has the name: cells are polled.
      this.close();
    }
  }

  /** Others touch the file that has the name now. */
  #hasName(file: FileId): boolean {
    try {
      return isSameFile(file, fileAt(this.#path));
    } catch {
      // Deleted, or something else has the name.
      return false;
    }
  }

  #create(): FileId {
    const { file, id, made } = openRegularFile(this.#path, constants.O_WRONLY | constants.O_CREAT, this.#mode);
    try {
      // The rights of the database count, not the umask of whoever comes first.
      if (made) fchmodSync(file, this.#mode);
    } finally {
      closeSync(file);
    }
    return id;
  }

  touch(): void {
    try {
      const { file } = openRegularFile(this.#path, constants.O_WRONLY);
      try {
        writeSync(file, ".", 0);
      } finally {
        closeSync(file);
      }
    } catch {
      // Nobody has ever watched cells, or the file may not be written: they are polled.
    }
  }

  close(): void {
    this.#unwatch?.();
    this.#unwatch = null;
  }
}
