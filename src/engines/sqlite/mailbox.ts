import {
  chmodSync,
  closeSync,
  constants,
  type FSWatcher,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  statSync,
  unlinkSync,
  watch,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import type { Chance } from "../../core/clock.js";
import type { Push } from "./ledger.js";
import type { Machine } from "./machine.js";

export type Letter = Push["event"];

export type MailEvents = {
  readonly letter: (letter: Letter) => void;
  /** Something may have been lost: look into the store. */
  readonly missed: () => void;
  readonly warning: (message: string) => void;
};

/** A mailbox that has grown this large is emptied when it has been read. */
const TRUNCATE_BYTES = 256 * 1024;
/** A mailbox of another PID namespace, whose owner we cannot judge, is left alone this long after its last letter. */
const FOREIGN_KEEP_MS = 2 * 24 * 60 * 60 * 1000;
const ADDRESS = /^(\d+|[a-z0-9]+)-(\d+)-(\d+)-[\w-]{22}$/;

/**
 * How the processes of one machine wake each other: a file for each client, to which others append a line after their
 * commit. The file system tells the owner; where it cannot (a user may watch 128 times on Linux), the owner looks by
 * itself. A letter is a hint: the store knows everything that a lost one said.
 */
export class Mailbox {
  /** Who this is, for others: also says which process it belongs to, so that the boxes of the dead can be thrown away. */
  readonly address: string;
  readonly #folder: string;
  readonly #path: string;
  readonly #mode: number;
  readonly #machine: Machine;
  readonly #events: MailEvents;
  readonly #buffer = Buffer.alloc(64 * 1024);
  #file: number | null = null;
  #watcher: FSWatcher | null = null;
  #readTo = 0;
  /** The beginning of a line whose end is not there yet. */
  #rest = "";

  constructor(database: string, machine: Machine, chance: Chance, events: MailEvents) {
    const [namespace, pid, start] = machine.guard === "" ? ["0", "0", "0"] : machine.guard.split(" ");
    this.address = `${namespace}-${pid}-${start}-${chance.id()}`;
    this.#folder = `${database}-mail`;
    this.#path = join(this.#folder, this.address);
    this.#machine = machine;
    this.#events = events;
    // Whoever may use the locks may wake their owners, and nobody else.
    this.#mode = (statSync(database, { throwIfNoEntry: false })?.mode ?? 0o600) & 0o666;
  }

  /** Does the file system tell us of new letters? */
  get watched(): boolean {
    return this.#watcher !== null;
  }

  open(): void {
    try {
      this.#makeFolder();
      this.#file = openSync(this.#path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, this.#mode);
      // The rights of the database count, not the umask of whoever comes first.
      chmodSync(this.#path, this.#mode);
      this.#readTo = 0;
    } catch (error) {
      this.#events.warning(`no mailbox in ${this.#folder}, so waiting claims poll: ${(error as Error).message}`);
      return;
    }
    this.#watch();
  }

  #makeFolder(): void {
    // Who may read may also enter.
    const mode = this.#mode | ((this.#mode & 0o444) >> 2);
    try {
      mkdirSync(this.#folder, { mode });
      chmodSync(this.#folder, mode);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }

  #watch(): void {
    try {
      this.#watcher = watch(this.#path, { persistent: false }, () => {
        // An event without news: somebody touched the file, or deleted it.
        if (!this.read()) this.checkThere();
      });
      this.#watcher.on("error", (error) => this.#unwatch(error));
    } catch (error) {
      this.#unwatch(error as Error);
    }
  }

  /** EMFILE, ENOSPC: the user's limits. Polling costs a little and loses nothing, so it is not worth a warning. */
  #unwatch(_error: Error): void {
    this.#watcher?.close();
    this.#watcher = null;
  }

  /** Somebody deleted our box: make another, and look for what went into the old one. */
  checkThere(): void {
    if (this.#file === null || statSync(this.#path, { throwIfNoEntry: false }) !== undefined) return;
    this.close();
    this.open();
    this.#events.missed();
  }

  /** Read what has come; cheap when there is nothing. True when there was something. */
  read(): boolean {
    if (this.#file === null) return false;
    const text: string[] = [this.#rest];
    for (let bytes = -1; bytes !== 0; ) {
      bytes = readSync(this.#file, this.#buffer, 0, this.#buffer.length, this.#readTo);
      this.#readTo += bytes;
      // One byte per character: a character that the end of the buffer cut in two is put together below.
      if (bytes > 0) text.push(this.#buffer.toString("latin1", 0, bytes));
    }
    if (text.length === 1) return false;
    const lines = text.join("").split("\n");
    this.#rest = lines.pop() ?? "";
    const emptied = this.#readTo > TRUNCATE_BYTES && this.#rest === "";
    if (emptied) {
      ftruncateSync(this.#file, 0);
      this.#readTo = 0;
    }
    for (const line of lines) this.#open(line);
    // A letter that came between the last read and the cut is gone.
    if (emptied) this.#events.missed();
    return true;
  }

  #open(line: string): void {
    const letter = letterOf(Buffer.from(line, "latin1").toString("utf8"));
    if (letter === undefined) this.#events.missed();
    else this.#events.letter(letter);
  }

  /** After the commit. Nobody is at home any more: nobody needs to know. */
  post({ client, event }: Push): void {
    if (!ADDRESS.test(client)) return;
    try {
      const flags = constants.O_WRONLY | constants.O_APPEND | (constants.O_NOFOLLOW ?? 0);
      const file = openSync(join(this.#folder, client), flags);
      try {
        // One write of a short line at the end of a file is whole, whoever else writes.
        writeSync(file, `${JSON.stringify(event)}\n`);
      } finally {
        closeSync(file);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      this.#events.warning(`a client could not be woken and has to poll: ${(error as Error).message}`);
    }
  }

  /** Throws the boxes of dead clients away; returns how many. */
  sweep(wallMs: number): number {
    let count = 0;
    for (const box of this.#boxes()) {
      const [, namespace, pid, start] = ADDRESS.exec(box) ?? [];
      const path = join(this.#folder, box);
      const stat = statSync(path, { throwIfNoEntry: false });
      if (namespace === undefined || box === this.address || stat === undefined) continue;
      const gone = this.#machine.gone(`${namespace} ${pid} ${start}`, true);
      if (gone || stat.mtimeMs < wallMs - FOREIGN_KEEP_MS) count += remove(path);
    }
    return count;
  }

  #boxes(): string[] {
    try {
      return readdirSync(this.#folder);
    } catch (error) {
      if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
      throw error;
    }
  }

  close(): void {
    this.#watcher?.close();
    this.#watcher = null;
    if (this.#file === null) return;
    closeSync(this.#file);
    this.#file = null;
    remove(this.#path);
  }
}

function remove(path: string): number {
  try {
    unlinkSync(path);
    return 1;
  } catch (error) {
    // Somebody else was faster, or it is not ours to remove: the next sweep will see.
    if (["ENOENT", "EACCES", "EPERM"].includes((error as NodeJS.ErrnoException).code ?? "")) return 0;
    throw error;
  }
}

/** Undefined for a line that is not a letter: cut short, or not from us. */
function letterOf(line: string): Letter | undefined {
  try {
    const letter = JSON.parse(line) as Partial<Letter> | null;
    const known = letter?.kind === "granted" ? Number.isSafeInteger(letter.token) : letter?.kind === "lost";
    return known && typeof letter?.name === "string" && typeof letter.id === "string" ? (letter as Letter) : undefined;
  } catch {
    return undefined;
  }
}
