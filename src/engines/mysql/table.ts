import type { Chance, Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { InvalidOptionError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { NameState, Owner } from "../../core/inspect.js";
import { RETRY_MIN_MS } from "../../core/limits.js";
import type { ServerInfo } from "../../core/server-info.js";
import { pause } from "../../engine-kit/pause.js";
import type { LockTable, Value, Verb } from "../../sql/lock-table.js";
import type { PoolConnections } from "./adapters/pool.js";
import { type Row, textOf } from "./client.js";
import { Listener } from "./listener.js";
import type { Settings } from "./options.js";
import { about, guaranteesOf, type Server } from "./probe.js";
import { type Changed, type Quick, QuickStatements } from "./quick.js";
import { isAnswer, isMissing, isTransient, translated } from "./refusals.js";
import { quoted } from "./schema.js";
import { FUNCTIONS } from "./scripts.generated.js";

/** Half a second on average, for a procedure that is being made anew. */
const MISSING_ATTEMPTS = 7;

export type TableParts = {
  readonly connections: PoolConnections;
  readonly settings: Settings;
  readonly server: Server;
  readonly tell: (event: EngineEvent) => void;
  readonly dispose: () => Promise<void>;
};

/** The procedures of one schema, and the mailbox of this client. */
export class MysqlTable implements LockTable {
  readonly kind = "mysql";
  readonly client: string;
  readonly cellChannel = "";
  readonly #parts: TableParts;
  readonly #clock: Clock;
  readonly #chance: Chance;
  readonly #listener: Listener;
  readonly #calls: Readonly<Record<string, string>>;
  /** Null where a statement is not a transaction by itself. */
  readonly #quick: QuickStatements | null;
  #hears = false;
  #listens = false;
  #silent = false;

  constructor(parts: TableParts) {
    const { schema, clock, chance } = parts.settings;
    const { connections, tell } = parts;
    this.#parts = parts;
    this.#clock = clock;
    this.#chance = chance;
    this.client = chance.id();
    this.#listener = new Listener({ connections, clock, chance, schema, client: this.client, tell });
    this.#quick = parts.server.autocommit ? new QuickStatements(schema) : null;
    this.#calls = Object.fromEntries(
      Object.entries(FUNCTIONS).map(([verb, types]) => [
        verb,
        `CALL ${quoted(schema)}.${quoted(verb)}(${types.map(() => "?").join(", ")})`,
      ]),
    );
  }

  /** Begins to listen, where that is wanted and possible. */
  async open(): Promise<void> {
    const { settings, server, tell, connections } = this.#parts;
    if (settings.wake === "poll") return;
    const message = server.galera
      ? "this is a Galera cluster, where a release on one node cannot wake a waiter on another"
      : "this server does not let a client end its own waiting query";
    if (!server.galera) {
      const small = connections.listen();
      if (small !== null) {
        const allowed =
          'a larger connectionLimit, for two that listen and one that calls; or wake: "poll", which needs one';
        throw new InvalidOptionError("pool", small, allowed);
      }
      this.#listens = true;
      this.#hears = await this.#listener.open().catch((cause: unknown) => {
        throw translated(cause);
      });
    }
    if (this.#hears) return;
    this.#unlisten();
    const advice = "whoever waits has to ask, and learns of a grant up to two seconds late";
    tell({ kind: "warning", message: `${message}: ${advice}. Say wake: "poll" to silence this` });
  }

  get guarantees(): Guarantees {
    return guaranteesOf(this.#parts.server, this.#hears ? "push" : "poll");
  }

  get hears(): boolean {
    return this.#hears;
  }

  /** A call that was rolled back because of another is made again, until its time is over. */
  async call(verb: Verb, args: readonly Value[]): Promise<string> {
    const { connections, settings } = this.#parts;
    const sql = this.#calls[verb] ?? "";
    const values = verb === "renew" ? signsOf(args) : args.map(valueOf);
    const until = this.#clock.now() + settings.callTimeoutMs;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const quick = attempt === 1 ? this.#quick?.of(verb, args) : undefined;
        const changed = quick === undefined ? null : await this.#tried(quick);
        const sets = changed?.affectedRows === 1 ? [] : await connections.run(sql, values);
        this.#silent = false;
        if (quick !== undefined && changed?.affectedRows === 1) return quick.answer(changed);
        if (verb === "inspect") return pageOf(sets);
        const [row] = sets[0] ?? [];
        if (verb === "release") this.#quick?.left(args[0], Number(row?.waiters) > 0);
        return textOf(row?.answer);
      } catch (cause) {
        const delayMs = RETRY_MIN_MS * attempt * (0.2 + this.#chance.fraction());
        const again = isTransient(cause) || (isMissing(cause) && attempt <= MISSING_ATTEMPTS);
        if (!again || this.#clock.now() + delayMs > until) throw translated(cause);
        await pause(this.#clock, delayMs);
      }
    }
  }

  #unlisten(): void {
    if (this.#listens) this.#parts.connections.unlisten();
    this.#listens = false;
  }

  /** Null: refused, so that nothing was done. The procedure brings its own settings, and may be let through. */
  async #tried({ sql, values }: Quick): Promise<Changed | null> {
    try {
      return await this.#parts.connections.change(sql, values.map(valueOf));
    } catch (cause) {
      if (isAnswer(cause) && !isTransient(cause)) return null;
      throw cause;
    }
  }

  /** A call was not answered in time. Told once, until there is an answer again. */
  silent(): void {
    if (this.#silent) return;
    this.#silent = true;
    const message = "a connection to the server did not answer in time; it is replaced, and until then waiters ask";
    this.#parts.tell({ kind: "warning", message });
    this.#parts.tell({ kind: "wake" });
  }

  /** Cells have no mailbox: who watches looks. */
  hearCells(): null {
    return null;
  }

  about(): Promise<ServerInfo> {
    return about(this.#parts.connections);
  }

  async close(): Promise<void> {
    this.#listener.close();
    await this.#listener.ended();
    this.#unlisten();
    this.#parts.connections.close();
    await this.#parts.dispose();
  }
}

/** Text as bytes, which mysql2 writes as a hexadecimal literal: no quoting rule and no character set can change it. */
function valueOf(value: Value): unknown {
  if (typeof value === "string") return Buffer.from(value);
  return typeof value === "boolean" ? Number(value) : value;
}

/** The columns of the signs as one JSON array of rows: a procedure takes no arrays. */
function signsOf([names, ids, leases, tokens, waiterMs]: readonly Value[]): unknown[] {
  const column = (value: Value | undefined): readonly unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
  const [id, lease, token] = [column(ids), column(leases), column(tokens)];
  const rows = column(names).map((name, at) => [name, id[at], lease[at], token[at]]);
  return [Buffer.from(JSON.stringify(rows)), waiterMs];
}

/** Rows of claims, ordered, as a page of names. */
function pageOf([heads = [], rows = []]: readonly (readonly Row[])[]): string {
  const states = new Map<string, { -readonly [Key in keyof NameState]: NameState[Key] }>();
  for (const row of rows) {
    const name = textOf(row.name);
    const state = states.get(name) ?? {
      name,
      capacity: Number(row.capacity),
      lastToken: Number(row.last_token),
      holders: [],
      waiters: [],
    };
    states.set(name, state);
    const claim = {
      id: textOf(row.id),
      units: Number(row.units),
      leftMs: Number(row.left_ms),
      owner: JSON.parse(textOf(row.owner)) as Owner,
      ...(row.data === null ? {} : { data: JSON.parse(textOf(row.data)) as string }),
    };
    const token = Number(row.token);
    if (token > 0) state.holders = [...state.holders, { ...claim, token }];
    else state.waiters = [...state.waiters, claim];
  }
  const next = heads[0]?.next;
  return JSON.stringify({ states: [...states.values()], next: next === null ? null : textOf(next) });
}
