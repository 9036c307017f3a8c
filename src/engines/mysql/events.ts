import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { behindOthers } from "../../core/turn.js";
import { pause } from "../../engine-kit/pause.js";
import { parseEvent } from "../../sql/events.js";
import { type Row, textOf } from "./driver.js";
import type { PooledConnection } from "./drivers/connection.js";
import type { Mysql2Driver } from "./drivers/mysql2.js";
import { errors, INTERRUPTED } from "./errors.js";
import { quoted } from "./statements.js";

/** How long the listening connection waits when nobody wakes it: so late at most is a message for which nobody could wake it. */
const WAIT_S = 2;
/** While the engine is opened: so many calls that do not end a wait show that none does, and so often it waits for that. */
const WAKE_CALLS = 20;
const WAKE_ATTEMPTS = 5;

export type ListenerParts = {
  readonly driver: Mysql2Driver;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly schema: string;
  readonly client: string;
  readonly tell: (event: EngineEvent) => void;
};

/**
 * One connection that waits until somebody has written a message for this client and ends the wait (`KILL QUERY`). It looks
 * for messages before it waits: one that was written before it began is found, and whoever writes one later ends the wait. So
 * no message is overlooked (`pitfalls.md` 53).
 *
 * The connection holds a named lock, by which others find it; nobody else is ever found by that. It waits for another named lock,
 * which a second connection of ours keeps for as long as it lives. A SLEEP would do without that connection, but all
 * sleeping connections of MariaDB share one mutex, and a KILL that meets another one falling asleep or waking up gets stuck
 * for two seconds (seen with a dozen clients: every tenth KILL).
 */
export class Listener {
  readonly #parts: ListenerParts;
  readonly #listenStatement: string;
  readonly #waitLock: string;
  readonly #listenerLock: string;
  readonly #bytes: Buffer;
  #connection: PooledConnection | null = null;
  #keeper: PooledConnection | null = null;
  #closed = false;
  #loop: Promise<void> = Promise.resolve();
  /** The messages told last. They are read again where their removal was interrupted. */
  #told: ReadonlySet<number> = new Set();

  constructor(parts: ListenerParts) {
    this.#parts = parts;
    const { schema, client } = parts;
    this.#bytes = Buffer.from(client);
    this.#waitLock = `holdfast wait ${client}`;
    this.#listenerLock = `holdfast listener ${client}`;
    this.#listenStatement = `CALL ${quoted(schema)}.listen(?, ${WAIT_S})`;
  }

  /** False: this server does not let us end our own wait. */
  async open(): Promise<boolean> {
    const connection = await this.#connect();
    let woken = false;
    try {
      woken = await this.#canBeWoken(connection);
    } finally {
      if (!woken) this.close();
    }
    if (woken) this.#loop = this.#run();
    return woken;
  }

  close(): void {
    this.#closed = true;
    this.#disconnect();
  }

  /** When the last wait is over: after this nothing is told. */
  async ended(): Promise<void> {
    await this.#loop;
  }

