import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineUnavailableError, NotHeldError } from "../../src/core/errors.js";
import { deadlineOf } from "../../src/core/limits.js";
import { settle } from "../../src/testing/fake-clock.js";
import { type Hooks, intercept } from "../../src/testing/intercept.js";
import { rig, types, watch } from "./rig.js";

describe("holding", () => {
  test("a hold has a token, is renewed while it lives, and passes on when it is released", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const first = await a.locks.mutex("m").acquire();
    expect(first.state).toBe("held");
    expect(first.token).toBeGreaterThan(0);
    await clock.advance(60_000);
    first.throwIfLost();
    expect(await b.locks.mutex("m").tryAcquire()).toBeNull();
    await first.release();
    const second = await b.locks.mutex("m").acquire({ waitMs: 0 });
    expect(second.token).toBeGreaterThan(first.token);
    expect(first.state).toBe("released");
    expect(() => first.throwIfLost()).toThrow(NotHeldError);
    await second.release();
  });

  test("the state is jeopardy with a third of the time left, and held again after a confirmed renewal", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.renew = () => Promise.reject(new Error("away"));
    await clock.advance(2100);
    expect(hold.state).toBe("jeopardy");
    expect(types(a.told)).toContain("jeopardy");
    delete a.hooks.renew;
    await clock.advance(500);
    expect(hold.state).toBe("held");
    expect(hold.signal.aborted).toBe(false);
    await hold.release();
  });

  test("pitfall 7: a grant whose answer was slow is given back, not returned", async () => {
    const { clock, open, store } = rig();
    const a = await open({ leaseMs: 1000 });
    a.hooks.claim = async (call) => {
      const answer = await call();
      clock.stall(1200);
      return answer;
    };
    await expect(a.locks.mutex("m").acquire({ waitMs: 0 })).rejects.toBeInstanceOf(EngineUnavailableError);
    await settle();
    expect(store.size.claims).toBe(0);
  });

  test("pitfall 7: while waiting, a grant that came too late is asked for again", async () => {
    for (const tookMs of [1200, deadlineOf(0, 1000)]) {
      const { clock, engine } = rig();
      let claims = 0;
      const claim: Hooks["claim"] = async (call) => {
        const answer = await call();
        if (claims === 0) clock.stall(tookMs);
        claims += 1;
        return answer;
      };
      // Nobody listens to its events: whoever is told of a grant is a reason to look once more.
      const locks = await connect(intercept(engine(), { claim }), { clock, leaseMs: 1000 });
      const asked = watch(locks.mutex("m").acquire());
      await clock.advance(1500);
      expect(asked.state).toBe("done");
      expect(claims).toBe(2);
      asked.value?.throwIfLost();
      await locks.close();
    }
  });

  test("a grant with too little time left is given back and asked for again", async () => {
    const { clock, open } = rig();
    const a = await open();
    let slow = true;
    a.hooks.claim = async (call) => {
      const answer = await call();
      if (slow) clock.stall(600);
      slow = false;
      return answer;
    };
    const asked = watch(a.locks.mutex("m").acquire({ leaseMs: 1000, renew: false, minRemainingMs: 800 }));
    await clock.advance(700);
    expect(asked.state).toBe("done");
    expect(asked.value?.remainingMs).toBeGreaterThan(800);
    await asked.value?.release();
  });
});
