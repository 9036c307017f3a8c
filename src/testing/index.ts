/** What tests Holdfast's own engines, for whoever writes another one. */

export { type CompareOptions, compareWithReference } from "./compare.js";
export {
  type ConformanceOptions,
  conformance,
  conformanceCases,
  type Excuse,
  runCase,
  type TestFunction,
} from "./conformance/index.js";
export type { Case, Kit, Setting } from "./conformance/kit.js";
export { MUTEX_ONLY } from "./conformance/mutex-only.js";
export { type Contender, type ContendOptions, contend } from "./contend.js";
export { FakeClock, settle } from "./fake-clock.js";
export { type FaultProfile, faulty, NO_FAULTS, PausableClock, SOME_FAULTS } from "./faults.js";
export {
  type Attempt,
  type CheckOptions,
  checkHistory,
  type Held,
  type History,
  type Pause,
  type Violation,
  type Write,
} from "./history.js";
export { type Hooks, intercept } from "./intercept.js";
export { SeededChance } from "./seeded-chance.js";
export { type SimulatedStore, type SimulationResult, simulate } from "./simulate.js";
export { type StressTestOptions, type StressTestResult, stressTest } from "./stress-test.js";
