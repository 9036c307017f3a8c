// Beyond the usual files: what src/sql asks of PostgreSQL.
import type { EngineEvent } from "../../core/engine.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { Database } from "../../sql/database.js";
import { parseEvent } from "../../sql/events.js";
import type { Migrations } from "../../sql/migrate.js";
import type { AnswerOf, ParametersOf, Verb } from "../../sql/verbs.js";
import type { Driver } from "./driver.js";
import { errors } from "./errors.js";
import { Listener } from "./events.js";
import { guaranteesOf, probe, type Server, serverInfo } from "./guarantees.js";
import { migrationsOf } from "./migrate.js";
import type { Settings } from "./options.js";
import { PostgresStatements, quoted } from "./statements.js";

type Parts = {
  /** `unanswered` is called when a call was not answered in time. */
  readonly driver: (unanswered: () => void) => Driver;
  readonly settings: Settings;
  readonly tell: (event: EngineEvent) => void;
  /** Ends a pool that is ours; null for what was handed in. */
  readonly end: (() => Promise<void>) | null;
};

const POOLER =
  "a pooler stands between this program and PostgreSQL, so grants cannot be pushed: whoever waits has to ask, and " +
  'learns of a grant up to two seconds late. Connect directly, or say wake: "poll" to silence this';

/** The functions of one schema, and the channel on which this client is told of its claims. */
export class PostgresDatabase implements Database {
  readonly kind = "postgres";
  readonly errors = errors;
  readonly client: string;
  readonly migrations: Migrations;
  readonly #parts: Parts;
  readonly #driver: Driver;
  readonly #listener: Listener;
  readonly #cellChannel: string;
  readonly #cellWatchers = new Set<(name: string | null) => void>();
  #server: Server = { durable: false, replicas: "asynchronous" };
  #statements: PostgresStatements;
  #listens = false;
  #silent = false;

  constructor(parts: Parts) {
    const { schema, clock, chance } = parts.settings;
    this.#parts = parts;
    this.#driver = parts.driver(() => this.#unanswered());
    this.migrations = migrationsOf(this.#driver, schema);
    // Whoever wants to poll may do so because of a pooler: nothing may depend on the connection.
    this.#statements = new PostgresStatements({ ...parts.settings, prepared: false });
    this.client = `holdfast_${chance.id()}`;
    this.#cellChannel = `${quoted(schema)}.cell`;
    this.#listener = new Listener({
      driver: this.#driver,
      clock,
      chance,
      onNotification: (channel, payload) => this.#notified(channel, payload),
      onSilence: () => this.#listenerSilent(),
      onReconnect: () => this.#reconnected(),
    });
  }

  get guarantees(): Guarantees {
    return guaranteesOf(this.#server, this.#parts.settings.durable, this.#listens ? "push" : "poll");
  }

  get listens(): boolean {
    return this.#listens;
  }

  async probe(): Promise<void> {
    this.#server = await probe(this.#driver);
  }

  async listen(): Promise<void> {
    this.#listens = await this.#listener.open(this.client);
    if (this.#listens) this.#statements = new PostgresStatements({ ...this.#parts.settings, prepared: true });
    else this.#warn(POOLER);
  }

  async call<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<AnswerOf<V>> {
    const { rows } = await this.#driver.run(this.#statements.query(verb, parameters));
    this.#silent = false;
    return JSON.parse(String(rows[0]?.answer)) as AnswerOf<V>;
  }

  watchCells(changed: (name: string | null) => void): Unlisten | null {
    if (!this.#listens) return null;
    this.#cellWatchers.add(changed);
    this.#listener.add(this.#cellChannel);
    return () => {
      this.#cellWatchers.delete(changed);
      if (this.#cellWatchers.size === 0) this.#listener.remove(this.#cellChannel);
    };
  }

  serverInfo(): Promise<ServerInfo> {
    return serverInfo(this.#driver);
  }

  async close(): Promise<void> {
    this.#listener.close();
    this.#driver.close();
    await this.#parts.end?.();
  }

  /** Told once, until there is an answer again. */
  #unanswered(): void {
    this.#listener.probe();
    if (this.#silent) return;
    this.#silent = true;
    const within = `within ${Math.round(this.#parts.settings.callTimeoutMs)} ms`;
    this.#warn(`a connection to PostgreSQL did not answer ${within}; calls go on over new ones, where there is a pool`);
  }

  #notified(channel: string, payload: string): void {
    if (channel === this.client) {
      const event = parseEvent(payload);
      if (event !== undefined) this.#parts.tell(event);
    } else if (channel === this.#cellChannel) {
      const name = JSON.parse(payload) as string;
      for (const changed of this.#cellWatchers) changed(name);
    }
  }

  #listenerSilent(): void {
    this.#warn("the connection that listens for grants did not answer and is replaced; until then waiters ask");
    // What was sent since its last answer may be lost.
    this.#parts.tell({ kind: "wake" });
  }

  #reconnected(): void {
    this.#parts.tell({ kind: "wake" });
    for (const changed of this.#cellWatchers) changed(null);
    // Replicas come and go, and a server that was away may be another one now: what the guarantees depend on is read again.
    this.probe().catch((cause: unknown) => this.#warn(`after a reconnect: ${errors.translated(cause).message}`));
  }

  #warn(message: string): void {
    this.#parts.tell({ kind: "warning", message });
  }
}
