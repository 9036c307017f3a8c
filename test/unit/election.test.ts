import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import {
  AcquireTimeoutError,
  ClosedError,
  EngineRefusedError,
  InvalidOptionError,
  LockLostError,
  UnsupportedError,
} from "../../src/core/errors.js";
import type { Leader } from "../../src/recipes/election.js";
import { intercept } from "../../src/testing/intercept.js";
import { never, rig, watch } from "./rig.js";

test("one leads, the others wait, everybody knows who", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open({ label: "a" })).locks, (await open({ label: "b" })).locks];
  expect(await b.election("e").leader()).toBe(null);
  const term = await a.election("e").campaign({ value: "10.0.0.1" });
  expect(await b.election("e").leader()).toMatchObject({ value: "10.0.0.1", token: term.token, owner: { label: "a" } });
  await expect(b.election("e").campaign({ waitMs: 0 })).rejects.toBeInstanceOf(AcquireTimeoutError);
  const next = watch(b.election("e").campaign({ value: "10.0.0.2" }));
  await clock.advance(60_000);
  expect(next.state).toBe("pending");
  term.throwIfLost();
  await term.resign();
  await clock.advance(10);
  expect(next.value?.token).toBeGreaterThan(term.token);
  expect(await a.election("e").leader()).toMatchObject({ value: "10.0.0.2" });
  expect(() => term.throwIfLost()).toThrow(/not held/);
  await next.value?.[Symbol.asyncDispose]();
});

test("a deposed leader's signal aborts before the next one is elected", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  const term = await a.locks.election("e").campaign();
  const next = b.locks.election("e").campaign();
  let deposedAt = Infinity;
  term.signal.addEventListener("abort", () => (deposedAt = clock.now()));
  let electedAt = -1;
  void next.then(() => (electedAt = clock.now()));
  a.hooks.renew = () => never();
  a.hooks.release = () => never();
  await clock.advance(30_000);
  expect(electedAt).toBeGreaterThan(deposedAt);
  expect(term.state).toBe("lost");
  expect(term.signal.reason).toBeInstanceOf(LockLostError);
});

test("observers see every term, in order", async () => {
  const { clock, open } = rig();
  const clients = [await open(), await open()];
  const observer = (await open()).locks;
  const seen: Leader[] = [];
  const controller = new AbortController();
  const observing = watch(
    (async () => {
      for await (const leader of observer.election("e").observe({ signal: controller.signal })) seen.push(leader);
    })(),
  );
  const terms: number[] = [];
  for (let n = 0; n < 20; n += 1) {
    const term = await clients[n % 2]?.locks.election("e").campaign({ value: `${n}` });
    terms.push(term?.token ?? 0);
    await term?.resign();
    if (n % 5 === 0) await clock.advance(100);
  }
  await clock.advance(100);
  expect(seen.map(({ token }) => token)).toEqual(terms);
  expect(seen.map(({ value }) => value)).toEqual(terms.map((_, n) => `${n}`));
  const late: Leader[] = [];
  for await (const leader of observer.election("e").observe()) {
    late.push(leader);
    break;
  }
  expect(late[0]?.token).toBe(terms.at(-1));
  controller.abort(new Error("enough"));
  await clock.advance(10);
  expect(observing.error).toEqual(new Error("enough"));
});

test("of all terms only the last ones are kept, and an observer that is behind by as many misses none", async () => {
  const { open, engine } = rig();
  const { locks } = await open();
  const kept = async (): Promise<Leader[]> =>
    (JSON.parse((await engine().cells?.read("e"))?.value ?? "{}") as { election: Leader[] }).election;
  const terms: number[] = [];
  const observing = locks.election("e").observe();
  for (let n = 0; n < 70; n += 1) {
    const term = await locks.election("e").campaign();
    terms.push(term.token);
    await term.resign();
    if (n === 0) expect((await observing.next()).value).toMatchObject({ token: terms[0] });
    if (n !== 32) continue;
    for (const token of terms.slice(1)) expect((await observing.next()).value).toMatchObject({ token });
    await observing.return(undefined);
  }
  expect((await kept()).map(({ token }) => token)).toEqual(terms.slice(-32));
});

test("pitfall 43: a leader paused between its election and its first word does not come back as a second one", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  const seen: number[] = [];
  const observer = (await open()).locks.election("e");
  void (async () => {
    for await (const { token } of observer.observe()) seen.push(token);
  })().catch(() => {});
  let goOn = (): void => {};
  a.hooks.cellWrite = async (call) => {
    await new Promise<void>((resolve) => (goOn = resolve));
    return call();
  };
  a.hooks.renew = () => never();
  const paused = watch(a.locks.election("e").campaign());
  await clock.advance(100);
  const next = watch(b.locks.election("e").campaign());
  await clock.advance(12_000);
  expect(next.state).toBe("done");
  goOn();
  await clock.advance(12_000);
  expect(paused.state).toBe("failed");
  expect(seen).toEqual([next.value?.token]);
  expect(await observer.leader()).toMatchObject({ token: next.value?.token });
});

test("pitfall 43: what ends one term cannot touch the next", async () => {
  const { clock, open, engine } = rig();
  const { locks } = await open();
  const first = await locks.election("e").campaign();
  const [old] = await locks.mutex("e").holders();
  await engine().release({ name: "e", id: old?.id ?? "" });
  const second = await locks.election("e").campaign();
  await clock.advance(100);
  expect(first.state).toBe("lost");
  // The old term's loss, told again and late.
  await engine().release({ name: "e", id: old?.id ?? "" });
  await expect(first.resign()).rejects.toBeInstanceOf(LockLostError);
  await clock.advance(30_000);
  expect(second.state).toBe("held");
  expect(second.token).toBeGreaterThan(first.token);
});

