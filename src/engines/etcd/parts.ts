import type { EngineEvent } from "../../core/engine.js";
import type { Book } from "./claims.js";
import type { Keys } from "./keys.js";
import type { Leases } from "./leases.js";
import type { Views } from "./snapshots.js";
import type { Store } from "./transactions.js";

/** What the verbs work with. */
export type Parts = {
  readonly store: Store;
  readonly keys: Keys;
  readonly leases: Leases;
  readonly book: Book;
  readonly views: Views;
  readonly tell: (event: EngineEvent) => void;
};
