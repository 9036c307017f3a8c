// Beyond the usual files: what src/sql asks of MySQL and MariaDB.
import type { EngineEvent } from "../../core/engine.js";
import { InvalidOptionError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Database } from "../../sql/database.js";
import type { Migrations } from "../../sql/migrate.js";
import type { AnswerOf, ParametersOf, Verb } from "../../sql/verbs.js";
import { type Changed, textOf } from "./driver.js";
import type { Mysql2Driver } from "./drivers/mysql2.js";
import { errors } from "./errors.js";
import { Listener } from "./events.js";
import { guaranteesOf, probe, type Server, serverInfo } from "./guarantees.js";
import { pageOf } from "./inspect.js";
import { migrationsOf } from "./migrate.js";
import type { Settings } from "./options.js";
import { MysqlStatements, type PlainStatement } from "./statements.js";

type Parts = {
  /** `unanswered` is called when a call was not answered in time. */
  readonly driver: (unanswered: () => void) => Mysql2Driver;
  readonly settings: Settings;
  readonly tell: (event: EngineEvent) => void;
  /** Ends a pool that is ours; null for what was handed in. */
  readonly end: (() => Promise<void>) | null;
};

const GALERA = "this is a Galera cluster, where a release on one node cannot wake a waiter on another";
const NOT_WOKEN = "this server does not let a client end its own waiting query";

/** The procedures of one schema, and the messages for this client. */
export class MysqlDatabase implements Database {
  readonly kind = "mysql";
  readonly errors = errors;
  readonly client: string;
  readonly migrations: Migrations;
  readonly #parts: Parts;
  readonly #driver: Mysql2Driver;
  readonly #listener: Listener;
  #server: Server = { durable: false, replicated: true, galera: false, autocommit: false };
  #statements: MysqlStatements;
  #listens = false;
  #reserved = false;
  #silent = false;

  constructor(parts: Parts) {
    const { schema, clock, chance } = parts.settings;
    this.#parts = parts;
    this.#driver = parts.driver(() => this.#unanswered());
    this.migrations = migrationsOf(this.#driver, schema);
    this.client = chance.id();
    this.#statements = new MysqlStatements(schema, false);
    const { client } = this;
    this.#listener = new Listener({ driver: this.#driver, clock, chance, schema, client, tell: parts.tell });
  }

  get guarantees(): Guarantees {
    return guaranteesOf(this.#server, this.#listens ? "push" : "poll");
  }

  get listens(): boolean {
    return this.#listens;
  }

  async probe(): Promise<void> {
    this.#server = await probe(this.#driver);
    this.#statements = new MysqlStatements(this.#parts.settings.schema, this.#server.autocommit);
  }

  async listen(): Promise<void> {
    if (!this.#server.galera) {
      const tooSmall = this.#driver.reserveListening();
      if (tooSmall !== null) {
        const allowed =
          'a larger connectionLimit, for two that listen and one that calls; or wake: "poll", which needs one';
        throw new InvalidOptionError("pool", tooSmall, allowed);
      }
      this.#reserved = true;
      this.#listens = await this.#listener.open();
    }
    if (this.#listens) return;
    this.#unreserve();
    const advice = "whoever waits has to ask, and learns of a grant up to two seconds late";
    const reason = this.#server.galera ? GALERA : NOT_WOKEN;
    this.#parts.tell({ kind: "warning", message: `${reason}: ${advice}. Say wake: "poll" to silence this` });
  }

  async call<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<AnswerOf<V>> {
    const answer = (await this.#decided(verb, parameters)) ?? (await this.#called(verb, parameters));
    this.#silent = false;
    return answer as AnswerOf<V>;
  }

  /** Cells have no messages: their watchers read them. */
  watchCells(): null {
    return null;
  }

  serverInfo(): Promise<ServerInfo> {
    return serverInfo(this.#driver);
  }

  async close(): Promise<void> {
    this.#listener.close();
    await this.#listener.ended();
    this.#unreserve();
    this.#driver.close();
    await this.#parts.end?.();
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
      return await this.#driver.change(sql, values);
    } catch (cause) {
      if (errors.isAnswer(cause)) return null;
      throw cause;
    }
  }

  async #called<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<unknown> {
    const { sql, values } = this.#statements.call(verb, parameters);
    const sets = await this.#driver.run(sql, values);
    if (verb === "inspect") return pageOf(sets);
    const [row] = sets[0] ?? [];
    if (verb === "release")
      this.#statements.released((parameters as ParametersOf<"release">).name, Number(row?.waiters) > 0);
    return JSON.parse(textOf(row?.answer));
  }

  #unreserve(): void {
    if (this.#reserved) this.#driver.unreserveListening();
    this.#reserved = false;
  }

  /** Told once, until there is an answer again. */
  #unanswered(): void {
    if (this.#silent) return;
    this.#silent = true;
    const message = "a connection to the server did not answer in time; it is replaced, and until then waiters ask";
    this.#parts.tell({ kind: "warning", message });
    this.#parts.tell({ kind: "wake" });
  }
}