  async #connect(): Promise<PooledConnection> {
    const { driver } = this.#parts;
    this.#keeper = await driver.connection(WAIT_S * 1000);
    // First the one that may wait for the other.
    for (const lock of [this.#listenerLock, this.#waitLock]) await dismiss(this.#keeper, lock);
    await take(this.#keeper, this.#waitLock);
    this.#connection = await driver.connection(WAIT_S * 1000);
    await take(this.#connection, this.#listenerLock);
    if (this.#closed) this.#disconnect();
    return this.#connection ?? Promise.reject(new Error("closed"));
  }

  #disconnect(): void {
    this.#connection?.close();
    this.#keeper?.close();
    this.#connection = null;
    this.#keeper = null;
    // The next server may be a replica that never had them, and give their numbers to others.
    this.#told = new Set();
  }

  /**
   * By whether the wait is interrupted, not by how long it took: a busy machine is slow too. Where the wait ran out before
   * enough calls could have ended it, it is tried again.
   */
  async #canBeWoken(connection: PooledConnection): Promise<boolean> {
    const { clock, driver, schema } = this.#parts;
    for (let attempt = 1; ; attempt += 1) {
      const wait = { over: false };
      const waiting = this.#receive(connection).finally(() => (wait.over = true));
      // Awaited below, unless waking fails altogether.
      waiting.catch(() => {});
      // Again and again, because it may not have begun yet.
      let calls = 0;
      for (; !wait.over; calls += 1) {
        await pause(clock, calls < WAKE_CALLS ? 10 : 100);
        await driver.run(`CALL ${quoted(schema)}.wake(?)`, [this.#bytes]);
      }
      if ((await waiting).woken) return true;
      if (calls > WAKE_CALLS || attempt === WAKE_ATTEMPTS) return false;
    }
  }

  async #run(): Promise<void> {
    const { clock, chance, tell } = this.#parts;
    for (let failures = 0; !this.#closed; ) {
      try {
        if (this.#connection === null) {
          await this.#connect();
          // What was sent in between is among the messages, unless it is too old.
          tell({ kind: "wake" });
        }
        if (this.#connection !== null) await this.#listen(this.#connection);
        failures = 0;
      } catch {
        // Broken, or closed: a new one, after a pause.
        this.#disconnect();
        if (this.#closed) return;
        failures += 1;
        await pause(clock, backoffMs(failures, chance));
      }
    }
  }

  /** The messages. Where there are none, until somebody ends the wait, or for a while. */
  async #receive(connection: PooledConnection): Promise<{ woken: boolean; messages: readonly Row[] }> {
    const [state, messages = []] = await connection.run(this.#listenStatement, [this.#bytes]).catch(interrupted);
    const free = state?.[0]?.free ?? null;
    // It got the lock: the connection that kept it is gone.
    if (Number(free) === 1) throw new Error("the lock to wait for was lost");
    return { woken: free === null, messages };
  }

  async #listen(connection: PooledConnection): Promise<void> {
    const { messages } = await this.#receive(connection);
    const { schema, tell } = this.#parts;
    const table = `${quoted(schema)}.message`;
    if (messages.length === 0) return;
    const before = this.#told;
    const seqs = messages.map(({ seq }) => Number(seq));
    this.#told = new Set(seqs);
    for (const { seq, event } of messages) {
      const told = before.has(Number(seq)) ? undefined : parseEvent(textOf(event));
      if (told !== undefined) tell(told);
    }
    await new Promise<void>(behindOthers);
    // By their numbers: one with a lower number may have been committed just now.
    await connection.run(`DELETE FROM ${table} WHERE seq IN (${seqs.join(", ")})`).catch(interrupted);
  }
}

/**
 * Ends the connection that holds a lock of ours. It is an earlier one of this client, since nobody else knows the name: one that
 * died without a message, which the server keeps for as long as TCP tries.
 */
async function dismiss(connection: PooledConnection, lock: string): Promise<void> {
  const [rows] = await connection.run(`SELECT IS_USED_LOCK('${lock}') AS holder`);
  const holder = rows?.[0]?.holder ?? null;
  // It may have gone in between.
  if (holder !== null) await connection.run(`KILL CONNECTION ${Number(holder)}`).catch(() => {});
}

async function take(connection: PooledConnection, lock: string): Promise<void> {
  const [rows] = await connection.run(`SELECT GET_LOCK('${lock}', ${WAIT_S}) AS got`);
  if (Number(rows?.[0]?.got) !== 1) throw new Error(`"${lock}" is still held by a connection that is ending`);
}

/** Somebody ended the wait, perhaps while something else was under way on this connection. */
function interrupted(cause: unknown): readonly [] {
  if (errors.hasCode(cause, INTERRUPTED)) return [];
  throw cause;
}
