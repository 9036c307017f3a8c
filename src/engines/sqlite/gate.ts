import { statSync } from "node:fs";
import type { Chance, Clock } from "../../core/clock.js";
import { ClosedError, EngineRefusedError, EngineUnavailableError } from "../../core/errors.js";
import { failureOf, type SqliteDatabase } from "./client.js";

type Job = { attempt(): boolean; fail(error: unknown): void };

/**
 * Both are run by `exec`, which leaves nothing behind when it fails, and only once they have succeeded prepared statements
 * run, which cannot be busy then. A prepared statement that finds the file busy stays in progress in libsql until it is
 * collected, and keeps an old snapshot open, from which nothing can be written (tursodatabase/libsql-js#237).
 */
const WRITE = "BEGIN IMMEDIATE";
const READ = "BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1";

/** Longer than any queue of healthy writers, and a little less than the core waits for a call. */
const BUSY_MAX_MS = 4_500;
const OPEN_MAX_MS = 15_000;
/** The first tries follow at once, in the next turns of the event loop: a writer is done within a fraction of a millisecond. */
const EAGER_TRIES = 3;
/** Then with growing pauses: hundreds of processes that all ask every millisecond would leave no time for the one that writes. */
const PAUSE_MAX_MS = 250;
/** Jobs run in one turn of the event loop; then others have their turn. */
const JOBS_PER_TURN = 32;
/** How often it is checked that the path still leads to the file we have open. */
const FILE_CHECK_MS = 100;

/**
 * The only way to a transaction: begins it, runs a step that never waits, commits it. When another process is writing
 * the step is tried again later, in order, without blocking the event loop; nobody is shown that it was busy.
 */
export class Gate {
  readonly #database: SqliteDatabase;
  readonly #path: string;
  readonly #clock: Clock;
  readonly #chance: Chance;
  readonly #inode: string | null;
  readonly #queue: Job[] = [];
  #limitMs = BUSY_MAX_MS;
  #tries = 0;
  /** Cancels the next try; null when none is due. */
  #retry: (() => void) | null = null;
  #checkAt = 0;
  #closed = false;

  constructor(database: SqliteDatabase, path: string, clock: Clock, chance: Chance) {
    this.#database = database;
    this.#path = path;
    this.#clock = clock;
    this.#chance = chance;
    this.#inode = inodeOf(path);
  }

