import assert from "node:assert/strict";
import { waiterLeaseMs } from "../../src/core/limits.js";
import { Kit, type Setting } from "../../src/testing/conformance/kit.js";

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
