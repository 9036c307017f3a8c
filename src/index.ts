/** Locks, read-write locks and semaphores by name, with fencing tokens, on any store. The contract for engine authors is in `holdfast/engine`. */

export { type CommonOptions, type ConnectOptions, connect, type RequiredGuarantees } from "./connect.js";
export type { BurstOptions } from "./core/burst.js";
export type { Chance, Clock, Timer } from "./core/clock.js";
export * from "./core/errors.js";
export type { LockEvents, LockEventType } from "./core/events.js";
export type { Guarantees } from "./core/guarantees.js";
export type { HandOver } from "./core/hand-over.js";
export type { Health } from "./core/health.js";
export type { Hold, WriteHold } from "./core/hold.js";
export type { HoldState } from "./core/hold-state.js";
export type { ClaimState, HolderState, InspectFilter, NameState, Owner, WaiterState } from "./core/inspect.js";
export type { AcquireOptions } from "./core/options.js";
export type {
  AcquireOutcome,
  AcquireTrace,
  HoldTrace,
  LockKind,
  ReleaseTrace,
  RenewTrace,
  TracedLock,
} from "./core/tracing.js";
export type { Credentials, CredentialsFunction } from "./engine-kit/credentials.js";
export type { DrainOptions, InspectOptions, Locks } from "./locks.js";
export type { Barrier } from "./recipes/barrier.js";
export type { MutexOptions } from "./recipes/burst.js";
export type { Counter } from "./recipes/counter.js";
export type { DoubleBarrier, Stay } from "./recipes/double-barrier.js";
export type { CampaignOptions, Election, Leader } from "./recipes/election.js";
export type { Job, JobOptions, JobResult } from "./recipes/job.js";
export type { Latch } from "./recipes/latch.js";
export type { Lock } from "./recipes/lock.js";
export type { MeetOptions } from "./recipes/meeting.js";
export type { MultiLock, MultiOptions } from "./recipes/multi.js";
export type { MultiHold } from "./recipes/multi-hold.js";
export type { Mutex } from "./recipes/mutex.js";
export type { ReadWrite } from "./recipes/read-write.js";
export type { Schedule, ScheduleOptions } from "./recipes/schedule.js";
export type { PermitOptions, Semaphore } from "./recipes/semaphore.js";
export type { Striped } from "./recipes/striped.js";
export type { Term } from "./recipes/term.js";
export type { Tick, Ticks, TicksOptions } from "./recipes/ticks.js";
export type { WaitOptions } from "./recipes/wait-until.js";
