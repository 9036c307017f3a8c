import { describe, expect, test } from "vitest";
import { ClaimEndedError, MisuseError } from "../../src/core/errors.js";
import { WriteHold } from "../../src/core/hold.js";
import { deadlineOf } from "../../src/core/limits.js";
import { rig } from "./rig.js";

describe("handing a hold over", () => {
  test("a hold can be handed over to another client, token and all", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    await clock.advance(500);
    const hold = await a.locks.mutex("m").acquire();
    await clock.advance(700);
    const data = JSON.parse(JSON.stringify(hold.handOver()));
    expect(hold.state).toBe("released");
    expect(a.told.at(-1)).toMatchObject({ type: "released", heldMs: 700, handedOver: true });
    expect(store.size.claims).toBe(1);
    await a.locks.close();
    const adopted = await b.locks.adopt(data);
    expect(adopted.token).toBe(hold.token);
    await clock.advance(30_000);
    adopted.throwIfLost();
    await adopted.release();
    expect(store.size.claims).toBe(0);
    await expect(b.locks.adopt(data)).rejects.toThrow(/has ended/);
  });

  test("an adopted write hold can be downgraded; an adopted mutex or read hold is a plain one", async () => {
    const { open } = rig();
    const [a, b] = [await open(), await open()];
    const { read, write } = a.locks.readWrite("rw");
    const writer = await b.locks.adopt((await write.acquire()).handOver());
    expect(writer).toBeInstanceOf(WriteHold);
    await (writer as WriteHold).downgrade();
    await writer.release();
    for (const hold of [await a.locks.mutex("m").acquire(), await read.acquire()]) {
      const adopted = await b.locks.adopt(hold.handOver());
      expect(adopted).not.toBeInstanceOf(WriteHold);
      await adopted.release();
    }
  });

  test("a dead or malformed hand-over is refused, and a hold that was re-entered is not handed over", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 1000 });
    const inner = await a.locks.mutex("m").acquire({ within: hold });
    expect(() => hold.handOver()).toThrow(MisuseError);
    await inner.release();
    const data = hold.handOver();
    await clock.advance(1100);
    await expect(b.locks.adopt(data)).rejects.toBeInstanceOf(ClaimEndedError);
    for (const [bad, what] of [
      [null, 'option "options"'],
      [{}, "name"],
      [{ ...data, id: "" }, 'option "id"'],
      [{ ...data, id: "two words" }, 'option "id"'],
      [{ ...data, id: [data.id] }, 'option "id"'],
      [{ ...data, units: 2 }, 'option "units"'],
      [{ ...data, extra: 1 }, 'option "extra"'],
      [{ ...data, renew: 1 }, 'option "renew"'],
    ] as const) {
      await expect(b.locks.adopt(bad as never), JSON.stringify(bad)).rejects.toThrow(`Invalid ${what}`);
    }
  });

  test("pitfall 7: an adoption whose answer came at its deadline, or later, is refused", async () => {
    for (const lateMs of [deadlineOf(0, 10_000), 20_000]) {
      const { clock, open } = rig();
      const [a, b] = [await open(), await open({ callTimeoutMs: 30_000 })];
      const data = (await a.locks.mutex("m").acquire()).handOver();
      b.hooks.renew = async (call) => {
        const answers = await call();
        clock.stall(lateMs);
        return answers;
      };
      await expect(b.locks.adopt(data)).rejects.toBeInstanceOf(ClaimEndedError);
    }
  });

  test("of two adoptions of one hand-over at the same time, in one client, one succeeds", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const data = (await a.locks.mutex("m").acquire()).handOver();
    const [one, two] = await Promise.allSettled([b.locks.adopt(data), b.locks.adopt(data)]);
    expect([one.status, two.status]).toEqual(["fulfilled", "rejected"]);
  });

  test("maxHoldMs goes with the hand-over: the adopted hold is not renewed for ever", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire({ maxHoldMs: 5000 });
    const adopted = await b.locks.adopt(hold.handOver());
    await clock.advance(60_000);
    expect(adopted.state).toBe("lost");
  });
});
