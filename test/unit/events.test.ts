import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { describe, expect, test } from "vitest";
import { rig, types } from "./rig.js";

describe("events", () => {
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

  test("a hand-over and an adoption are told as events", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const adopted = await b.locks.adopt(hold.handOver());
    await adopted.release();
    expect.soft(types(a.told).length).toBeGreaterThan(1); // granted and nothing after it
    expect(types(b.told)[0]).not.toBe("released"); // released and nothing before it
  });

  test("one function may listen twice and leave once", async () => {
    const { open } = rig();
    const a = await open();
    let told = 0;
    const listener = (): void => void (told += 1);
    const stop = a.locks.on("granted", listener);
    a.locks.on("granted", listener);
    stop();
    await a.locks.mutex("m").acquire();
    expect(told).toBe(1);
  });
});
