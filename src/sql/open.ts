import type { Clock } from "../core/clock.js";
import { EngineUnavailableError, HoldfastError } from "../core/errors.js";
import { CallTimeouts } from "../engine-kit/call-timeouts.js";
import type { Listeners } from "../engine-kit/listeners.js";
import type { Database } from "./database.js";
import { LockTableEngine } from "./engine.js";
import { migrate } from "./migrate.js";
import type { LockTableOptions } from "./options.js";

const CLOSE_WITHIN_MS = 2_000;

/** Asks the server what it can do, makes or updates the lock table, and listens. What fails closes everything again. */
export async function openLockTable(
  database: Database,
  settings: Required<LockTableOptions>,
  listeners: Listeners,
): Promise<LockTableEngine> {
  const engine = new LockTableEngine(database, settings, listeners);
  try {
    await database.probe();
    await migrate(database, settings.schema, settings.migrate);
    if (settings.wake === "push") await database.listen();
    return engine;
  } catch (cause) {
    await engine[Symbol.asyncDispose]();
    throw database.errors.translated(cause, true);
  }
}

type Stream = { readonly destroyed?: boolean; destroy?(): unknown };

/** A pool that we made: it is ours to end. One that was handed in never gets one of these. */
export class OwnPool<Connection> {
  readonly #pool: { end(): Promise<void> };
  readonly #clock: Clock;
  readonly #streamOf: (connection: Connection) => Stream | undefined;
  readonly #made = new Set<Connection>();

  constructor(pool: { end(): Promise<void> }, clock: Clock, streamOf: (connection: Connection) => Stream | undefined) {
    this.#pool = pool;
    this.#clock = clock;
    this.#streamOf = streamOf;
  }

  /** To be called with each connection that the pool makes. */
  readonly add = (connection: Connection): void => {
    for (const one of this.#made) if (this.#streamOf(one)?.destroyed === true) this.#made.delete(one);
    this.#made.add(connection);
  };

  /** A server that does not answer must not hold up whoever leaves, nor keep the program alive by an open connection. */
  async end(): Promise<void> {
    const timeouts = new CallTimeouts(this.#clock, CLOSE_WITHIN_MS);
    await timeouts.limit(this.#pool.end()).catch(() => {});
    timeouts.close();
    for (const connection of this.#made) this.#streamOf(connection)?.destroy?.();
  }
}

/** What is no refusal, while a URL is opened: the server could not be reached. */
export function unreachable(kind: string, cause: unknown): Error {
  return cause instanceof HoldfastError ? cause : new EngineUnavailableError(kind, "connecting", cause);
}
