/** The proving kit: what Holdfast's own engines are judged by, for whoever writes another one. */

export {
  type ConformanceOptions,
  conformance,
  conformanceCases,
  type Excuse,
  runCase,
  type TestFunction,
} from "./conformance/index.js";
export type { Case, Kit, Setting } from "./conformance/kit.js";
export { FakeClock, settle } from "./fake-clock.js";
export { type Hooks, intercept } from "./intercept.js";
export { SeededChance } from "./seeded-chance.js";
