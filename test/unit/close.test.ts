import { execFile } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { ClosedError, LockLostError } from "../../src/core/errors.js";
import { settle } from "../../src/testing/fake-clock.js";
import { never, rig, types, watch } from "./rig.js";

describe("closing and events", () => {
  test("close releases all holds, withdraws all waits, and leaves no timer", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    const held = await a.locks.mutex("m").acquire();
    await a.locks.readWrite("rw").write.acquire();
    const waiting = watch(b.locks.mutex("m").acquire());
    const own = watch(a.locks.mutex("m").acquire());
    await settle();
    const closing = a.locks.close();
    await settle();
    await closing;
    expect(own.error).toBeInstanceOf(ClosedError);
    // Given back under the hands of whoever works under it: to them it is a loss.
    expect(held.state).toBe("lost");
    expect(held.signal.reason).toMatchObject({ reason: "closed" });
    await expect(held.release()).rejects.toMatchObject({ reason: "closed" });
    expect(waiting.state).toBe("done");
    await waiting.value?.release();
    await b.locks.close();
    await settle();
    expect(store.size.claims).toBe(0);
    expect(clock.pending).toBe(0);
  });

  test("close is bounded when the store does not answer, says what is left, and still leaves no timer", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 1000 });
    const hold = await a.locks.mutex("m").acquire();
    const asking = watch(a.locks.mutex("n").acquire());
    await settle();
    a.hooks.release = () => never();
    const closing = watch(a.locks.close());
    const released = watch(hold.release());
    await clock.advance(1100);
    expect(closing.state).toBe("done");
    expect(released.error).toBeInstanceOf(LockLostError);
    expect(asking.state).toBe("done");
    expect(types(a.told)).toContain("warning");
    expect(clock.pending).toBe(0);
  });

  test("close during a pause between two rounds ends the wait", async () => {
    const { clock, open } = rig();
    const a = await open();
    a.hooks.claim = async () => ({ kind: "busy" });
    const asked = watch(a.locks.mutex("m").acquire());
    await settle();
    await a.locks.close();
    expect(asked.error).toBeInstanceOf(ClosedError);
    expect(clock.pending).toBe(0);
  });

  test("a program that closed its locks exits by itself", async () => {
    const program = `
      import { connect } from "./dist/index.js";
      const locks = await connect("memory:");
      await locks.mutex("a").acquire();
      await locks.semaphore("b", 2).acquire({ leaseMs: 60_000, waitMs: 100_000 });
      locks.mutex("a").acquire().catch(() => {});
      await locks.close();
      console.log("closed");
    `;
    const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { timeout: 45_000 });
    expect((await run).stdout).toBe("closed\n");
  });

  test("events tell the life of a lock, to listeners and on diagnostics_channel", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const published: unknown[] = [];
    const note = (message: unknown): void => void published.push(message);
    subscribe("holdfast:granted", note);
    const hold = await a.locks.mutex("m").acquire();
    const waiting = b.locks.mutex("m").acquire();
    await clock.advance(4000);
    await hold.release();
    const next = await waiting;
    await clock.advance(3333);
    unsubscribe("holdfast:granted", note);
    expect(types(a.told)).toEqual(["granted", "renewed", "released"]);
    expect(types(b.told)).toEqual(["queued", "granted", "renewed"]);
    expect(b.told[1]).toMatchObject({ name: "m", id: next.id, token: next.token, waitedMs: 4000 });
    expect(published).toHaveLength(2);
    await next.release();
  });

  test("a listener can leave, and its mistake does not stop the lock", async () => {
    const { open } = rig();
    const a = await open();
    const seen: string[] = [];
    const off = a.locks.on("granted", (event) => seen.push(event.name));
    await a.locks.mutex("one").using(() => {});
    off();
    await a.locks.mutex("two").using(() => {});
    expect(seen).toEqual(["one"]);
    const uncaught = new Promise((resolve) => {
      const others = process.listeners("uncaughtException");
      process.removeAllListeners("uncaughtException");
      process.once("uncaughtException", (error) => {
        for (const listener of others) process.on("uncaughtException", listener);
        resolve(error);
      });
    });
    a.locks.on("released", () => {
      throw new Error("a listener's mistake");
    });
    await a.locks.mutex("three").using(() => {});
    expect(await uncaught).toEqual(new Error("a listener's mistake"));
  });
});
