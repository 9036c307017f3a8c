// Beside the usual files: one writer at a time, and libraries that can only wait for it by blocking the process.
import { statSync } from "node:fs";
import type { Chance, Clock } from "../../core/clock.js";
import { ClosedError } from "../../core/errors.js";
import type { SqliteDatabase } from "./driver.js";
import { busyTooLong, failureOf, fileReplaced, translate } from "./errors.js";

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
/** The first retries follow at once, in the next turns of the event loop: a writer is done within a fraction of a millisecond. */
const EAGER_TRIES = 3;
/** Then with a growing backoff: hundreds of processes that all ask every millisecond would leave no time for the one that writes. */
const BACKOFF_MAX_MS = 250;
/** Jobs run in one turn of the event loop; then others have their turn. */
const JOBS_PER_TURN = 32;
/** How often it is checked that the path still leads to the file we have open. */
const FILE_CHECK_MS = 100;

/**
 * The only way to a transaction: begins it, runs a step that never waits, commits it. When another process is writing
 * the step is tried again later, in order, without blocking the event loop; the caller does not see that it was busy.
 */
export class Transactions {
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
  write<T>(doing: string, step: () => T, after: (answer: T) => void = () => {}): Promise<T> {
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

  /** The same without a retry: throws when the file is busy. */
  readNow<T>(step: () => T): T {
    return this.#transaction(READ, step);
  }

  /** Runs a statement that is no transaction of ours and may find the file busy. */
  exec(doing: string, sql: string): Promise<void> {
    return this.#enqueue(doing, () => void this.#database.exec(sql));
  }

  /** The limit is longer while the file is opened: many processes may be creating it at once. */
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
            resolve(this.#checkpointIfFull(attempt));
            return true;
          } catch (error) {
            const busy = failureOf(error) === "busy";
            if (busy && this.#clock.now() < until) return false;
            reject(busy ? busyTooLong(this.#path, doing, limitMs, error) : translate(this.#path, doing, error));
            return true;
          }
        },
      };
      // In order: a job that came before and found the file busy goes first.
      if (this.#queue.length === 0 && job.attempt()) return;
      this.#queue.push(job);
      if (this.#retry === null) this.#scheduleRetry();
    });
  }

  /**
   * A disk that is full has no room for a longer log. What the log says goes into the database, whose pages are there
   * already, and the log is written from its beginning: renewals and releases go on.
   */
  #checkpointIfFull<T>(attempt: () => T): T {
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
    this.#checkFile();
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

  #runQueue(): void {
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
    if (this.#queue.length > 0) this.#scheduleRetry();
  }

  #scheduleRetry(): void {
    if (this.#tries < EAGER_TRIES) {
      const immediate = setImmediate(() => this.#runQueue());
      this.#retry = () => clearImmediate(immediate);
      return;
    }
    // With jitter, so that processes which found it busy together do not meet again.
    const mostMs = Math.min(BACKOFF_MAX_MS, 2 ** (this.#tries - EAGER_TRIES));
    const timer = this.#clock.after(mostMs * this.#chance.fraction(), () => this.#runQueue());
    this.#retry = () => this.#clock.cancel(timer);
  }

  /**
   * A file that was deleted or replaced is another store for everybody who opens it now: nothing may be granted in it, and
   * what is read there never changes any more.
   */
  #checkFile(): void {
    const now = this.#clock.now();
    if (this.#inode === null || now < this.#checkAt) return;
    if (inodeOf(this.#path) === this.#inode) {
      this.#checkAt = now + FILE_CHECK_MS;
      return;
    }
    throw fileReplaced(this.#path);
  }

  /** Jobs that still wait are rejected. */
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
