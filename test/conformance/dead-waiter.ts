import { expect } from "vitest";
import type { EngineEvent } from "../../src/core/engine.js";
import { Kit, type Setting } from "../../src/testing/conformance/kit.js";

/**
 * When a capacity is lowered, waiters that are too large now leave. Those that live are told; one whose lease had ended before
 * was no waiter any more, wherever in the queue it stood and whether or not somebody had asked about it.
 */
export async function deadWaiterIsNotTold(setting: Setting): Promise<void> {
  const kit = new Kit(setting);
  try {
    const engine = await kit.open();
    const name = kit.name();
    const claim = (units: number, ask = {}) => kit.claim(name, { capacity: 3, units, ...ask });
    const dead = () => claim(2, { leaseMs: kit.step });
    const [holder, first, last, small] = [claim(1), claim(3), claim(2), claim(1)];
    const [asked, forgotten] = [dead(), dead()];
    const lost: string[] = [];
    const handedOver = new Promise<EngineEvent>((resolve) =>
      engine.listen((event) => {
        if (event.kind === "lost") lost.push(event.id);
        if (event.kind === "granted" && event.id === small.id) resolve(event);
      }),
    );
    expect((await engine.claim(holder)).kind).toBe("granted");
    for (const waiter of [first, asked, forgotten, last, small]) {
      expect((await engine.claim(waiter)).kind).toBe("queued");
    }
    await kit.pass(1.5);
    expect(await engine.renew([asked])).toEqual([{ kind: "gone" }]);
    expect(await engine.setCapacity(name, 3, 1)).toEqual({ kind: "set" });
    // A push that comes after all of theirs: nothing is under way any more when it is here.
    expect(await engine.release(holder)).toBe("released");
    await handedOver;
    expect(lost.toSorted()).toEqual([first.id, last.id].toSorted());
    expect(await engine.renew([asked, forgotten])).toEqual([{ kind: "gone" }, { kind: "gone" }]);
    expect(await engine.release(small)).toBe("released");
  } finally {
    await kit.close();
  }
}
