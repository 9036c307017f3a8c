// Beyond the usual files: what src/sql asks of PostgreSQL.
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import { type ClientParts, DatabaseClient } from "../../sql/client.js";
import type { Database } from "../../sql/database.js";
import { parseCellName, parseEvent } from "../../sql/events.js";
import type { Safety } from "../../sql/guarantees.js";
import type { Migrations } from "../../sql/migrate.js";
import type { AnswerOf, ParametersOf, Verb } from "../../sql/verbs.js";
import type { Driver } from "./driver.js";
import { errors } from "./errors.js";
import { Listener } from "./events.js";
import { probe, serverInfo } from "./guarantees.js";
import { migrationsOf } from "./migrate.js";
import type { Settings } from "./options.js";
import { PostgresStatements, quoted } from "./statements.js";

const UNKNOWN: Safety = { durable: false, failoverForgets: true };
const POOLER =
  "a pooler stands between this program and PostgreSQL, so grants cannot be pushed: whoever waits has to ask, and " +
  'learns of a grant up to two seconds late. Connect directly, or say wake: "poll" to silence this';

/** The functions of one schema, and the channel on which this client is told of its claims. */
export class PostgresDatabase extends DatabaseClient<Driver, Settings, Safety> implements Database {
  readonly kind = "postgres";
  readonly errors = errors;
  readonly client: string;
  readonly migrations: Migrations;
  readonly #listener: Listener;
  readonly #cellChannel: string;
  readonly #cellWatchers = new Set<(name: string | null) => void>();
  #statements: PostgresStatements;

  constructor(parts: ClientParts<Driver, Settings>) {
    super(parts, UNKNOWN);
    const { schema, clock, chance } = parts.settings;
    this.migrations = migrationsOf(this.driver, schema);
    // Whoever wants to poll may do so because of a pooler: nothing may depend on the connection.
    this.#statements = new PostgresStatements({ ...parts.settings, prepared: false });
    this.client = `holdfast_${chance.id()}`;
    this.#cellChannel = `${quoted(schema)}.cell`;
    this.#listener = new Listener({
      driver: this.driver,
      clock,
      chance,
      onNotification: (channel, payload) => this.#notified(channel, payload),
      onSilence: () => this.#listenerSilent(),
      onReconnect: () => this.#reconnected(),
    });
  }

  get connections(): number {
    return this.driver.connections;
  }

  async probe(): Promise<void> {
    const { durable, failoverForgets } = await probe(this.driver);
    // The option turns durable commits off for our transactions, whatever the server does for others.
    this.server = { durable: durable && this.settings.durable, failoverForgets };
  }

  async listen(): Promise<void> {
    this.pushed = await this.#listener.open(this.client);
    if (this.pushed) this.#statements = new PostgresStatements({ ...this.settings, prepared: true });
    else this.warn(POOLER);
  }

  async call<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<AnswerOf<V>> {
    const { rows } = await this.driver.run(this.#statements.query(verb, parameters));
    this.answered();
    return JSON.parse(String(rows[0]?.answer)) as AnswerOf<V>;
  }

  watchCells(changed: (name: string | null) => void): Unlisten | null {
    if (!this.pushed) return null;
    this.#cellWatchers.add(changed);
    // What changed until the server listened is told by nobody.
    this.#listener.add(this.#cellChannel, () => changed(null));
    return () => {
      this.#cellWatchers.delete(changed);
      if (this.#cellWatchers.size === 0) this.#listener.remove(this.#cellChannel);
    };
  }

  serverInfo(): Promise<ServerInfo> {
    return serverInfo(this.driver);
  }

  override async close(): Promise<void> {
    this.#listener.close();
    await super.close();
  }

  protected override unanswered(): void {
    this.#listener.probe();
    super.unanswered();
  }

  protected override wentSilent(): void {
    const within = `within ${Math.round(this.settings.callTimeoutMs)} ms`;
    this.warn(`a connection to PostgreSQL did not answer ${within}; calls go on over new ones, where there is a pool`);
  }

  #notified(channel: string, payload: string): void {
    if (channel === this.client) {
      const event = parseEvent(payload);
      if (event !== undefined) this.tell(event);
    } else if (channel === this.#cellChannel) {
      const name = parseCellName(payload);
      for (const changed of this.#cellWatchers) changed(name);
    }
  }

  #listenerSilent(): void {
    this.warn("the connection that listens for grants did not answer and is replaced; until then waiters ask");
    // What was sent since its last answer may be lost.
    this.tell({ kind: "wake" });
  }

  #reconnected(): void {
    this.tell({ kind: "wake" });
    for (const changed of this.#cellWatchers) changed(null);
    // Replicas come and go, and a server that was away may be another one now: what the guarantees depend on is read again.
    this.probe().catch((cause: unknown) => this.warn(`after a reconnect: ${errors.translated(cause).message}`));
  }
}
