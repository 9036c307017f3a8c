import assert from "node:assert/strict";
import { waiterLeaseMs } from "../../src/core/limits.js";
import { Kit, type Setting } from "../../src/testing/conformance/kit.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

const HOUR_MS = 3_600_000;

/** Waiters are part of a name: a dead one cannot be released, wherever it stands, and a capacity counts for all of them. */
export async function waitersCount(setting: Setting): Promise<void> {
  const kit = new Kit(setting);
  try {
    const engine = await kit.open();
    const name = kit.name();
    const [holder, front, dead] = [
      kit.claim(name, { leaseMs: HOUR_MS }),
      kit.claim(name, { leaseMs: HOUR_MS }),
      kit.claim(name, { leaseMs: kit.step }),
    ];
    assert.equal((await engine.claim(holder)).kind, "granted");
    for (const claim of [front, dead]) assert.equal((await engine.claim(claim)).kind, "queued");
    for (const [from, to] of [
      [2, 3],
      [3, 2],
    ] as const) {
      assert.deepEqual(await engine.setCapacity(name, from, to), { kind: "mismatch", capacity: 1 });
    }
    await setting.clock?.advance(waiterLeaseMs(kit.step) + 1);
    await engine.renew([holder, front]);
    assert.equal(await engine.release(dead), "gone");
    assert.equal(await engine.release(front), "released");
    assert.equal(await engine.release(holder), "released");
  } finally {
    await kit.close();
  }
}

/** Whoever is let in by a release is told its token and, if it asked for an exact fence, who else is live: nobody. */
export async function handedOverWithItsFence(setting: Setting): Promise<void> {
  const kit = new Kit(setting);
  try {
    const engine = await kit.open();
    const told = kit.listen(engine);
    for (const exact of [true, false]) {
      const name = kit.name();
      const [holder, next] = [kit.claim(name, { exact }), kit.claim(name, { exact })];
      assert.equal((await engine.claim(holder)).kind, "granted");
      const queued = await engine.claim(next);
      assert.ok(queued.kind === "queued");
      assert.equal(await engine.release({ ...holder, tombstone: "never" }), "released");
      const pushed = () => told.find((event) => event.kind === "granted" && event.id === next.id);
      await kit.until(10, "it is told", () => pushed() !== undefined);
      const { token } = queued;
      assert.deepEqual(pushed(), {
        ...{ kind: "granted", name, id: next.id, token, floor: token },
        ...(exact ? { live: [token] } : {}),
      });
      assert.equal(await engine.release(next), "released");
    }
  } finally {
    await kit.close();
  }
}

/**
 * While one holds alone, the first waiter is told to ask again when that one's lease ends, however often that was moved. The contract
 * allows an earlier moment, which costs a call.
 */
export async function waitersKnowTheEnd(setting: Setting, seed: number): Promise<void> {
  const kit = new Kit(setting);
  const chance = new SeededChance(seed);
  try {
    const engine = await kit.open();
    const name = kit.name();
    const holder = kit.claim(name, { leaseMs: 20_000 });
    const waiter = kit.claim(name, { leaseMs: HOUR_MS });
    assert.equal((await engine.claim(holder)).kind, "granted");
    assert.equal((await engine.claim(waiter)).kind, "queued");
    for (let n = 0; n < 20; n += 1) {
      await setting.clock?.advance(chance.between(1, 5_000));
      const [held] = await engine.renew([{ ...holder, leaseMs: chance.between(10_000, 30_000) }]);
      const [waits] = await engine.renew([waiter]);
      assert.equal(held?.kind, "granted");
      assert.equal(waits?.kind, "queued");
      assert.equal(waits.nextMs, held.leftMs, `seed ${seed}`);
    }
  } finally {
    await kit.close();
  }
}
