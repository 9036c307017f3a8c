import type { Chance, Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { RETRY_MAX_MS, RETRY_MIN_MS } from "../../core/limits.js";
import { parseEvent } from "../../sql/codec.js";
import { pause } from "../../sql/within.js";
import type { Lane, PoolConnections } from "./adapters/pool.js";
import { textOf } from "./client.js";
import { hasNumber } from "./refusals.js";
import { quoted } from "./schema.js";

/** How long the listening connection sleeps when nobody wakes it: so late is a letter at most whose bell was not rung. */
const SLEEP_S = 2;
const LETTERS_MAX = 200;
const INTERRUPTED = [1317, 1969, 3024];

export type ListenerParts = {
  readonly connections: PoolConnections;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly schema: string;
  readonly client: string;
  readonly tell: (event: EngineEvent) => void;
};

/**
 * One connection that sleeps until somebody has put a letter into this client's mailbox and ends the sleep
 * (`KILL QUERY`). The statement looks into the mailbox before it sleeps: whoever wrote before it began is seen, and whoever
 * writes later finds it in the list of processes. So no letter is overlooked (`pitfalls.md` 53).
 */
export class Listener {
  readonly #parts: ListenerParts;
  readonly #sleep: string;
  readonly #bytes: Buffer;
  #lane: Lane | null = null;
  #closed = false;
  #loop: Promise<void> = Promise.resolve();

  constructor(parts: ListenerParts) {
    this.#parts = parts;
    const { schema, client } = parts;
    this.#bytes = Buffer.from(client);
    const mine = `SELECT 1 FROM ${quoted(schema)}.mail WHERE client = X'${this.#bytes.toString("hex")}'`;
    // No values, so that the list of processes shows exactly this text.
    this.#sleep = `SELECT IF(EXISTS(${mine}), 1, SLEEP(${SLEEP_S})) AS woken /* holdfast ${client} */`;
  }

  /** False: this server does not let us end our own sleep. */
  async open(): Promise<boolean> {
    const lane = await this.#parts.connections.lane();
    this.#lane = lane;
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
    this.#lane?.close();
    this.#lane = null;
  }

  /** When the last sleep is over: after this nothing is told. */
  async ended(): Promise<void> {
    await this.#loop;
  }

  async #canBeWoken(lane: Lane): Promise<boolean> {
    const { clock, connections, schema } = this.#parts;
    const start = clock.now();
    const sleep = { over: false };
    const sleeping = lane.run(this.#sleep).catch(interrupted);
    const done = sleeping.finally(() => (sleep.over = true));
    // Looked at below, unless the bell cannot be rung at all.
    done.catch(() => {});
    // Again and again, because it may not have begun yet.
    for (let attempt = 0; attempt < 20 && !sleep.over; attempt += 1) {
      await pause(clock, 10);
      await connections.run(`CALL ${quoted(schema)}.wake(?)`, [this.#bytes]);
    }
    await done;
    return clock.now() - start < SLEEP_S * 1000 * 0.8;
  }

  async #run(): Promise<void> {
    const { clock, chance, connections, tell } = this.#parts;
    for (let failures = 0; !this.#closed; ) {
      try {
        if (this.#lane === null) {
          const lane = await connections.lane();
          if (this.#closed) return lane.close();
          this.#lane = lane;
          // What was said in between is in the mailbox, unless it is too old.
          tell({ kind: "wake" });
        }
        await this.#listen(this.#lane);
        failures = 0;
      } catch {
        // Broken, or closed: a new one, after a pause.
        this.#lane?.close();
        this.#lane = null;
        if (this.#closed) return undefined;
        failures += 1;
        const mostMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(failures, 10));
        await pause(clock, mostMs * (0.5 + chance.fraction() / 2));
      }
    }
    return undefined;
  }

  async #listen(lane: Lane): Promise<void> {
    await lane.run(this.#sleep).catch(interrupted);
    const { schema, tell } = this.#parts;
    const table = `${quoted(schema)}.mail`;
    const text = `SELECT seq, event FROM ${table} WHERE client = ? ORDER BY seq LIMIT ${LETTERS_MAX}`;
    const [letters = []] = await lane.run(text, [this.#bytes]).catch(interrupted);
    if (letters.length === 0 || this.#closed) return;
    for (const { event } of letters) {
      const told = parseEvent(textOf(event));
      if (told !== undefined) tell(told);
    }
    // By their numbers: one with a lower number may have been committed just now.
    const seqs = letters.map(({ seq }) => Number(seq));
    await lane.run(`DELETE FROM ${table} WHERE seq IN (${seqs.join(", ")})`).catch(interrupted);
  }
}

/** The bell was rung, perhaps while something else than the sleep was under way on this connection. */
function interrupted(cause: unknown): readonly [] {
  if (hasNumber(cause, ...INTERRUPTED)) return [];
  throw cause;
}
