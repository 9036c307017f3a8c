import type { Chance, Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import type { Guarantees } from "../../core/guarantees.js";
import { RETRY_MIN_MS } from "../../core/limits.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import { pause } from "../../engine-kit/pause.js";
import { parseEvent } from "../../sql/codec.js";
import type { LockTable, Value, Verb } from "../../sql/lock-table.js";
import type { Connections, PgQuery } from "./client.js";
import { Listener } from "./listener.js";
import type { Settings } from "./options.js";
import { about, guaranteesOf, probe, type Server } from "./probe.js";
import { isTransient, translated } from "./refusals.js";
import { statementsFor } from "./statements.js";

export type TableParts = {
  readonly connections: Connections;
  readonly settings: Settings;
  readonly tell: (event: EngineEvent) => void;
  readonly dispose: (() => Promise<void>) | null;
};

/** The functions of one schema, and the channel on which this client hears what they tell. */
export class PostgresTable implements LockTable {
  readonly kind = "postgres";
  readonly client: string;
  readonly cellChannel: string;
  readonly #parts: TableParts;
  readonly #clock: Clock;
  readonly #chance: Chance;
  readonly #listener: Listener;
  readonly #cellsHeard = new Set<(name: string | null) => void>();
  #server: Server = { durable: false, replicas: "asynchronous" };
  #statements: Readonly<Record<Verb, PgQuery>>;
  #hears = false;
  #silent = false;
  #guarantees: Guarantees | null = null;

  constructor(parts: TableParts) {
    const { schema, durable, clock, chance } = parts.settings;
    this.#parts = parts;
    this.#statements = statementsFor(schema, durable, false);
    this.#clock = clock;
    this.#chance = chance;
    this.client = `holdfast_${chance.id()}`;
    this.cellChannel = `holdfast_cells_${schema}`;
    this.#listener = new Listener({
      connections: parts.connections,
      clock,
      chance,
      heard: (channel, payload) => this.#heard(channel, payload),
      silent: () => this.#deaf(),
      back: () => this.#back(),
    });
  }

  /** Finds out what this server can do. Before this nothing may be called. */
  async open(): Promise<void> {
    const { settings, connections, tell } = this.#parts;
    this.#server = await probe(connections);
    if (settings.wake === "push") {
      this.#hears = await this.#listener.open(this.client).catch((cause: unknown) => {
        throw translated(cause);
      });
    }
    // Whoever wants to poll may do so because of a pooler: nothing may depend on the connection.
    this.#statements = statementsFor(settings.schema, settings.durable, this.#hears);
    if (!this.#hears && settings.wake === "push") {
      const message =
        "a pooler stands between this program and PostgreSQL, so grants cannot be pushed: whoever waits has to ask, and " +
        'learns of a grant up to two seconds late. Connect directly, or say wake: "poll" to silence this';
      tell({ kind: "warning", message });
    }
    this.#promise();
  }

  get guarantees(): Guarantees {
    return this.#guarantees ?? guaranteesOf(this.#server, false, "poll");
  }

  get hears(): boolean {
    return this.#hears;
  }

  /** A call that was rolled back because of another is made again, until its time is over. */
  async call(verb: Verb, args: readonly Value[]): Promise<string> {
    const { connections, settings } = this.#parts;
    const query = { ...this.#statements[verb], values: args };
    const until = this.#clock.now() + settings.callTimeoutMs;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const { rows } = await connections.run(query);
        this.#silent = false;
        return String(rows[0]?.answer);
      } catch (cause) {
        const delayMs = RETRY_MIN_MS * attempt * (0.2 + this.#chance.fraction());
        if (!isTransient(cause) || this.#clock.now() + delayMs > until) throw translated(cause);
        await pause(this.#clock, delayMs);
      }
    }
  }

  /** A call was not answered in time. Told once, until there is an answer again. */
  silent(): void {
    this.#listener.probe();
    if (this.#silent) return;
    this.#silent = true;
    const within = `within ${Math.round(this.#parts.settings.callTimeoutMs)} ms`;
    const message = `a connection to PostgreSQL did not answer ${within}; calls go on over new ones, where there is a pool`;
    this.#parts.tell({ kind: "warning", message });
  }

  hearCells(changed: (name: string | null) => void): Unlisten | null {
    if (!this.#hears) return null;
    this.#cellsHeard.add(changed);
    this.#listener.add(this.cellChannel);
    return () => {
      this.#cellsHeard.delete(changed);
      if (this.#cellsHeard.size === 0) this.#listener.remove(this.cellChannel);
    };
  }

  /** Replicas come and go: read again what the guarantees depend on. */
  async refresh(): Promise<void> {
    this.#server = await probe(this.#parts.connections);
    this.#promise();
  }

  about(): Promise<ServerInfo> {
    return about(this.#parts.connections);
  }

  async close(): Promise<void> {
    this.#listener.close();
    this.#parts.connections.close();
    await this.#parts.dispose?.();
  }

  #promise(): void {
    this.#guarantees = guaranteesOf(this.#server, this.#parts.settings.durable, this.#hears ? "push" : "poll");
  }

  #heard(channel: string, payload: string): void {
    if (channel === this.client) {
      const event = parseEvent(payload);
      if (event !== undefined) this.#parts.tell(event);
    } else if (channel === this.cellChannel) {
      const name = JSON.parse(payload) as string;
      for (const changed of this.#cellsHeard) changed(name);
    }
  }

  #deaf(): void {
    const message = "the connection that listens for grants did not answer and is replaced; until then waiters ask";
    this.#parts.tell({ kind: "warning", message });
    // What was said since its last answer may be lost.
    this.#parts.tell({ kind: "wake" });
  }

  #back(): void {
    this.#parts.tell({ kind: "wake" });
    for (const changed of this.#cellsHeard) changed(null);
    // A server that was away may be another one now.
    this.refresh().catch((cause: unknown) =>
      this.#parts.tell({ kind: "warning", message: `after a reconnect: ${translated(cause).message}` }),
    );
  }
}
