// Beside the usual files: one writer at a time, and libraries that can only wait for it by blocking the process.
import { statSync } from "node:fs";
import type { Chance, Clock } from "../../core/clock.js";
import { ClosedError } from "../../core/errors.js";
import type { SqliteDatabase } from "./driver.js";
import { busyTooLong, FileReplaced, failureOf, translate, translateShared } from "./errors.js";

/** What the requests of one transaction share. */
export interface Unit {
  /** Before the first of them. */
  begin(): void;
  /** After the last of them, before the commit. */
  finish(): void;
  /** After the commit, when each of them was told. */
  committed(): void;
}

type Job = {
  readonly doing: string;
  readonly limitMs: number;
  /** When to stop trying to find the file free. */
  readonly until: number;
  /** Requests of one unit share a transaction. Null: the job brings its own, if it needs one. */
  readonly unit: Unit | null;
  readonly step: () => unknown;
  readonly after: (answer: unknown) => void;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
};

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
/** Requests that share a transaction, and jobs that run in one turn of the event loop; then others have their turn. */
const JOBS_PER_TURN = 32;
/** How often it is checked that the path still leads to the file we have open. */
const FILE_CHECK_MS = 100;

/** The end of the turn comes in any case, and runs nothing when the queue was emptied. */
const NOTHING_TO_CANCEL = (): void => {};

/** A transaction of one request. */
const ALONE: Unit = { begin() {}, finish() {}, committed() {} };

/** One of several steps in a transaction failed. */
class StepFailed extends Error {}

/**
 * The only way to a transaction: begins it, runs steps that never wait, commits it. What is asked in one turn of the event
 * loop, or while the file is busy, goes into one transaction, in order. When another process is writing it is tried again
 * later, without blocking the event loop; the caller does not see that it was busy.
 */
export class Transactions {
  readonly #database: SqliteDatabase;
  readonly #path: string;
  readonly #clock: Clock;
  readonly #chance: Chance;
  readonly #inode: string | null;
  #queue: Job[] = [];
  #limitMs = BUSY_MAX_MS;
  #tries = 0;
  /** Jobs that have run since the event loop went on, as far as is known here. */
  #ranInTurn = 0;
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

  /**
   * Runs `step` in an immediate transaction, with others of the same unit, then `after` with what it answered, before
   * anything else can happen. A step that throws fails alone: the others are run again without it.
   */
  write<T>(doing: string, step: () => T, after: (answer: T) => void = () => {}, unit: Unit = ALONE): Promise<T> {
    return this.#enqueue(doing, step, after, unit);
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

  #enqueue<T>(
    doing: string,
    step: () => T,
    after: (answer: T) => void = () => {},
    unit: Unit | null = null,
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new ClosedError(doing));
      const limitMs = this.#limitMs;
      const until = this.#clock.now() + limitMs;
      this.#queue.push({ doing, limitMs, until, unit, step, after, resolve, reject } as Job);
      if (this.#retry !== null) return;
      // Whoever asks again at every answer would leave no time for timers and for what comes from outside.
      if (this.#ranInTurn >= JOBS_PER_TURN) return this.#scheduleRetry();
      // At the end of the turn: whoever was just answered may have more to ask.
      this.#retry = NOTHING_TO_CANCEL;
      process.nextTick(this.#runQueue);
    });
  }

