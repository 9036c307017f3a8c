export { memoryEngine, memoryStore, type SharedMemory } from "./engine.js";
export { openMemory } from "./open.js";
