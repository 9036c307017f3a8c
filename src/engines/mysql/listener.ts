import type { Chance, Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { RETRY_MAX_MS, RETRY_MIN_MS } from "../../core/limits.js";
import { behindOthers } from "../../core/turn.js";
import { parseEvent } from "../../sql/codec.js";
import { pause } from "../../sql/pause.js";
import type { Lane } from "./adapters/lane.js";
import type { PoolConnections } from "./adapters/pool.js";
import { textOf } from "./client.js";
import { hasNumber, INTERRUPTED } from "./refusals.js";
import { quoted } from "./schema.js";

/** How long the listening connection waits when nobody wakes it: so late is a letter at most whose bell was not rung. */
const WAIT_S = 2;
const LETTERS_MAX = 200;

export type ListenerParts = {
  readonly connections: PoolConnections;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly schema: string;
  readonly client: string;
  readonly tell: (event: EngineEvent) => void;
};

/**
 * One connection that waits until somebody has put a letter into this client's mailbox and ends the wait (`KILL QUERY`).
 * The statement looks into the mailbox before it waits: whoever wrote before it began is seen, and whoever writes later ends
 * it. So no letter is overlooked (`pitfalls.md` 53).
 *
 * It holds a named lock, its ear, by which others find it; nobody else is ever found by that. It waits for another one, the
 * bell, that a second connection of ours keeps for as long as it lives. A SLEEP would do without that connection, but all
 * sleeping connections of MariaDB share one mutex, and a KILL that meets another one falling asleep or waking up gets stuck
 * for two seconds (seen with a dozen clients: every tenth KILL).
 */
export class Listener {
  readonly #parts: ListenerParts;
  readonly #wait: string;
  readonly #bellName: string;
  readonly #earName: string;
  readonly #bytes: Buffer;
  #lane: Lane | null = null;
  #bell: Lane | null = null;
  #closed = false;
  #loop: Promise<void> = Promise.resolve();
  /** The letters told last. They are read again where the bell interrupted their removal. */
  #told: ReadonlySet<number> = new Set();

  constructor(parts: ListenerParts) {
    this.#parts = parts;
    const { schema, client } = parts;
    this.#bytes = Buffer.from(client);
    const mine = `SELECT 1 FROM ${quoted(schema)}.mail WHERE client = X'${this.#bytes.toString("hex")}'`;
    this.#bellName = `holdfast bell ${client}`;
    this.#earName = `holdfast ear ${client}`;
    this.#wait = `SELECT IF(EXISTS(${mine}), 0, GET_LOCK('${this.#bellName}', ${WAIT_S})) AS free`;
  }

  /** False: this server does not let us end our own wait. */
  async open(): Promise<boolean> {
    const lane = await this.#connect();
    let woken = false;
    try {
      woken = await this.#canBeWoken(lane);
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

  async #connect(): Promise<Lane> {
    const { connections } = this.#parts;
    this.#bell = await connections.lane(WAIT_S * 1000);
    // First the one that may wait for the other.
    for (const lock of [this.#earName, this.#bellName]) await dismiss(this.#bell, lock);
    await take(this.#bell, this.#bellName);
    this.#lane = await connections.lane(WAIT_S * 1000);
    await take(this.#lane, this.#earName);
    if (this.#closed) this.#disconnect();
    return this.#lane ?? Promise.reject(new Error("closed"));
  }

  #disconnect(): void {
    this.#lane?.close();
    this.#bell?.close();
    this.#lane = null;
    this.#bell = null;
    // The next server may be a replica that never had them, and give their numbers to others.
    this.#told = new Set();
  }

  async #canBeWoken(lane: Lane): Promise<boolean> {
    const { clock, connections, schema } = this.#parts;
    const start = clock.now();
    const wait = { over: false };
    const done = this.#waitOn(lane).finally(() => (wait.over = true));
    // Looked at below, unless the bell cannot be rung at all.
    done.catch(() => {});
    // Again and again, because it may not have begun yet.
    for (let attempt = 0; attempt < 20 && !wait.over; attempt += 1) {
      await pause(clock, 10);
      await connections.run(`CALL ${quoted(schema)}.wake(?)`, [this.#bytes]);
    }
    await done;
    return clock.now() - start < WAIT_S * 1000 * 0.9;
  }

  async #run(): Promise<void> {
    const { clock, chance, tell } = this.#parts;
    for (let failures = 0; !this.#closed; ) {
      try {
        if (this.#lane === null) {
          await this.#connect();
          // What was said in between is in the mailbox, unless it is too old.
          tell({ kind: "wake" });
        }
        if (this.#lane !== null) await this.#listen(this.#lane);
        failures = 0;
      } catch {
        // Broken, or closed: a new one, after a pause.
        this.#disconnect();
        if (this.#closed) return;
        failures += 1;
        const mostMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(failures, 10));
        await pause(clock, mostMs * (0.5 + chance.fraction() / 2));
      }
    }
  }

  /** Until the bell is rung, or for a while. */
  async #waitOn(lane: Lane): Promise<void> {
    const [rows] = await lane.run(this.#wait).catch(interrupted);
    // It got the lock: the connection that kept it is gone.
    if (Number(rows?.[0]?.free ?? 0) === 1) throw new Error("the bell was lost");
  }

  async #listen(lane: Lane): Promise<void> {
    await this.#waitOn(lane);
    const { schema, tell } = this.#parts;
    const table = `${quoted(schema)}.mail`;
    const text = `SELECT seq, event FROM ${table} WHERE client = ? ORDER BY seq LIMIT ${LETTERS_MAX}`;
    const [letters = []] = await lane.run(text, [this.#bytes]).catch(interrupted);
    if (letters.length === 0 || this.#closed) return;
    const before = this.#told;
    const seqs = letters.map(({ seq }) => Number(seq));
    this.#told = new Set(seqs);
    for (const { seq, event } of letters) {
      const told = before.has(Number(seq)) ? undefined : parseEvent(textOf(event));
      if (told !== undefined) tell(told);
    }
    await new Promise<void>(behindOthers);
    // By their numbers: one with a lower number may have been committed just now.
    await lane.run(`DELETE FROM ${table} WHERE seq IN (${seqs.join(", ")})`).catch(interrupted);
  }
}

/**
 * Ends the connection that holds a lock of ours. It is an earlier one of this client, since nobody else knows the name: one that
 * died without a word, which the server keeps for as long as TCP tries.
 */
async function dismiss(lane: Lane, lock: string): Promise<void> {
  const [rows] = await lane.run(`SELECT IS_USED_LOCK('${lock}') AS holder`);
  const holder = rows?.[0]?.holder ?? null;
  // It may have gone in between.
  if (holder !== null) await lane.run(`KILL CONNECTION ${Number(holder)}`).catch(() => {});
}

async function take(lane: Lane, lock: string): Promise<void> {
  const [rows] = await lane.run(`SELECT GET_LOCK('${lock}', ${WAIT_S}) AS got`);
  if (Number(rows?.[0]?.got) !== 1) throw new Error(`"${lock}" is still held by a connection that is ending`);
}

/** The bell was rung, perhaps while something else than the wait was under way on this connection. */
function interrupted(cause: unknown): readonly [] {
  if (hasNumber(cause, ...INTERRUPTED)) return [];
  throw cause;
}
