import { expect } from "vitest";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { waiterLeaseMs } from "../../src/core/limits.js";
import { Kit, type Setting } from "../../src/testing/conformance/kit.js";
import { states } from "../faults/rig.js";

/**
 * A lease is over at its very end, to the millisecond, and whatever is asked then finds it so: the verbs of who had it, another
 * claim, and who only looks.
 */
export async function overAtItsEnd(setting: Setting): Promise<void> {
  const kit = new Kit(setting);
  const advance = async (ms: number): Promise<void> => setting.clock?.advance(ms);
  const asked: readonly ((engine: Engine, ended: ClaimRequest) => Promise<unknown>)[] = [
    async (engine, ended) => expect(await engine.renew([ended])).toEqual([{ kind: "gone" }]),
    async (engine, ended) => expect(await engine.resize(ended, 1)).toBe("gone"),
    async (engine, ended) => expect(await engine.release(ended)).toBe("gone"),
    async (engine, { name }) => {
      const next = kit.claim(name, { capacity: 2, units: 2, wait: false });
      expect((await engine.claim(next)).kind).toBe("granted");
    },
    async (engine, { name }) => expect(await states(engine, { name })).toEqual([]),
  ];
  try {
    const engine = await kit.open();
    for (const ask of asked) {
      const claim = kit.claim(kit.name(), { capacity: 2, units: 2, leaseMs: kit.step });
      expect((await engine.claim(claim)).kind).toBe("granted");
      await advance(kit.step - 1);
      expect((await states(engine, { name: claim.name }))[0]?.holders).toHaveLength(1);
      await advance(1);
      await ask(engine, claim);
    }
    // In the middle of a queue, where nothing but a question removes it.
    const queue = kit.name();
    const [holder, first] = [kit.claim(queue, { capacity: 2, units: 2 }), kit.claim(queue, { capacity: 2, units: 2 })];
    expect((await engine.claim(holder)).kind).toBe("granted");
    expect((await engine.claim(first)).kind).toBe("queued");
    for (const ask of asked.slice(0, 3)) {
      const waiter = kit.claim(queue, { capacity: 2, leaseMs: kit.step });
      expect((await engine.claim(waiter)).kind).toBe("queued");
      await advance(waiterLeaseMs(kit.step));
      await ask(engine, waiter);
      await engine.renew([holder, first]);
    }
    // Whoever waits for it has it from then on, also for who only looks.
    const name = kit.name();
    const [short, next] = [kit.claim(name, { leaseMs: kit.step }), kit.claim(name)];
    expect((await engine.claim(short)).kind).toBe("granted");
    expect((await engine.claim(next)).kind).toBe("queued");
    await advance(kit.step);
    const [state] = await states(engine, { name });
    expect(state?.holders.map(({ id }) => id)).toEqual([next.id]);
    expect(state?.waiters).toEqual([]);
  } finally {
    await kit.close();
  }
}
