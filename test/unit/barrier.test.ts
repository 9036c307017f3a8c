import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { CapacityMismatchError, InvalidOptionError, LockLostError, WaitTimeoutError } from "../../src/core/errors.js";
import { intercept } from "../../src/testing/intercept.js";
import { never, rig, watch } from "./rig.js";

test("all parties go on together, round after round, and nothing is left", async () => {
  const { clock, store, open, engine } = rig();
  const clients = [await open(), await open(), await open()];
  const rounds = [0, 0, 0];
  const apart: number[] = [];
  const work = clients.map(async ({ locks }, n) => {
    const barrier = locks.barrier("b", 3);
    for (let round = 0; round < 10; round += 1) {
      await barrier.wait();
      rounds[n] = round + 1;
      apart.push(Math.max(...rounds) - Math.min(...rounds));
    }
  });
  const done = watch(Promise.all(work));
  await clock.advance(120_000);
  expect(done).toMatchObject({ state: "done" });
  expect(Math.max(...apart)).toBe(1);
  expect(store.size.claims).toBe(0);
  expect(await engine().cells?.read("b")).toEqual({ version: 0, value: null });
});

test("nobody passes before the last one is there", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open()).locks.barrier("b", 3), (await open()).locks.barrier("b", 3)];
  const first = [watch(a.wait()), watch(a.wait())];
  await clock.advance(30_000);
  expect(first.map(({ state }) => state)).toEqual(["pending", "pending"]);
  const last = watch(b.wait());
  await clock.advance(10);
  expect([...first, last].map(({ state }) => state)).toEqual(["done", "done", "done"]);
});

test("a party that dies is gone with its lease, and the others are told of it", async () => {
  const { clock, open } = rig();
  const dying = await open({ label: "mortal" });
  const { locks } = await open({ label: "alive" });
  const lost = watch(dying.locks.barrier("b", 3).wait({ leaseMs: 1000 }));
  await clock.advance(10);
  const waiting = watch(locks.barrier("b", 3).wait({ waitMs: 5000 }));
  await clock.advance(10);
  dying.hooks.renew = () => never();
  dying.hooks.release = () => never();
  dying.hooks.claim = () => never();
  await clock.advance(5000);
  expect(lost.error).toBeInstanceOf(LockLostError);
  expect(waiting.error).toBeInstanceOf(WaitTimeoutError);
  const { message, missing } = waiting.error as WaitTimeoutError;
  expect(missing.map(({ label }) => label)).toEqual(["mortal"]);
  expect(message).toMatch(/1 of 3 parties are here \(alive \([^),]*\)\); mortal \([^),]*\) came and died/);
});

test("a party whose place was lost and taken by another comes again", async () => {
  const { clock, open, engine } = rig();
  const [a, b, c] = [await open(), await open(), await open()];
  const [first, second] = [watch(a.locks.barrier("b", 2).wait()), watch(b.locks.barrier("b", 2).wait())];
  const third = watch(c.locks.barrier("b", 2).wait());
  await clock.advance(5000);
  expect([first.state, second.state, third.state]).toEqual(["done", "done", "pending"]);
  const fourth = watch(a.locks.barrier("b", 2).wait());
  await clock.advance(5000);
  expect([third.state, fourth.state]).toEqual(["done", "done"]);
  expect(await engine().cells?.read("b")).toEqual({ version: 0, value: null });
});

test("a lost answer to the write that decides changes nothing", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  for (const { hooks } of [a, b]) {
    let calls = 0;
    hooks.cellWrite = async (call) => {
      const answer = await call();
      if (calls++ % 2 === 0) throw new Error("the answer was lost");
      return answer;
    };
  }
  const both = [a, b].map(({ locks }) => watch(locks.barrier("b", 2).wait()));
  await clock.advance(10_000);
  expect(both.map(({ state }) => state)).toEqual(["done", "done"]);
});

test("a wait ends early by its signal and takes its claim along; all must agree on the number of parties", async () => {
  const { clock, store, open } = rig();
  const { locks } = await open();
  const controller = new AbortController();
  const waiting = watch(locks.barrier("b", 2).wait({ signal: controller.signal }));
  await clock.advance(100);
  await expect(locks.barrier("b", 3).wait()).rejects.toBeInstanceOf(CapacityMismatchError);
  controller.abort(new Error("enough"));
  await clock.advance(100);
  expect(waiting.error).toEqual(new Error("enough"));
  expect(store.size.claims).toBe(0);
  expect(() => locks.barrier("b", 0)).toThrow(InvalidOptionError);
  await expect(locks.barrier("b", 2).wait({ renew: false } as never)).rejects.toBeInstanceOf(InvalidOptionError);
});

