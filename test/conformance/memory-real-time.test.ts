import { describe } from "vitest";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { judge } from "./judge.js";

describe("memory, in real time", () => {
  const store = memoryStore();
  const setting = { engine: async () => memoryEngine(store), leaseStepMs: 500 };
  judge(setting);
});
