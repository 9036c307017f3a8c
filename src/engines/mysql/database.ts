// Beyond the usual files: what src/sql asks of MySQL and MariaDB.
import { InvalidOptionError } from "../../core/errors.js";
import type { ServerInfo } from "../../core/server-info.js";
import { type ClientParts, DatabaseClient } from "../../sql/client.js";
import type { Database } from "../../sql/database.js";
import type { Migrations } from "../../sql/migrate.js";
import type { AnswerOf, ParametersOf, Verb } from "../../sql/verbs.js";
import { type Changed, textOf } from "./driver.js";
import type { Mysql2Driver } from "./drivers/mysql2.js";
import { errors } from "./errors.js";
import { Listener } from "./events.js";
import { probe, type Server, serverInfo } from "./guarantees.js";
import { pageOf } from "./inspect.js";
import { migrationsOf } from "./migrate.js";
import type { Settings } from "./options.js";
import { MysqlStatements, type PlainStatement } from "./statements.js";

const UNKNOWN: Server = { durable: false, failoverForgets: true, galera: false, autocommit: false };
const GALERA = "this is a Galera cluster, where a release on one node cannot wake a waiter on another";
const NOT_WOKEN = "this server does not let a client end its own waiting query";

/** The procedures of one schema, and the messages for this client. */
export class MysqlDatabase extends DatabaseClient<Mysql2Driver, Settings, Server> implements Database {
  readonly kind = "mysql";
  readonly errors = errors;
  readonly client: string;
  readonly migrations: Migrations;
  readonly #listener: Listener;
  #statements: MysqlStatements;
  #reserved = false;

  constructor(parts: ClientParts<Mysql2Driver, Settings>) {
    super(parts, UNKNOWN);
    const { driver } = this;
    const { schema, clock, chance } = parts.settings;
    this.migrations = migrationsOf(driver, schema);
    this.client = chance.id();
    this.#statements = new MysqlStatements(schema, UNKNOWN);
    const { client } = this;
    this.#listener = new Listener({ driver, clock, chance, schema, client, tell: parts.tell });
  }

  get connections(): number {
    return this.driver.connections;
  }

  async probe(): Promise<void> {
    this.server = await probe(this.driver);
    this.#statements = new MysqlStatements(this.settings.schema, this.server);
  }

  async listen(): Promise<void> {
    if (!this.server.galera) {
      const tooSmall = this.driver.reserveListening();
      if (tooSmall !== null) {
        const allowed =
          'a larger connectionLimit, for two that listen and one that calls; or wake: "poll", which needs one';
        throw new InvalidOptionError("pool", tooSmall, allowed);
      }
      this.#reserved = true;
      this.pushed = await this.#listener.open();
    }
    if (this.pushed) return;
    this.#unreserve();
    const advice = "whoever waits has to ask, and learns of a grant up to two seconds late";
    const reason = this.server.galera ? GALERA : NOT_WOKEN;
    this.warn(`${reason}: ${advice}. Say wake: "poll" to silence this`);
  }

  async call<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<AnswerOf<V>> {
    const answer = (await this.#decided(verb, parameters)) ?? (await this.#called(verb, parameters));
    this.answered();
    this.#remember(verb, parameters, answer);
    return answer as AnswerOf<V>;
  }

  /** Cells have no messages: their watchers read them. */
  watchCells(): null {
    return null;
  }

  serverInfo(): Promise<ServerInfo> {
    return serverInfo(this.driver);
  }

  override async close(): Promise<void> {
    this.#listener.close();
    await this.#listener.ended();
    this.#unreserve();
    await super.close();
  }

  protected override wentSilent(): void {
    this.warn("a connection to the server did not answer in time; it is replaced, and until then waiters ask");
    this.tell({ kind: "wake" });
  }

  /** By a plain statement; undefined where there is none, or where it did not apply. */
  async #decided(verb: Verb, parameters: unknown): Promise<AnswerOf<Verb> | undefined> {
    let plain: PlainStatement | undefined;
    if (verb === "claim") plain = this.#statements.plainClaim(parameters as ParametersOf<"claim">);
    else if (verb === "release") plain = this.#statements.plainRelease(parameters as ParametersOf<"release">);
    if (plain === undefined) return undefined;
    const changed = await this.#tried(plain);
    return changed?.affectedRows === 1 ? plain.answer(changed) : undefined;
  }

  /** Null: refused, so that nothing was done. The procedure brings its own settings, and may be let through. */
  async #tried({ sql, values }: PlainStatement): Promise<Changed | null> {
    try {
      return await this.driver.change(sql, values);
    } catch (cause) {
      if (errors.isAnswer(cause)) return null;
      throw cause;
    }
  }

  async #called<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<unknown> {
    const { sql, values } = this.#statements.call(verb, parameters);
    const sets = await this.driver.run(sql, values);
    if (verb === "inspect") return pageOf(sets);
    const row = sets[0]?.[0];
    // The procedures of an older version do not say it.
    if (verb === "release")
      this.#statements.released((parameters as ParametersOf<"release">).name, Number(row?.woke) === 1);
    return JSON.parse(textOf(row?.answer));
  }

  /** By what claims are answered the next plain statements are chosen. */
  #remember(verb: Verb, parameters: unknown, answer: unknown): void {
    if (verb === "claim") {
      const { name, id } = parameters as ParametersOf<"claim">;
      this.#statements.claimed(name, id, answer as AnswerOf<"claim">);
    } else if (verb === "batch") {
      const { requests } = parameters as ParametersOf<"batch">;
      for (const [at, one] of (answer as AnswerOf<"batch">).entries()) {
        const [name = "", id = ""] = requests[at] ?? [];
        if (typeof one !== "string") this.#statements.claimed(name, id, one);
      }
    }
  }

  #unreserve(): void {
    if (this.#reserved) this.driver.unreserveListening();
    this.#reserved = false;
  }
}
