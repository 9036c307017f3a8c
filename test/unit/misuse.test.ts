import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import {
  ClaimEndedError,
  ClosedError,
  HoldfastError,
  InvalidNameError,
  InvalidOptionError,
  LockLostError,
  MisuseError,
  NotHeldError,
  UnsupportedError,
} from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import type { AcquireOptions } from "../../src/core/options.js";
import { rig, watch } from "./rig.js";

describe("bad input and misuse", () => {
  test.each([
    ["", /empty/],
    ["a".repeat(513), /513 bytes/],
    ["é".repeat(257), /514 bytes/],
    ["a\u0000b", /control/],
    ["a\nb", /control/],
    ["a\u0085b", /control/],
    ["\ud800", /surrogate/],
    [42, /a number/],
    [null, /null/],
    [undefined, /undefined/],
  ])("the name %j is refused with what is allowed", async (name, problem) => {
    const { open } = rig();
    const { locks, calls } = await open();
    const bad = name as string;
    for (const make of [() => locks.mutex(bad), () => locks.readWrite(bad), () => locks.semaphore(bad, 1)]) {
      expect(make).toThrow(InvalidNameError);
      expect(make).toThrow(problem);
      expect(make).toThrow(/1 to 512 bytes of UTF-8 without control characters/);
    }
    expect(calls.claim).toBe(0);
  });

  test.each(["a", "é".repeat(256), "a/b:c{d}%e", "\u{1f512}", "DROP TABLE x; --"])(
    "the name %j is allowed",
    async (name) => {
      const { open } = rig();
      const { locks } = await open();
      await locks.mutex(name).using((hold) => expect(hold.name).toBe(name));
    },
  );

  test.each<[string, Record<string, unknown>]>([
    ["waitMs", { waitMs: -1 }],
    ["waitMs", { waitMs: Number.NaN }],
    ["waitMs", { waitMs: Infinity }],
    ["waitMs", { waitMs: "5" }],
    ["leaseMs", { leaseMs: 99 }],
    ["leaseMs", { leaseMs: 24 * 3_600_000 + 1 }],
    ["leaseMs", { leaseMs: "10s" }],
    ["renew", { renew: "yes" }],
    ["maxHoldMs", { maxHoldMs: 0 }],
    ["maxHoldMs", { maxHoldMs: 1000, renew: false }],
    ["minRemainingMs", { minRemainingMs: 10_000 }],
    ["minRemainingMs", { minRemainingMs: -5 }],
    ["signal", { signal: {} }],
    ["label", { label: "x".repeat(257) }],
    ["label", { label: 7 }],
    ["id", { id: "short" }],
    ["id", { id: "not allowed: spaces and such" }],
    ["fence", { fence: "none" }],
    ["ttl", { ttl: 500 }],
    ["permits", { permits: 2 }],
  ])("option %s in %o is refused, naming it, and the store is not asked", async (option, options) => {
    const { open } = rig();
    const { locks, calls } = await open();
    const mutex = locks.mutex("m");
    const bad = options as AcquireOptions;
    for (const call of [() => mutex.acquire(bad), () => mutex.tryAcquire(bad)]) {
      const error = await call().catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(InvalidOptionError);
      expect((error as InvalidOptionError).option).toBe(option);
      expect((error as Error).message).toMatch(/Allowed: ./);
    }
    expect(calls.claim).toBe(0);
  });

  test("options that are no object, and permits and capacities out of range, are refused", async () => {
    const { open } = rig();
    const { locks } = await open();
    await expect(locks.mutex("m").acquire(500 as never)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(locks.mutex("m").tryAcquire(null as never)).rejects.toBeInstanceOf(InvalidOptionError);
    for (const capacity of [0, -1, 1.5, READERS_MAX, Number.NaN]) {
      expect(() => locks.semaphore("s", capacity)).toThrow(InvalidOptionError);
      await expect(locks.semaphore("s", 2).resize(capacity)).rejects.toBeInstanceOf(InvalidOptionError);
    }
    for (const permits of [0, 3, 1.5]) {
      await expect(locks.semaphore("s", 2).acquire({ permits })).rejects.toThrow(/a whole number from 1 to 2/);
    }
    await expect(locks.semaphore("s", 65).acquire({ fence: "exact" })).rejects.toThrow(/capacities up to 64/);
    expect(() => locks.on("lots" as never, () => {})).toThrow(/queued, granted/);
    expect(() => locks.inspect({ nam: "x" } as never)).toThrow(InvalidOptionError);
  });

  test("connect refuses what it cannot open, without showing the URL's password", async () => {
    for (const target of ["mutex", "", 5, null, {}, "redis+foo://user:secret@host"]) {
      const error = await connect(target as never).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(InvalidOptionError);
      expect((error as Error).message).toMatch(/memory:/);
      expect((error as Error).message).not.toMatch(/secret/);
    }
    for (const options of [{ leaseMs: 1 }, { callTimeoutMs: 0 }, { tokenBase: -1 }, { label: 1 }, { ttl: 1 }]) {
      await expect(connect("memory:", options as never)).rejects.toBeInstanceOf(InvalidOptionError);
    }
    await expect(connect("memory:", { require: { speed: "high" } as never })).rejects.toBeInstanceOf(
      InvalidOptionError,
    );
  });

  test("what a store does not promise can be demanded, and is refused at once", async () => {
    const demanding = connect("memory:", { require: { exclusion: ["consensus", "single-server"] } });
    await expect(demanding).rejects.toBeInstanceOf(UnsupportedError);
    await expect(demanding).rejects.toThrow(
      /memory cannot do this: exclusion must be consensus or single-server, and it guarantees one-process/,
    );
    const locks = await connect("memory:", { require: { order: "fifo", token: ["monotonic", "monotonic-if-clocks"] } });
    expect(locks.guarantees.order).toBe("fifo");
    await locks.close();
  });

  test("HOLDFAST_URL names the store when connect is given none", async () => {
    process.env.HOLDFAST_URL = "memory:from-the-environment";
    try {
      const [one, two] = [await connect(), await connect("memory:from-the-environment")];
      const hold = await one.mutex("m").acquire();
      expect(await two.mutex("m").tryAcquire()).toBeNull();
      await hold.release();
      await one.close();
      await two.close();
    } finally {
      delete process.env.HOLDFAST_URL;
    }
  });

  test("every client that opens memory: in this process shares one store; other names do not", async () => {
    const [one, two, other] = [await connect("memory:"), await connect("memory:"), await connect("memory:other")];
    await using hold = await one.mutex("shared-by-url").acquire();
    hold.throwIfLost();
    expect(await two.mutex("shared-by-url").tryAcquire()).toBeNull();
    expect(await other.mutex("shared-by-url").isHeld()).toBe(false);
    await Promise.all([two.close(), other.close()]);
  });

  test("releasing twice is the same release; using a released hold is an error", async () => {
    const { open } = rig();
    const { locks, calls } = await open();
    const hold = await locks.mutex("m").acquire({ renew: false });
    await Promise.all([hold.release(), hold.release()]);
    await hold.release();
    expect(calls.release).toBe(1);
    expect(hold.remainingMs).toBe(0);
    expect(() => hold.throwIfLost()).toThrow(NotHeldError);
    await expect(hold.extend(1000)).rejects.toBeInstanceOf(NotHeldError);
    expect(() => hold.handOver()).toThrow(NotHeldError);
  });

  test("after close everything is refused, and closing twice is the same close", async () => {
    const { open } = rig();
    const { locks, calls } = await open();
    const mutex = locks.mutex("m");
    await locks.close();
    await locks.close();
    await expect(mutex.acquire()).rejects.toBeInstanceOf(ClosedError);
    await expect(mutex.tryAcquire()).rejects.toThrow(/closed.*[Cc]onnect again/);
    await expect(mutex.isHeld()).rejects.toBeInstanceOf(ClosedError);
    await expect(locks.semaphore("s", 2).resize(3)).rejects.toBeInstanceOf(ClosedError);
    expect(() => locks.inspect()).toThrow(ClosedError);
    expect(calls.claim).toBe(0);
  });

  test("a foreign hold, or none, cannot be re-entered", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    await expect(b.locks.mutex("m").acquire({ within: hold })).rejects.toBeInstanceOf(MisuseError);
    await expect(a.locks.mutex("other").acquire({ within: hold })).rejects.toThrow(/a hold of "m", not of "other"/);
    await expect(a.locks.mutex("m").acquire({ within: {} as never })).rejects.toBeInstanceOf(MisuseError);
    await hold.release();
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
    for (const bad of [
      null,
      {},
      { ...data, id: "" },
      { ...data, units: 2 },
      { ...data, extra: 1 },
      { ...data, renew: 1 },
    ]) {
      await expect(b.locks.adopt(bad as never)).rejects.toBeInstanceOf(HoldfastError);
    }
  });

  test("downgrading waits for inner holds", async () => {
    const { open } = rig();
    const a = await open();
    const { write } = a.locks.readWrite("rw");
    const outer = await write.acquire();
    const inner = await write.acquire({ within: outer });
    await expect(outer.downgrade()).rejects.toBeInstanceOf(MisuseError);
    await inner.release();
    await outer.downgrade();
    await outer.release();
  });

  test("extending a lost hold says that it is lost", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 1000, renew: false });
    await clock.advance(1100);
    await expect(hold.extend(1000)).rejects.toBeInstanceOf(LockLostError);
    const failed = watch(hold.release());
    await clock.advance(0);
    expect(failed.error).toBeInstanceOf(LockLostError);
  });
});
