/** For whoever writes an engine: the contract, what it is made of, and the helpers that ours share. */

export { backoffMs } from "./core/backoff.js";
export type { Cell, CellAnswer, Cells, CellWrite } from "./core/cells.js";
export { type Chance, type Clock, SystemChance, SystemClock, type Timer } from "./core/clock.js";
export type * from "./core/engine.js";
export * from "./core/errors.js";
export type { Guarantees } from "./core/guarantees.js";
export type { ClaimState, HolderState, InspectFilter, NameState, Owner, WaiterState } from "./core/inspect.js";
export { POLL_MAX_MS, READERS_MAX, TOMBSTONE_MS, waiterLeaseMs } from "./core/limits.js";
export type { ServerInfo } from "./core/server-info.js";
export type { Unlisten } from "./core/unlisten.js";
export { CallTimeouts } from "./engine-kit/call-timeouts.js";
export { Listeners } from "./engine-kit/listeners.js";