  /** Runs `step` in one immediate transaction, then `after` with what it answered, before anything else can happen. */
  run<T>(doing: string, step: () => T, after: (answer: T) => void = () => {}): Promise<T> {
    return this.#enqueue(doing, () => {
      const answer = this.#transaction(WRITE, step);
      after(answer);
      return answer;
    });
  }

  /** Runs `step`, which only reads, on one snapshot. Does not wait for writers. */
  read<T>(doing: string, step: () => T): Promise<T> {
    return this.#enqueue(doing, () => this.#transaction(READ, step));
  }

  /** The same, now or not at all: throws when the file is busy. */
  peek<T>(step: () => T): T {
    return this.#transaction(READ, step);
  }

  /** Runs a statement that is no transaction of ours and may find the file busy. */
  exec(doing: string, sql: string): Promise<void> {
    return this.#enqueue(doing, () => void this.#database.exec(sql));
  }

  /** Nobody limits how long opening takes: many may be creating the file at once. */
  async opening<T>(open: () => Promise<T>): Promise<T> {
    this.#limitMs = OPEN_MAX_MS;
    try {
      return await open();
    } finally {
      this.#limitMs = BUSY_MAX_MS;
    }
  }

  #enqueue<T>(doing: string, attempt: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new ClosedError(doing));
      const limitMs = this.#limitMs;
      const until = this.#clock.now() + limitMs;
      const job: Job = {
        fail: reject,
        /** False: busy, try again. */
        attempt: () => {
          try {
            resolve(this.#inRoom(attempt));
            return true;
          } catch (error) {
            const busy = failureOf(error) === "busy";
            if (busy && this.#clock.now() < until) return false;
            reject(busy ? this.#stuck(doing, limitMs, error) : this.#explain(doing, error));
            return true;
          }
        },
      };
      // In order: whoever came before and found it busy goes first.
      if (this.#queue.length === 0 && job.attempt()) return;
      this.#queue.push(job);
      if (this.#retry === null) this.#later();
    });
  }

  /**
   * A disk that is full has no room for a longer log. What the log says goes into the database, whose pages are there
   * already, and the log is written from its beginning: renewals and releases go on.
   */
  #inRoom<T>(attempt: () => T): T {
    try {
      return attempt();
    } catch (error) {
      if (failureOf(error) !== "full") throw error;
      try {
        this.#database.exec("PRAGMA wal_checkpoint(PASSIVE)");
      } catch {
        throw error;
      }
      return attempt();
    }
  }

  #transaction<T>(begin: string, step: () => T): T {
    if (begin === WRITE) this.#checkFile();
    // The common way to fail, and nothing is open then.
    if (begin === WRITE) this.#database.exec(begin);
    try {
      if (begin === READ) this.#database.exec(begin);
      const answer = step();
      this.#database.exec("COMMIT");
      return answer;
    } catch (error) {
      this.#rollback();
      throw error;
    }
  }

  /** Whatever failed may have ended the transaction by itself (a full disk does). */
  #rollback(): void {
    try {
      this.#database.exec("ROLLBACK");
    } catch (error) {
      if (!/no transaction/i.test(String(error))) throw error;
    }
  }

  #drain(): void {
    this.#retry = null;
    for (let count = 0; count < JOBS_PER_TURN; count += 1) {
      const [job] = this.#queue;
      if (job === undefined) break;
      if (!job.attempt()) {
        this.#tries += 1;
        break;
      }
      this.#tries = 0;
      this.#queue.shift();
    }
    if (this.#queue.length > 0) this.#later();
  }

  #later(): void {
    if (this.#tries < EAGER_TRIES) {
      const immediate = setImmediate(() => this.#drain());
      this.#retry = () => clearImmediate(immediate);
      return;
    }
    // By chance, so that processes which found it busy together do not meet again.
    const mostMs = Math.min(PAUSE_MAX_MS, 2 ** (this.#tries - EAGER_TRIES));
    const timer = this.#clock.after(mostMs * this.#chance.fraction(), () => this.#drain());
    this.#retry = () => this.#clock.cancel(timer);
  }

  /** A file that was deleted or replaced is another store for everybody who opens it now: nothing may be granted here. */
  #checkFile(): void {
    const now = this.#clock.now();
    if (this.#inode === null || now < this.#checkAt) return;
    if (inodeOf(this.#path) === this.#inode) {
      this.#checkAt = now + FILE_CHECK_MS;
      return;
    }
    const cause = new Error(`${this.#path} was deleted or replaced while it was in use`);
    throw new EngineRefusedError("sqlite", "Locks taken in it count no more. Restart the programs that use it.", cause);
  }

  #stuck(doing: string, limitMs: number, cause: unknown): EngineUnavailableError {
    const text = `others have been writing to ${this.#path} for ${limitMs} ms; perhaps one of them is stopped`;
    return new EngineUnavailableError("sqlite", doing, new Error(text, { cause }));
  }

  #explain(doing: string, error: unknown): unknown {
    const refused = refusal(this.#path, error);
    if (refused !== undefined) return refused;
    const failure = failureOf(error);
    if (failure === null) return error;
    // Room comes back: whoever asks again may have it, and a release must be asked again.
    const text = `${this.#path}: ${(error as Error).message}; free some space`;
    const cause = failure === "full" ? new Error(text, { cause: error }) : error;
    return new EngineUnavailableError("sqlite", doing, cause);
  }

  /** Whoever still waits is turned away. */
  close(): void {
    this.#closed = true;
    this.#retry?.();
    for (const job of this.#queue.splice(0)) job.fail(new ClosedError("waiting for the lock file"));
  }
}

function inodeOf(path: string): string | null {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? null : `${stat.dev}:${stat.ino}`;
}

const ADVICE = {
  readonly: "Every program that takes locks has to write: check the rights of the file and of its folder.",
  "cannot open": "Check that its folder exists and that this user may write there.",
  corrupt:
    "Stop the programs that use it, then delete it together with its -wal and -shm: it holds nothing but current locks.",
  "not a database": "It was left as it is. Choose another path for the locks.",
};

/** What SQLite will refuse whoever asks again; undefined for other errors. */
function refusal(path: string, error: unknown): EngineRefusedError | undefined {
  const failure = failureOf(error);
  if (failure === null || failure === "busy" || failure === "full" || failure === "other") return undefined;
  const text = error instanceof Error ? error.message : String(error);
  return new EngineRefusedError("sqlite", ADVICE[failure], new Error(`${path}: ${text}`, { cause: error }));
}

/** The library did not even open it, and not all of them say why. */
export function notOpened(path: string, error: unknown): EngineRefusedError {
  const text = error instanceof Error ? error.message : String(error);
  const cause = new Error(`${path}: ${text}`, { cause: error });
  return refusal(path, error) ?? new EngineRefusedError("sqlite", ADVICE["cannot open"], cause);
}