  /** Settles these jobs, which share a transaction or are one. Returns those that found the file busy. */
  #attempt(jobs: readonly Job[]): readonly Job[] {
    let answers: readonly unknown[];
    try {
      answers = this.#checkpointIfFull(() => this.#run(jobs));
    } catch (error) {
      if (error instanceof StepFailed) return this.#attemptEach(jobs);
      if (failureOf(error) === "busy") return this.#stillWaiting(jobs, error);
      const told = jobs.length === 1 ? translate : translateShared;
      for (const job of jobs) job.reject(told(this.#path, job.doing, error));
      return [];
    }
    jobs.forEach((job, n) => this.#answer(job, answers[n]));
    jobs[0]?.unit?.committed();
    return [];
  }

  #run(jobs: readonly Job[]): unknown[] {
    const [{ unit }] = jobs as [Job];
    if (unit === null) return jobs.map((job) => job.step());
    return this.#transaction(WRITE, () => {
      try {
        unit.begin();
        const answers = jobs.map((job) => job.step());
        unit.finish();
        return answers;
      } catch (error) {
        throw jobs.length === 1 ? error : new StepFailed();
      }
    });
  }

  /** The step of one of them failed and nothing was committed. Each by itself gets the answer or the error that is its own. */
  #attemptEach(jobs: readonly Job[]): readonly Job[] {
    for (const [n, job] of jobs.entries()) {
      const waiting = this.#attempt([job]);
      if (waiting.length > 0) return [...waiting, ...jobs.slice(n + 1)];
    }
    return [];
  }

  #answer(job: Job, answer: unknown): void {
    try {
      job.after(answer);
      job.resolve(answer);
    } catch (error) {
      job.reject(translate(this.#path, job.doing, error));
    }
  }

  #stillWaiting(jobs: readonly Job[], busy: unknown): readonly Job[] {
    const now = this.#clock.now();
    return jobs.filter((job) => {
      if (now < job.until) return true;
      job.reject(busyTooLong(this.#path, job.doing, job.limitMs, busy));
      return false;
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

  readonly #runQueue = (): void => {
    // What is asked meanwhile is run here, or in the turn that this schedules: there is one of them at a time.
    this.#retry = NOTHING_TO_CANCEL;
    try {
      for (let count = 0; count < JOBS_PER_TURN && this.#queue.length > 0; ) count += this.#runShared(count);
    } finally {
      // Also when a listener has thrown: the others must not wait for ever.
      this.#retry = null;
      if (this.#queue.length > 0) this.#scheduleRetry();
    }
  };

  /** Returns how many jobs were settled; as many as may run in one turn where the file is busy. */
  #runShared(count: number): number {
    const jobs = this.#takeShared(JOBS_PER_TURN - count);
    this.#ranInTurn += jobs.length;
    const waiting = this.#attempt(jobs);
    if (waiting.length === 0) {
      this.#tries = 0;
      return jobs.length;
    }
    this.#queue.unshift(...waiting);
    this.#tries += 1;
    return JOBS_PER_TURN;
  }

  /** The first of the queue, and those behind it that share its transaction. */
  #takeShared(most: number): readonly Job[] {
    const count = this.#countShared(most);
    if (count < this.#queue.length) return this.#queue.splice(0, count);
    const jobs = this.#queue;
    this.#queue = [];
    return jobs;
  }

  /** How many of those that come first share a transaction. */
  #countShared(most: number): number {
    const unit = this.#queue[0]?.unit ?? null;
    if (unit === null || unit === ALONE) return 1;
    const end = this.#queue.findIndex((job, n) => n === most || job.unit !== unit);
    return end === -1 ? this.#queue.length : end;
  }

  readonly #runInNextTurn = (): void => {
    this.#ranInTurn = 0;
    this.#runQueue();
  };

  #scheduleRetry(): void {
    if (this.#tries <= EAGER_TRIES) {
      const immediate = setImmediate(this.#runInNextTurn);
      this.#retry = () => clearImmediate(immediate);
      return;
    }
    // With jitter, so that processes which found it busy together do not meet again.
    const mostMs = Math.min(BACKOFF_MAX_MS, 2 ** (this.#tries - EAGER_TRIES - 1));
    const timer = this.#clock.after(mostMs * this.#chance.fraction(), this.#runInNextTurn);
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
    throw new FileReplaced(this.#path);
  }

  /** Jobs that still wait are rejected. */
  close(): void {
    this.#closed = true;
    this.#retry?.();
    for (const job of this.#queue.splice(0)) job.reject(new ClosedError("waiting for the lock file"));
  }
}

function inodeOf(path: string): string | null {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? null : `${stat.dev}:${stat.ino}`;
}
