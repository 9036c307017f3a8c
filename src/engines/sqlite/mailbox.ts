import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  readdirSync,
  readSync,
  statSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import type { Chance } from "../../core/clock.js";
import type { Push } from "./ledger.js";
import type { Machine } from "./machine.js";
import { fileAt, isSame, openRegular } from "./regular.js";

export type Letter = Push["event"];

export type MailEvents = {
  readonly letter: (letter: Letter) => void;
  /** Something may have been lost: look into the store. */
  readonly missed: () => void;
  /** The file system does not tell any more: somebody has to look. */
  readonly unwatched: () => void;
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
 * itself. A letter is a hint: the store knows everything that a lost one said. Whatever can lose one (a box that was
 * deleted, replaced or emptied, half a letter, a full disk) therefore ends in `missed`.
 */
export class Mailbox {
  /** Who this is, for others: also says which process it belongs to, so that the boxes of the dead can be thrown away. */
  readonly address: string;
  readonly #folder: string;
  readonly #path: string;
  readonly #mode: number;
  readonly #group: number | null;
  readonly #machine: Machine;
  readonly #events: MailEvents;
  readonly #buffer = Buffer.alloc(64 * 1024);
  #file: number | null = null;
  #unwatch: (() => void) | null = null;
  /** Said once, not at each attempt. */
  #said = "";
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
    const stat = statSync(database, { throwIfNoEntry: false });
    // Whoever may use the locks may wake their owners, and nobody else.
    this.#mode = (stat?.mode ?? 0o600) & 0o666;
    this.#group = stat?.gid ?? null;
  }

  /** Does the file system tell us of new letters? */
  get watched(): boolean {
    return this.#unwatch !== null;
  }

  open(): void {
    try {
      this.#makeFolder();
      const { file } = openRegular(this.#path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, this.#mode);
      this.#file = file;
      this.#readTo = 0;
      this.#rest = "";
      // The rights of the database count, not the umask of whoever comes first.
      fchmodSync(file, this.#mode);
      this.#said = "";
    } catch (error) {
      const polls = "so waiting claims poll, and a forced release is noticed at the next renewal";
      this.#warn(`no mailbox in ${this.#folder}, ${polls}: ${(error as Error).message}`);
      if (this.#file === null) return;
    }
    this.#watch();
  }

  #makeFolder(): void {
    // Who may read may also enter.
    const mode = this.#mode | ((this.#mode & 0o444) >> 2);
    try {
      mkdirSync(this.#folder, { mode });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") return;
      throw error;
    }
    this.#shareFolder(mode);
  }

  /** Where a group shares the database, all boxes get that group: its users can then write to each other. */
  #shareFolder(mode: number): void {
    const shared = (mode & 0o020) !== 0;
    try {
      if (shared && this.#group !== null) chownSync(this.#folder, -1, this.#group);
    } catch {
      // Not a member of it: the boxes get the group of whoever made the folder.
    }
    chmodSync(this.#folder, shared ? mode | 0o2000 : mode);
  }

  #watch(): void {
    try {
      this.#unwatch = this.#machine.watch(
        this.#path,
        () => this.#changed(),
        () => this.#endWatch(),
      );
    } catch {
      this.#endWatch();
    }
  }

  /** EMFILE, ENOSPC: the user's limits. Polling costs a little and loses nothing, so it is not worth a warning. */
  #endWatch(): void {
    this.#unwatch?.();
    this.#unwatch = null;
    this.#events.unwatched();
  }

  #changed(): void {
    try {
      // An event without news: somebody touched the file, or deleted it.
      if (!this.read()) this.checkThere();
    } catch (error) {
      this.#warn(`reading ${this.#path}: ${(error as Error).message}`);
    }
  }

  /** For whoever looks by itself, before it reads: the limits may not be reached any more, the disk not full. */
  mend(): void {
    if (this.#file === null) {
      this.open();
      if (this.#file !== null) this.#events.missed();
    } else if (this.#unwatch === null) {
      this.#watch();
    }
  }

  /** Somebody deleted, replaced or emptied our box: have one again, and look for what went into the old one. */
  checkThere(): void {
    if (this.#file === null) return;
    const own = fstatSync(this.#file, { bigint: true });
    if (isSame(own, fileAt(this.#path))) {
      if (own.size >= this.#readTo) return;
      this.#readTo = 0;
      this.#rest = "";
      this.read();
    } else {
      this.close();
      this.open();
    }
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
    // The rest of a letter may never come: its writer was killed, or had no space.
    let missed = this.#rest !== "";
    if (this.#readTo > TRUNCATE_BYTES) {
      ftruncateSync(this.#file, 0);
      this.#readTo = 0;
      this.#rest = "";
      // A letter that came between the last read and the cut is gone.
      missed = true;
    }
    for (const line of lines) this.#open(line);
    if (missed) this.#events.missed();
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
    const path = join(this.#folder, client);
    try {
      const { file } = openRegular(path, constants.O_WRONLY | constants.O_APPEND);
      try {
        this.#append(file, path, Buffer.from(`${JSON.stringify(event)}\n`));
      } finally {
        closeSync(file);
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      this.#warn(`a client could not be woken and has to poll: ${(error as Error).message}`);
    }
  }

  /** One write of a short line at the end of a file is whole, whoever else writes. */
  #append(file: number, path: string, line: Buffer): void {
    try {
      const bytes = writeSync(file, line);
      if (bytes < line.length) throw new Error(`only ${bytes} of ${line.length} bytes were written to ${path}`);
    } catch (error) {
      // The disk is full. An owner whose box disappears makes another, and asks the store.
      remove(path);
      throw error;
    }
  }

  /** Throws the boxes of dead clients away; returns how many. */
  sweep(wallMs: number): number {
    let count = 0;
    try {
      for (const box of this.#boxes()) if (this.#isLeft(box, wallMs)) count += remove(join(this.#folder, box));
    } catch (error) {
      this.#warn(`mailboxes of dead clients are still there: ${(error as Error).message}`);
    }
    return count;
  }

  /** Left behind by a process that is gone, or by one of another PID namespace that nobody wrote to for long. */
  #isLeft(box: string, wallMs: number): boolean {
    const [, namespace, pid, start] = ADDRESS.exec(box) ?? [];
    if (namespace === undefined || box === this.address) return false;
    const guard = `${namespace} ${pid} ${start}`;
    if (this.#machine.guard.startsWith(`${namespace} `)) return this.#machine.gone(guard, true);
    const stat = fileAt(join(this.#folder, box));
    return stat !== undefined && Number(stat.mtimeMs) < wallMs - FOREIGN_KEEP_MS;
  }

  #boxes(): string[] {
    try {
      return readdirSync(this.#folder);
    } catch (error) {
      if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
      throw error;
    }
  }

  #warn(message: string): void {
    if (message !== this.#said) this.#events.warning(message);
    this.#said = message;
  }

  close(): void {
    this.#unwatch?.();
    this.#unwatch = null;
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
  } catch {
    // Somebody else was faster, it is not ours to remove, or it is a folder: the next sweep will see.
    return 0;
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
