/** The proving kit: what Holdfast's own engines are judged by, for whoever writes another one. */

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
export { type Contender, type ContendOptions, contend } from "./contend.js";
export { FakeClock, settle } from "./fake-clock.js";
export { FAIR, faulty, PausableClock, ROUGH, type Weather } from "./faults.js";
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
export { type Rehearsal, type RehearsalOptions, rehearse } from "./rehearse.js";
export { SeededChance } from "./seeded-chance.js";
export { type Simulated, type SimulatedStore, simulate } from "./simulate.js";
