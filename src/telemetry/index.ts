export { type InstrumentOptions, instrument } from "./instrument.js";
