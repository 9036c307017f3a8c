import { expect, test } from "vitest";
import type { Clock } from "../../src/core/clock.js";
import type { Sign } from "../../src/core/engine.js";
import { Living, Renewal } from "../../src/core/renewal.js";

class Sample extends Living {
  constructor(
    readonly id: string,
    readonly everyMs: number,
  ) {
    super();
  }
  sign(): Sign {
    return { name: this.id, id: this.id };
  }
  heard(): void {}
}

/** A clock that passes while its timers wait for a busy event loop. */
function lateClock() {
  let now = 0;
  let armed: { readonly at: number; readonly run: () => void } | null = null;
  let armings = 0;
  const clock: Clock = {
    now: () => now,
    wallMs: () => now,
    after: (ms, run) => ((armings += 1), (armed = { at: now + ms, run })),
    cancel: () => (armed = null),
  };
  const fireIfDue = (): void => {
    if (armed !== null && armed.at <= now) armed.run();
  };
  return { clock, fireIfDue, pass: (ms: number) => void (now += ms), armings: () => armings };
}

test("signs that are overdue are not put off by others that come", async () => {
  const { clock, fireIfDue, pass, armings } = lateClock();
  const sent: string[] = [];
  const renew = async (signs: readonly Sign[]) => {
    sent.push(...signs.map((sign) => sign.id));
    return signs.map(() => ({ kind: "unknown" as const, cause: "not asked" }));
  };
  const renewal = new Renewal(
    renew,
    clock,
    () => 100,
    () => {},
  );
  renewal.add(new Sample("short", 500), clock.now());
  pass(501);
  for (let n = 0; n < 10; n += 1) {
    renewal.add(new Sample(`long ${n}`, 3333), clock.now());
    pass(1);
  }
  // Once when it was found overdue, and not again: each arming puts it off.
  expect(armings()).toBe(2);
  fireIfDue();
  await Promise.resolve();
  expect(sent).toEqual(["short"]);
  renewal.stop();
});
