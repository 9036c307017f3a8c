import { describe, expect, test } from "vitest";
import { MisuseError, UpgradeDeadlockError } from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { settle } from "../../src/testing/fake-clock.js";
import { claimOf, never, rig, watch } from "./rig.js";

describe("read-write lock", () => {
  test("pitfall 29: taking the write lock while reading fails at once; write then read and downgrade work", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const lock = a.locks.readWrite("rw");
    await lock.read.using(async (hold) => {
      await expect(lock.write.acquire()).rejects.toBeInstanceOf(UpgradeDeadlockError);
      await expect(lock.write.tryAcquire({ within: hold })).rejects.toBeInstanceOf(UpgradeDeadlockError);
    });
    const other = b.locks.readWrite("rw").read;
    await lock.write.using(async (writing) => {
      await lock.read.using((reading) => expect(reading.token).toBe(writing.token));
      const reader = watch(other.acquire());
      await clock.advance(10);
      expect(reader.state).toBe("pending");
      const { token } = writing;
      await writing.downgrade();
      await clock.advance(10);
      expect(reader.state).toBe("done");
      expect(writing.token).toBe(token);
      await expect(lock.write.acquire()).rejects.toBeInstanceOf(UpgradeDeadlockError);
      expect(await lock.write.isHeld()).toBe(false);
      expect(await lock.read.holders()).toHaveLength(2);
      await reader.value?.release();
    });
    expect(await lock.read.isHeld()).toBe(false);
  });

  test("pitfall 30: readers that arrive after a waiting writer wait behind it", async () => {
    const { clock, open } = rig();
    const a = await open();
    const rw = a.locks.readWrite("rw");
    const reading = await rw.read.acquire();
    const writer = watch(rw.write.acquire());
    await settle();
    const later = watch(rw.read.acquire());
    await clock.advance(100);
    expect([writer.state, later.state]).toEqual(["pending", "pending"]);
    await reading.release();
    await clock.advance(10);
    expect([writer.state, later.state]).toEqual(["done", "pending"]);
    await writer.value?.release();
    await clock.advance(10);
    expect(later.state).toBe("done");
    await later.value?.release();
  });

  test("pitfall 31: a dead reader leaves at the end of its own lease, whatever live readers renew", async () => {
    const { clock, engine, open } = rig();
    const a = await open({ leaseMs: 2000 });
    const rw = a.locks.readWrite("rw");
    const live = await rw.read.acquire();
    await engine().claim(claimOf("dead", { name: "rw", capacity: READERS_MAX, leaseMs: 3000 }));
    await clock.advance(2900);
    expect(await rw.read.holders()).toHaveLength(2);
    await clock.advance(200);
    expect(await rw.read.holders()).toHaveLength(1);
    live.throwIfLost();
    await live.release();
  });

  test("pitfall 65: units only shrink, and the hold is a reader from the moment that is sent", async () => {
    const { clock, engine, open } = rig();
    const a = await open();
    const writing = await a.locks.readWrite("rw").write.acquire();
    const id = writing.id;
    expect(await engine().resize({ name: "rw", id }, READERS_MAX)).toBe("resized");
    expect(await engine().resize({ name: "rw", id }, 1)).toBe("resized");
    expect(await engine().resize({ name: "rw", id }, 2)).toBe("refused");
    a.hooks.resize = () => never();
    const shrinking = watch(writing.downgrade());
    await expect(a.locks.readWrite("rw").write.acquire({ within: writing })).rejects.toBeInstanceOf(
      UpgradeDeadlockError,
    );
    delete a.hooks.resize;
    await clock.advance(5100);
    expect(shrinking.state).toBe("done");
    await writing.release();
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
});

test("each side tells of its own holders", async () => {
  const { open } = rig();
  const rw = (await open()).locks.readWrite("rw");
  const shown = async () => [
    (await rw.read.holders()).map(({ id }) => id),
    (await rw.write.holders()).map(({ id }) => id),
  ];
  const writer = await rw.write.acquire();
  expect(await shown()).toEqual([[], [writer.id]]);
  await writer.release();
  const readers = [await rw.read.acquire(), await rw.read.acquire()];
  expect(await shown()).toEqual([readers.map(({ id }) => id), []]);
  await Promise.all(readers.map((reader) => reader.release()));
});
