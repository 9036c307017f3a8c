import type { Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import type { NodeNames } from "./names.js";
import type { Seat } from "./seat.js";
import type { Store } from "./store.js";

/** What all claims of one engine share. */
export type Hall = {
  readonly store: Store;
  readonly clock: Clock;
  readonly names: NodeNames;
  push(event: EngineEvent): void;
  /** It has no node any more, or soon will have none. */
  left(seat: Seat): void;
};
