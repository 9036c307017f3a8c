export { currentHold, currentTick } from "./current.js";
export { InjectLocks, Lock, type LockOptions, RunOnce, type RunOnceOptions } from "./decorators.js";
export { type LocksHealth, locksHealth } from "./health.js";
export {
  type AsyncRootOptions,
  type HoldfastDynamicModule,
  HoldfastModule,
  type RootOptions,
  type StoreOptions,
} from "./module.js";
export { locksToken } from "./token.js";
