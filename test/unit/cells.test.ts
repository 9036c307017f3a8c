import { describe, expect, test } from "vitest";
import { memoryEngine } from "../../src/engines/memory/index.js";
import { settle } from "../../src/testing/fake-clock.js";

describe("cells", () => {
  test("stopping a watch twice does not make a later watcher of that name deaf", async () => {
    const { cells } = memoryEngine();
    const told: string[] = [];
    const stop = cells?.watch("c", () => void told.push("first"));
    stop?.();
    cells?.watch("c", () => void told.push("second"));
    stop?.();
    await cells?.write({ name: "c", operation: "op-1", expected: 0, value: "x" });
    await settle();
    expect(told).toEqual(["second"]);
  });

  test("a write that was refused does not take effect when its copy arrives later", async () => {
    const { cells } = memoryEngine();
    const first = await cells?.write({ name: "c", operation: "op-1", expected: 0, value: "x" });
    const refused = { name: "c", operation: "op-2", expected: 0, value: "y" };
    expect((await cells?.write(refused))?.kind).toBe("conflict");
    await cells?.write({ name: "c", operation: "op-3", expected: first?.cell.version ?? 0, value: null });
    expect((await cells?.write(refused))?.kind).toBe("conflict"); // "answers as it did the first time"
  });

  test("a watcher is told nothing after it stopped watching", async () => {
    const { cells } = memoryEngine();
    let told = 0;
    const stop = cells?.watch("c", () => void (told += 1));
    const writing = cells?.write({ name: "c", operation: "op-1", expected: 0, value: "x" });
    stop?.();
    await writing;
    await settle();
    expect(told).toBe(0);
  });
});