test("lead runs again and again, never twice at a time, with a pause between", async () => {
  const { clock, open } = rig();
  const { locks, hooks, told } = await open();
  const controller = new AbortController();
  let running = 0;
  let most = 0;
  const tokens: number[] = [];
  const leading = watch(
    locks.election("e").lead({ signal: controller.signal, leaseMs: 1000 }, async (term) => {
      tokens.push(term.token);
      most = Math.max(most, (running += 1));
      // Goes on for a while after its term was lost, as careless programs do.
      if (tokens.length === 3) await new Promise<void>((resolve) => clock.after(20_000, resolve));
      running -= 1;
      if (tokens.length === 2) throw new Error("failed");
    }),
  );
  await clock.advance(2000);
  expect(tokens.length).toBe(3);
  hooks.renew = () => never();
  await clock.advance(5000);
  delete hooks.renew;
  await clock.advance(10_000);
  expect(tokens.length).toBe(3);
  await clock.advance(10_000);
  expect(tokens.length).toBeGreaterThan(3);
  // Short terms: the pause between them grows to a second.
  expect(tokens.length).toBeLessThan(25);
  expect(most).toBe(1);
  expect(tokens).toEqual(tokens.toSorted((one, two) => one - two));
  expect(told.some((event) => event.type === "warning" && event.message.includes('leader of "e" failed'))).toBe(true);
  controller.abort(new Error("enough"));
  await clock.advance(2000);
  expect(leading.error).toEqual(new Error("enough"));
});

test("lead outlasts a busy election, and ends by what will not be otherwise next time", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  const term = await a.locks.election("e").campaign();
  let terms = 0;
  const leading = watch(b.locks.election("e").lead({ waitMs: 100 }, () => void (terms += 1)));
  await clock.advance(5000);
  expect([leading.state, terms]).toEqual(["pending", 0]);
  await term.resign();
  await clock.advance(5000);
  expect([leading.state, terms > 0]).toEqual(["pending", true]);
  const refused = new EngineRefusedError("memory", "Give it the right to write.", new Error("read only"));
  b.hooks.claim = () => Promise.reject(refused);
  await clock.advance(5000);
  expect(leading.error).toBe(refused);
});

test("lead outlasts a store that is away, and ends with its client", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open();
  hooks.cellRead = () => never();
  let terms = 0;
  const leading = watch(locks.election("e").lead(() => void (terms += 1)));
  await clock.advance(20_000);
  expect([leading.state, terms]).toEqual(["pending", 0]);
  delete hooks.cellRead;
  await clock.advance(20_000);
  expect(terms).toBeGreaterThan(0);
  const closing = locks.close();
  await clock.advance(10_000);
  await closing;
  expect(leading.error).toBeInstanceOf(ClosedError);
  expect(clock.pending).toBe(0);
});

test("a value must be small; where a store keeps no cells there is a leader, but nobody to observe it", async () => {
  const { open, engine } = rig();
  const { locks } = await open();
  await expect(locks.election("e").campaign({ value: "x".repeat(1025) })).rejects.toBeInstanceOf(InvalidOptionError);
  await expect(locks.election("e").campaign({ renew: false } as never)).rejects.toBeInstanceOf(InvalidOptionError);
  const bare = await connect({ ...intercept(engine(), {}), cells: null });
  const term = await bare.election("e").campaign({ value: "v" });
  expect(await bare.election("e").leader()).toMatchObject({ value: "v" });
  await expect(bare.election("e").observe().next()).rejects.toBeInstanceOf(UnsupportedError);
  await term.resign();
  await bare.close();
});

test("a campaign that is aborted while its term is announced gives the term back", async () => {
  const { clock, store, open } = rig();
  const { locks, hooks } = await open();
  let goOn = (): void => {};
  hooks.cellWrite = async (call) => {
    await new Promise<void>((resolve) => (goOn = resolve));
    return call();
  };
  const controller = new AbortController();
  const led: number[] = [];
  const campaign = watch(locks.election("e").campaign({ signal: controller.signal }));
  await clock.advance(100);
  controller.abort(new Error("enough"));
  goOn();
  await clock.advance(100);
  expect(campaign.error).toEqual(new Error("enough"));
  expect(store.size.claims).toBe(0);
  const again = new AbortController();
  const leading = watch(locks.election("e").lead({ signal: again.signal }, ({ token }) => led.push(token)));
  await clock.advance(100);
  again.abort(new Error("enough again"));
  goOn();
  await clock.advance(100);
  expect(leading.error).toEqual(new Error("enough again"));
  expect(led).toEqual([]);
});

test("what cannot be an election's input is refused before anybody is asked", async () => {
  const { store, open } = rig();
  const election = (await open()).locks.election("e");
  for (const wrong of [
    null,
    5,
    { signal: 5 },
    { renew: false },
    { values: "x" },
    { value: 5 },
    { value: null },
  ] as never[]) {
    await expect(election.campaign(wrong)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(election.lead(wrong, () => {})).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(election.observe(wrong).next()).rejects.toBeInstanceOf(InvalidOptionError);
  }
  await expect(election.observe({ waitMs: 5 } as never).next()).rejects.toBeInstanceOf(InvalidOptionError);
  // Not elected again and again, only to fail each time.
  await expect(election.lead(undefined as never)).rejects.toThrow(/"run"/);
  expect(store.size.claims).toBe(0);
});
