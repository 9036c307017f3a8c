import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidNameError, InvalidOptionError, UnsupportedError } from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { rig } from "./rig.js";

describe("options and misuse", () => {
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
    await (await locks.semaphore("s", 64).acquire({ fence: "exact" })).release();
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

  test("what a store does not guarantee can be demanded, and is refused at once", async () => {
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

  test("an id that is in use is refused as such", async () => {
    const { open } = rig();
    const a = await open();
    const id = "an-id-written-down-before-asking";
    const hold = await a.locks.mutex("m").acquire({ id });
    const error = await a.locks
      .mutex("m")
      .acquire({ id })
      .catch((one: Error) => one);
    expect(hold.state).toBe("held");
    expect((error as Error).message).not.toMatch(/nothing is held/);
  });

  test("null for options, and a listener that is no function, are refused by name", async () => {
    const { open } = rig();
    const a = await open();
    await expect.soft(connect("memory:", null as never)).rejects.toBeInstanceOf(InvalidOptionError);
    expect(() => a.locks.on("lost", undefined as never)).toThrow();
  });

  test("a label cannot carry terminal escapes into another program's message", async () => {
    const { open } = rig();
    const label = "\u001b[2J\nfree: true";
    const a = await open({ label }).catch((error: unknown) => {
      expect(error).toBeInstanceOf(InvalidOptionError);
      return null;
    });
    if (a === null) return;
    const b = await open();
    await a.locks.mutex("m").acquire();
    const error = await b.locks
      .mutex("m")
      .acquire({ waitMs: 0 })
      .catch((one: Error) => one);
    expect((error as Error).message).not.toContain("\u001b");
  });

  test("memory:jobs, memory://jobs and MEMORY:jobs are one store", async () => {
    const one = await connect("memory:r29");
    const two = await connect("memory://r29").catch(() => null);
    const hold = await one.mutex("m").acquire();
    expect.soft(two === null ? null : await two.mutex("m").tryAcquire()).toBeNull();
    await hold.release();
    await one.close();
    await two?.close();
    await (await connect("MEMORY:")).close();
  });

  test("null is refused for every option of acquire alike", async () => {
    const { open } = rig();
    const a = await open();
    for (const option of ["waitMs", "leaseMs", "renew", "minRemainingMs"]) {
      const asked = a.locks.mutex(`m-${option}`).acquire({ [option]: null });
      await expect.soft(asked, option).rejects.toBeInstanceOf(InvalidOptionError);
    }
  });

  test("a guarantee that is demanded as undefined is not demanded", async () => {
    const { engine } = rig();
    const require = { token: undefined } as never;
    const opened = await connect(engine(), { require }).catch((error: Error) => error);
    expect(opened instanceof Error ? opened.message : "").not.toMatch(/must be undefined/);
    if (!(opened instanceof Error)) await opened.close();
  });
});
