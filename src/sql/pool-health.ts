import type { Clock } from "../core/clock.js";
import type { CallTimeouts } from "../engine-kit/call-timeouts.js";

type Emitter = { on?(event: "error", listener: (error: Error) => void): unknown };

const guarded = new WeakSet<object>();
const healths = new WeakMap<object, PoolHealth>();

/**
 * A connection without a listener for errors ends the whole program when it ends. The pool's own listener is not enough: `pg`
 * takes it away when it lends a client out, and the end of a connection that comes in the same packet as the last answer falls
 * in between; the one of mysql2 listens once, and a second error may follow (a write that fails while the connection ends). So
 * each connection gets a listener that does nothing, for good, as soon as it is seen. It hides nothing: the listeners of the
 * pool and of the program are called as before, and whoever waits for an answer is told by its rejection.
 */
export function guardErrors(connection: Emitter): void {
  if (guarded.has(connection)) return;
  guarded.add(connection);
  connection.on?.("error", () => {});
}

/** What is known about the connections of a pool, by all engines on it together. */
export class PoolHealth {
  /** How many engines listen on connections of this pool. */
  listening = 0;
  /** How often a call on this pool has gone unanswered. */
  #unanswered = 0;
  /** For each connection that number when it was made or answered for the last time. */
  readonly #answered = new WeakMap<object, number>();

  unanswered(): void {
    this.#unanswered += 1;
  }

  answered(connection: object): void {
    this.#answered.set(connection, this.#unanswered);
  }

  /** No answer since a call on the pool went unanswered: likely as silent as that one was, and each would cost a time limit. */
  isSuspect(connection: object): boolean {
    return (this.#answered.get(connection) ?? 0) !== this.#unanswered;
  }
}

/** Once for each pool, however many engines use it. `watch` is called the first time. */
export function healthOf(pool: object, watch: (health: PoolHealth) => void): PoolHealth {
  const known = healths.get(pool);
  if (known !== undefined) return known;
  const health = new PoolHealth();
  healths.set(pool, health);
  watch(health);
  return health;
}

/** A connection of a pool within the time limit. One that is free only when we have given up goes back unused. */
export async function borrowed<Connection>(
  connection: Promise<Connection>,
  giveBack: (late: Connection) => void,
  { timeouts, clock, limitMs }: { timeouts: CallTimeouts; clock: Clock; limitMs: number },
): Promise<Connection> {
  const asked = clock.now();
  try {
    return await timeouts.limit(connection, giveBack);
  } catch (cause) {
    if (clock.now() - asked < limitMs) throw cause;
    throw new Error(`the pool had no free connection and made no new one within ${Math.round(limitMs)} ms`, { cause });
  }
}
