import type { Guarantees } from "../core/guarantees.js";
import type { ServerInfo } from "../core/server-info.js";
import type { Unlisten } from "../core/unlisten.js";

/** What a verb is given: only data, never a part of a statement. */
export type Value = string | number | boolean | null | readonly (string | number | null)[];

/** The functions of the lock table: each is one call that decides, and answers with one text. */
export type Verb =
  | "claim"
  | "release"
  | "renew"
  | "resize"
  | "set_capacity"
  | "inspect"
  | "sweep"
  | "cell_read"
  | "cell_write";

/** The lock table of one database, as one client sees it. The engine on top of it is the same for all databases. */
export interface LockTable {
  readonly kind: string;
  readonly guarantees: Guarantees;
  /** Whose claims these are, in the database. */
  readonly client: string;
  /** Whether this client is told of grants and losses. */
  readonly hears: boolean;
  /** Where changes of cells are told; the database needs it to tell them. */
  readonly cellChannel: string;
  /** One call of a function. Rejects within a bounded time; a refusal for good is an `EngineRefusedError`. */
  call(verb: Verb, args: readonly Value[]): Promise<string>;
  /** Calls `changed` with the name of a cell that may have changed, or with null for all of them; null: it cannot tell. */
  hearCells(changed: (name: string | null) => void): Unlisten | null;
  /** Who this server is, now. */
  about(): Promise<ServerInfo>;
  close(): Promise<void>;
}
