import type { Engine } from "../../core/engine.js";
import { memoryEngine, memoryStore, type SharedMemory } from "./engine.js";

/** For all copies of this package in the process: two stores of one name would let two programs in. */
const STORES = Symbol.for("holdfast.memory.stores");

/** `memory:` and `memory:name`: one store for each name in this process, whoever opens it. */
export function openMemory(url: string): Engine {
  const name = url.replace(/^memory:(\/\/)?/i, "");
  const global = globalThis as { [STORES]?: Map<string, SharedMemory> };
  const stores = (global[STORES] ??= new Map());
  let store = stores.get(name);
  if (store === undefined) stores.set(name, (store = memoryStore()));
  return memoryEngine(store);
}
