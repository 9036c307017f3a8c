/** Locks, read-write locks and semaphores by name, with fencing tokens, on any store behind the engine contract. */

export { type ConnectOptions, connect, type Required } from "./connect.js";
export type { Cell, CellAnswer, Cells, CellWrite } from "./core/cells.js";
export type { Chance, Clock, Timer } from "./core/clock.js";
export type * from "./core/engine.js";
export * from "./core/errors.js";
export type { LockEvents, LockEventType } from "./core/events.js";
export type { HandOver, Hold, HoldState, WriteHold } from "./core/hold.js";
export type { ClaimState, HolderState, InspectFilter, NameState, Owner } from "./core/inspect.js";
export { READERS_MAX } from "./core/limits.js";
export type { AcquireOptions } from "./core/options.js";
export type { Promises } from "./core/promises.js";
export type { Locks } from "./locks.js";
export type { Barrier } from "./recipes/barrier.js";
export type { Counter } from "./recipes/counter.js";
export type { DoubleBarrier, Stay } from "./recipes/double-barrier.js";
export type { CampaignOptions, Election, Leader } from "./recipes/election.js";
export type { Latch } from "./recipes/latch.js";
export type { Lock } from "./recipes/lock.js";
export type { WaitOptions } from "./recipes/look.js";
export type { MeetOptions } from "./recipes/meeting.js";
export type { MultiLock, MultiOptions } from "./recipes/multi.js";
export type { MultiHold } from "./recipes/multi-hold.js";
export type { Mutex } from "./recipes/mutex.js";
export type { ReadWrite } from "./recipes/read-write.js";
export type { PermitOptions, Semaphore } from "./recipes/semaphore.js";
export type { Striped } from "./recipes/striped.js";
export type { Term } from "./recipes/term.js";
