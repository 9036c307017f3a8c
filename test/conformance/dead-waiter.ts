import { expect } from "vitest";
import type { ClaimRequest, EngineEvent } from "../../src/core/engine.js";
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

/**
 * A waiter whose lease has ended leaves when somebody asks about it, by whatever verb. Until then one at the end of the queue
 * keeps the next claim from knowing who is directly before it: it may not be named, and whoever is before it is not next.
 */
export async function deadWaiterLeaves(setting: Setting): Promise<void> {
  const kit = new Kit(setting);
  try {
    const engine = await kit.open();
    const name = kit.name();
    const [holder, first] = [kit.claim(name), kit.claim(name)];
    expect((await engine.claim(holder)).kind).toBe("granted");
    expect(await engine.claim(first)).toMatchObject({ kind: "queued", ahead: holder.id });
    const aheadAfter = async (ask: (dead: ClaimRequest) => Promise<unknown>): Promise<string | undefined> => {
      const dead = kit.claim(name, { leaseMs: kit.step });
      expect(await engine.claim(dead)).toMatchObject({ kind: "queued", ahead: first.id });
      await kit.pass(1.5);
      await ask(dead);
      const next = kit.claim(name);
      const answer = await engine.claim(next);
      expect(answer.kind).toBe("queued");
      for (const claim of [dead, next]) await engine.release(claim);
      return answer.kind === "queued" ? answer.ahead : undefined;
    };
    expect(await aheadAfter(async () => {})).toBeUndefined();
    expect(await aheadAfter((dead) => engine.renew([dead]))).toBe(first.id);
    expect(await aheadAfter((dead) => engine.resize(dead, 1))).toBe(first.id);
    expect(await aheadAfter((dead) => engine.release(dead))).toBe(first.id);
    for (const claim of [first, holder]) expect(await engine.release(claim)).toBe("released");
  } finally {
    await kit.close();
  }
}

/** A release lets in the first waiter that lives; and of a hold whose lease has ended it says so, whoever holds by then. */
export async function deadWaiterIsPassedOver(setting: Setting): Promise<void> {
  const kit = new Kit(setting);
  try {
    const engine = await kit.open();
    const name = kit.name();
    const claim = (ask = {}) => ({ ...kit.claim(name, ask), tombstone: "never" as const });
    const [holder, dead, next] = [claim(), claim({ leaseMs: kit.step }), claim()];
    const [late, last] = [claim({ leaseMs: kit.step }), claim()];
    const standing = async (...claims: ClaimRequest[]) => (await engine.renew(claims)).map(({ kind }) => kind);
    const told = new Promise<string>((resolve) =>
      engine.listen((event) => event.kind === "granted" && resolve(event.id)),
    );
    expect((await engine.claim(holder)).kind).toBe("granted");
    for (const waiter of [dead, next]) expect((await engine.claim(waiter)).kind).toBe("queued");
    await kit.pass(1.5);
    expect(await engine.release(holder)).toBe("released");
    // By the push of the release itself: whoever asks would let it in, too.
    expect(await told).toBe(next.id);
    expect(await standing(dead, next)).toEqual(["gone", "granted"]);
    for (const waiter of [late, last]) expect((await engine.claim(waiter)).kind).toBe("queued");
    expect(await engine.release(next)).toBe("released");
    await kit.pass(1.5);
    expect(await engine.release(late)).toBe("gone");
    expect(await standing(late, last)).toEqual(["gone", "granted"]);
    expect(await engine.release(last)).toBe("released");
    expect((await engine.claim(claim())).kind).toBe("granted");
  } finally {
    await kit.close();
  }
}

/** After a hand-over, too, whoever waits behind a dead one only is the first of those who wait, and is told when to ask again. */
export async function deadWaiterIsNotTheFirst(setting: Setting): Promise<void> {
  const kit = new Kit(setting);
  try {
    const engine = await kit.open();
    const name = kit.name();
    const claim = (ask = {}) => ({ ...kit.claim(name, ask), tombstone: "never" as const });
    const [holder, next, dead, last] = [claim(), claim(), claim({ leaseMs: kit.step }), claim()];
    expect((await engine.claim(holder)).kind).toBe("granted");
    for (const waiter of [next, dead, last]) expect((await engine.claim(waiter)).kind).toBe("queued");
    expect(await engine.release(holder)).toBe("released");
    expect(await engine.renew([next, last])).toMatchObject([{ kind: "granted" }, { kind: "queued", nextMs: null }]);
    await kit.pass(1.5);
    expect(await engine.renew([last])).toMatchObject([{ kind: "queued", nextMs: expect.any(Number) }]);
    for (const one of [last, next]) expect(await engine.release(one)).toBe("released");
  } finally {
    await kit.close();
  }
}
