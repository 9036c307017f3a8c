import type { Guarantees } from "../core/guarantees.js";
import type { ServerInfo } from "../core/server-info.js";
import type { Unlisten } from "../core/unlisten.js";
import type { VersionedStore } from "../engine-kit/layout-version.js";
import type { StoreErrors } from "./errors.js";
import type { Migrations } from "./migrate.js";
import type { AnswerOf, ParametersOf, Verb } from "./verbs.js";

/** One database with a lock table in it, as one client sees it. The engine on top of it is the same for all. */
export interface Database {
  readonly kind: VersionedStore;
  readonly errors: StoreErrors;
  readonly migrations: Migrations;
  readonly guarantees: Guarantees;
  /** Whose claims these are, in the database. */
  readonly client: string;
  /** Whether this client is told of grants and losses. */
  readonly listens: boolean;
  /** How many connections there are for calls. */
  readonly connections: number;
  /** Finds out what this server can do. Before this nothing else may be called. */
  probe(): Promise<void>;
  /** Begins to listen. Where that is not possible, `listens` stays false, and the reason is a warning. */
  listen(): Promise<void>;
  /** One call of a function, within the time limit. Rejects with what the client library says. */
  call<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<AnswerOf<V>>;
  /** Calls `changed` with the name of a cell that may have changed, or with null for all; null: this database cannot tell. */
  watchCells(changed: (name: string | null) => void): Unlisten | null;
  /** Who this server is, now. */
  serverInfo(): Promise<ServerInfo>;
  close(): Promise<void>;
}
