// Beside the usual files: SQLite has no push, so processes wake each other through small files.
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
import type { Push } from "./lock-tables.js";
import type { Machine } from "./machine.js";
import { fileAt, isSameFile, openRegularFile } from "./regular-file.js";

type Message = Push["event"];

export type MailEvents = {
  readonly message: (message: Message) => void;
  /** A message may have been lost: read the store. */
  readonly missed: () => void;
  /** The file system does not tell of messages any more: poll. */
  readonly unwatched: () => void;
  readonly warning: (message: string) => void;
};

/** A mailbox that has grown this large is emptied when it has been read. */
const TRUNCATE_BYTES = 256 * 1024;
/** A mailbox of another PID namespace, whose process cannot be checked, is kept this long after its last message. */
const FOREIGN_KEEP_MS = 2 * 24 * 60 * 60 * 1000;
const ADDRESS = /^(\d+|[a-z0-9]+)-(\d+)-(\d+)-[\w-]{22}$/;

/**
 * How the processes of one machine wake each other: a file for each client, to which others append a line after their
 * commit. The file system tells the owner; where it cannot (a user may watch 128 times on Linux), the owner polls. A message
 * is a hint: the store knows everything that a lost one said. Whatever can lose one (a mailbox that was deleted, replaced or
 * emptied, half a message, a full disk) therefore ends in `missed`.
 */
export class Mailbox {
  /** Contains the process that it belongs to, so that mailboxes of ended processes can be removed. */
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
  /** Emitted once, not at each attempt. */
  #lastWarning = "";
  #readTo = 0;
  /** The beginning of a line whose end is not there yet. */
  #rest = "";

  constructor(database: string, machine: Machine, chance: Chance, events: MailEvents) {
    const [namespace, pid, start] = machine.process === "" ? ["0", "0", "0"] : machine.process.split(" ");
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

  /** Whether the file system tells of new messages. */
  get watched(): boolean {
    return this.#unwatch !== null;
  }

  open(): void {
    try {
      this.#makeFolder();
      const { file } = openRegularFile(this.#path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, this.#mode);
      this.#file = file;
      this.#readTo = 0;
      this.#rest = "";
      // The rights of the database count, not the umask of whoever comes first.
      fchmodSync(file, this.#mode);
      this.#lastWarning = "";
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

  /** Where a group shares the database, all mailboxes get that group: its users can then write to each other. */
  #shareFolder(mode: number): void {
    const shared = (mode & 0o020) !== 0;
    try {
      if (shared && this.#group !== null) chownSync(this.#folder, -1, this.#group);
    } catch {
      // Not a member of it: the mailboxes get the group of whoever made the folder.
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

  /** Before a poll: the limits may not be reached any more, the disk not full any more. */
  repair(): void {
    if (this.#file === null) {
      this.open();
      if (this.#file !== null) this.#events.missed();
    } else if (this.#unwatch === null) {
      this.#watch();
    }
  }

  /** Where somebody deleted, replaced or emptied the mailbox: make another, and report that messages may be lost. */
  checkThere(): void {
    if (this.#file === null) return;
    const own = fstatSync(this.#file, { bigint: true });
    if (isSameFile(own, fileAt(this.#path))) {
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
    // The rest of a message may never come: its writer was killed, or had no space.
    let missed = this.#rest !== "";
    if (this.#readTo > TRUNCATE_BYTES) {
      ftruncateSync(this.#file, 0);
      this.#readTo = 0;
      this.#rest = "";
      // A message that came between the last read and the cut is gone.
      missed = true;
    }
    for (const line of lines) this.#deliver(line);
    if (missed) this.#events.missed();
    return true;
  }

  #deliver(line: string): void {
    const message = messageOf(Buffer.from(line, "latin1").toString("utf8"));
    if (message === undefined) this.#events.missed();
    else this.#events.message(message);
  }

  /** After the commit. A client that has closed has no mailbox, and needs no message. */
  send({ client, event }: Push): void {
    if (!ADDRESS.test(client)) return;
    const path = join(this.#folder, client);
    try {
      const { file } = openRegularFile(path, constants.O_WRONLY | constants.O_APPEND);
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
      // The disk is full. An owner whose mailbox disappears makes another, and reads the store.
      remove(path);
      throw error;
    }
  }

  /** Removes the mailboxes of dead clients; returns how many. */
  sweep(wallMs: number): number {
    let count = 0;
    try {
      for (const address of this.#mailboxes()) {
        if (this.#isAbandoned(address, wallMs)) count += remove(join(this.#folder, address));
      }
    } catch (error) {
      this.#warn(`mailboxes of dead clients are still there: ${(error as Error).message}`);
    }
    return count;
  }

  /** Of a process that has ended, or of one in another PID namespace to which nobody wrote for long. */
  #isAbandoned(address: string, wallMs: number): boolean {
    const [, namespace, pid, start] = ADDRESS.exec(address) ?? [];
    if (namespace === undefined || address === this.address) return false;
    const process = `${namespace} ${pid} ${start}`;
    if (this.#machine.process.startsWith(`${namespace} `)) return this.#machine.hasEnded(process, true);
    const stat = fileAt(join(this.#folder, address));
    return stat !== undefined && Number(stat.mtimeMs) < wallMs - FOREIGN_KEEP_MS;
  }

  #mailboxes(): string[] {
    try {
      return readdirSync(this.#folder);
    } catch (error) {
      if (["ENOENT", "ENOTDIR"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
      throw error;
    }
  }

  #warn(message: string): void {
    if (message !== this.#lastWarning) this.#events.warning(message);
    this.#lastWarning = message;
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
    // Removed by somebody else, not ours to remove, or a folder: the next sweep tries again.
    return 0;
  }
}

/** Undefined for a line that is not a message: cut short, or not from us. */
function messageOf(line: string): Message | undefined {
  try {
    const message = JSON.parse(line) as Partial<Message> | null;
    const known = message?.kind === "granted" ? Number.isSafeInteger(message.token) : message?.kind === "lost";
    return known && typeof message?.name === "string" && typeof message.id === "string"
      ? (message as Message)
      : undefined;
  } catch {
    return undefined;
  }
}