test("a double barrier begins and ends together", async () => {
  const { clock, store, open, engine } = rig();
  const [a, b] = [(await open()).locks.doubleBarrier("d", 2), (await open()).locks.doubleBarrier("d", 2)];
  for (let round = 0; round < 3; round += 1) {
    const entering = watch(a.enter());
    await clock.advance(5000);
    expect(entering.state).toBe("pending");
    const stay = await b.enter();
    await clock.advance(10);
    expect(entering.state).toBe("done");
    const leaving = watch(stay.leave());
    await clock.advance(30_000);
    expect(leaving.state).toBe("pending");
    expect(entering.value?.signal.aborted).toBe(false);
    expect(await entering.value?.leave()).toEqual({ died: [] });
    await clock.advance(10);
    expect(leaving).toMatchObject({ state: "done", value: { died: [] } });
  }
  expect(store.size.claims).toBe(0);
  expect(await engine().cells?.read("d")).toEqual({ version: 0, value: null });
});

test("whoever dies inside a double barrier holds the others up no longer than its lease, and they are told who", async () => {
  const { clock, open } = rig();
  const dying = await open({ label: "mortal" });
  const { locks } = await open();
  const entering = watch(dying.locks.doubleBarrier("d", 2).enter({ leaseMs: 3000 }));
  const stay = await locks.doubleBarrier("d", 2).enter();
  await clock.advance(100);
  dying.hooks.renew = () => never();
  dying.hooks.release = () => never();
  const early = watch(stay.leave({ waitMs: 500 }));
  await clock.advance(501);
  expect(early.error).toBeInstanceOf(WaitTimeoutError);
  expect((early.error as Error).message).toMatch(/mortal \(.*\) did not leave/);
  const leaving = watch(stay.leave());
  await clock.advance(3100);
  expect(leaving).toMatchObject({ state: "done", value: { died: [{ label: "mortal" }] } });
  expect(entering.value?.signal.reason).toBeInstanceOf(LockLostError);
  const late = watch((async () => entering.value?.leave())());
  await clock.advance(10_000);
  expect(late.error).toBeInstanceOf(LockLostError);
});

test("a store that shows a claim twice while it moves makes up no party", async () => {
  const { clock, engine } = rig();
  const once = engine();
  const twice = intercept(once, {});
  twice.inspect = async function* (filter) {
    for await (const state of once.inspect(filter))
      yield { ...state, holders: state.holders.flatMap((one) => [one, one]) };
  };
  const locks = await connect(twice, { clock });
  const first = watch(locks.barrier("b", 2).wait());
  await clock.advance(5000);
  expect(first.state).toBe("pending");
  const second = watch(locks.barrier("b", 2).wait());
  await clock.advance(5000);
  expect([first.state, second.state]).toEqual(["done", "done"]);
  await locks.close();
});

test("one party too many waits at the door, and its timeout is a timeout like any other", async () => {
  const { clock, store, open } = rig();
  const { locks } = await open();
  const inside = watch(Promise.all([1, 2].map(() => locks.doubleBarrier("d", 2).enter())));
  await clock.advance(100);
  const third = watch(locks.doubleBarrier("d", 2).enter({ waitMs: 1000 }));
  await clock.advance(1001);
  expect(third.error).toBeInstanceOf(WaitTimeoutError);
  expect(String(third.error)).toMatch(/1000 ms: all 2 places are taken/);
  expect(store.size.claims).toBe(2);
  await Promise.all((inside.value ?? []).map((stay) => stay.leave()));
});

test("whoever comes back to a double barrier after its round is over does not wait for the next round", async () => {
  const { clock, open } = rig();
  const [a, b, c, d] = await Promise.all([open(), open(), open(), open()]);
  const barrierOf = ({ locks }: { locks: (typeof a)["locks"] }) => locks.doubleBarrier("d", 2);
  const entering = watch(barrierOf(a).enter());
  const stay = await barrierOf(b).enter();
  await clock.advance(10);
  const early = watch(stay.leave({ waitMs: 500 }));
  await clock.advance(501);
  expect(early.error).toBeInstanceOf(WaitTimeoutError);
  expect(await entering.value?.leave()).toEqual({ died: [] });
  const next = [watch(barrierOf(c).enter()), watch(barrierOf(d).enter())];
  await clock.advance(100);
  expect(next.map(({ state }) => state)).toEqual(["done", "done"]);
  const leaving = watch(stay.leave());
  await clock.advance(100);
  expect(leaving).toMatchObject({ state: "done", value: { died: [] } });
  const both = next.map(({ value }) => watch((async () => value?.leave())()));
  await clock.advance(100);
  expect(both).toMatchObject([{ value: { died: [] } }, { value: { died: [] } }]);
});

test("what one party has tidied up is not written again by another", async () => {
  const { clock, open } = rig();
  const [slow, quick] = [await open(), await open()];
  const removed: string[] = [];
  let answer = (): void => {};
  const late = new Promise<void>((resolve) => (answer = resolve));
  for (const [who, { hooks }] of Object.entries({ slow, quick }))
    hooks.cellWrite = (call, { value }) => (value === null && removed.push(who), call());
  slow.hooks.release = async (call) => {
    const released = await call();
    await late;
    return released;
  };
  const parties = [slow, quick].map(({ locks }) => watch(locks.barrier("b", 2).wait()));
  await clock.advance(1000);
  expect(parties.map(({ state }) => state)).toEqual(["pending", "done"]);
  answer();
  await clock.advance(1000);
  expect(parties[0]?.state).toBe("done");
  expect(removed).toEqual(["quick"]);
});
