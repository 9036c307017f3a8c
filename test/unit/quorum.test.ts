import { describe, expect, test } from "vitest";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { EngineRefusedError, NotSentError } from "../../src/core/errors.js";
import { NAME_MAX_BYTES, READERS_MAX } from "../../src/core/limits.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { quorumEngine, quorumSize } from "../../src/engines/quorum/index.js";
import { turnNameOf } from "../../src/engines/quorum/turn.js";
import { connect } from "../../src/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type Hooks, intercept } from "../../src/testing/intercept.js";
import { MemberClock, SimulatedMember } from "../simulation/quorum-member.js";

const owner = { client: "c", host: "h", pid: 1 };
let ids = 0;
const claimOf = (name: string, over: Partial<ClaimRequest> = {}): ClaimRequest => {
  ids += 1;
  return {
    name,
    id: `claim-${String(ids).padStart(20, "0")}`,
    units: 1,
    capacity: 1,
    leaseMs: 10_000,
    wait: false,
    owner,
    ...over,
  };
};

describe("quorum sizes", () => {
  test.each([
    // members, capacity, quorum
    [3, 1, 2],
    [3, 2, 3],
    [5, 1, 3],
    [5, 2, 4],
    [5, 3, 4],
    [5, 4, 5],
    [7, 2, 5],
    [7, 3, 6],
    [5, READERS_MAX, 3],
    [4, 1, 3],
  ])("of %i members a capacity of %i needs %i", (members, capacity, quorum) => {
    expect(quorumSize(members, capacity)).toBe(quorum);
  });

  test("pitfall 28: a majority for a semaphore lets three holders have two permits; the quorum does not", async () => {
    const stores = Array.from({ length: 3 }, () => memoryStore(new FakeClock()));
    const members = stores.map((store) => memoryEngine(store));
    // Each of three clients cannot reach one of three servers.
    const reach = [
      [0, 1],
      [1, 2],
      [2, 0],
    ];
    let naiveHolders = 0;
    for (const servers of reach) {
      const claim = claimOf("naive", { capacity: 2 });
      let yes = 0;
      for (const n of servers) if ((await members[n]?.claim(claim))?.kind === "granted") yes += 1;
      if (yes >= 2) naiveHolders += 1;
    }
    expect(naiveHolders).toBe(3);

    let holders = 0;
    for (const servers of reach) {
      const cut: Hooks = { claim: () => Promise.reject(new Error("cut off")) };
      const wired = stores.map((store, n) => intercept(memoryEngine(store), servers.includes(n) ? {} : cut));
      const engine = await quorumEngine(wired);
      const answer = await engine.claim(claimOf("right", { capacity: 2 })).catch(() => null);
      if (answer?.kind === "granted") holders += 1;
      await engine[Symbol.asyncDispose]();
    }
    expect(holders).toBe(0);
  });
});

type LateRig = Awaited<ReturnType<typeof rig>> & { readonly arrive: () => Promise<void>; readonly away: () => void };

/** Two of five members hear of a claim only when `arrive` is called; the first is gone after `away`. */
async function withLateCopies(): Promise<LateRig> {
  let reached = true;
  const first: Hooks = { renew: (call) => (reached ? call() : Promise.reject(new Error("away"))) };
  const calls: (() => Promise<unknown>)[] = [];
  const late: Hooks = {
    claim: (call) => new Promise((resolve) => calls.push(async () => resolve(await call()))),
  };
  const arrive = async (): Promise<void> => void (await Promise.all(calls.map((call) => call())));
  return { ...(await rig([first, {}, {}, late, late])), arrive, away: () => (reached = false) };
}

/** Five memory stores by one fake clock, with somebody in each wire. */
async function rig(
  hooks: readonly Hooks[] = [],
): Promise<{ clock: FakeClock; stores: Engine[]; engine: Engine; rival: Engine }> {
  const clock = new FakeClock();
  const shared = Array.from({ length: 5 }, () => memoryStore(clock));
  const wire = (own: readonly Hooks[]): readonly Engine[] =>
    shared.map((store, n) => ({
      ...intercept(memoryEngine(store), own[n] ?? {}),
      // The third one keeps the order.
      serverInfo: async () => ({ server: n === 2 ? "first" : `server ${n}` }),
    }));
  return {
    clock,
    stores: shared.map((store) => memoryEngine(store)),
    engine: await quorumEngine(wire(hooks), { clock }),
    rival: await quorumEngine(wire([]), { clock }),
  };
}

const holderIds = async (engine: Engine, name: string): Promise<string[]> => {
  for await (const { holders } of engine.inspect({ name })) return holders.map(({ id }) => id);
  return [];
};

test("a turn stands under the name with a suffix as long as that fits, which all clients have to agree on", () => {
  const suffix = Buffer.byteLength(turnNameOf(""));
  for (const letter of ["a", "ä", "中"]) {
    const letters = Math.floor((NAME_MAX_BYTES - suffix) / Buffer.byteLength(letter));
    const rest = "a".repeat(NAME_MAX_BYTES - suffix - letters * Buffer.byteLength(letter));
    const longest = letter.repeat(letters) + rest;
    expect(Buffer.byteLength(turnNameOf(longest))).toBe(NAME_MAX_BYTES);
    expect(turnNameOf(longest).startsWith(longest)).toBe(true);
    expect(turnNameOf(`${longest}a`)).not.toContain(letter.repeat(3));
    expect(Buffer.byteLength(turnNameOf(`${longest}a`))).toBeLessThan(NAME_MAX_BYTES);
  }
});

describe("the round", () => {
  test("refused by so many that no quorum can say yes: that is the answer; by fewer, nobody knows", async () => {
    for (const refusing of [3, 2]) {
      const refuses: Hooks = {
        claim: () => Promise.reject(new EngineRefusedError("redis", "Check it.", new Error("WRONGPASS"))),
      };
      const fails: Hooks = { claim: () => Promise.reject(new Error("cut off")) };
      const { engine } = await rig([1, 2, 3].map((n) => (n <= refusing ? refuses : fails)));
      const outcome = await engine.claim(claimOf("refused")).catch((error: unknown) => error);
      expect(outcome).toMatchObject({ name: refusing === 3 ? "EngineRefusedError" : "QuorumNotReached" });
    }
  });

  test("who said no when it was asked has forgotten nothing: what a heartbeat makes there counts from the next one on", async () => {
    let reached = true;
    const fourth: Hooks = { renew: (call) => (reached ? call() : Promise.reject(new Error("away"))) };
    const { clock, stores, engine } = await rig([{}, {}, {}, fourth]);
    const [rival, claim] = [claimOf("repaired"), claimOf("repaired")];
    for (const n of [0, 1]) await stores[n]?.claim(rival);
    expect((await engine.claim(claim)).kind).toBe("granted");
    for (const n of [0, 1]) await stores[n]?.release(rival);
    expect((await engine.renew([claim]))[0]?.kind).toBe("granted");
    await clock.advance(10);
    reached = false;
    expect((await engine.renew([claim]))[0]?.kind).toBe("granted");
  });

  test("pitfall 18: a tie ends, and both sides give back what they had", async () => {
    const { clock, stores, engine } = await rig([{ claim: () => new Promise(() => {}) }]);
    const rival = claimOf("tie");
    for (const n of [1, 2]) await stores[n]?.claim(rival);
    const answering = engine.claim(claimOf("tie"));
    await clock.advance(50);
    expect(await answering).toMatchObject({ kind: "busy", holder: owner });
    await clock.advance(10);
    for (const n of [3, 4]) expect(await holderIds(stores[n] as Engine, "tie")).toEqual([]);
  });

  test("a release says where the claim was sent once, answered or not, and that it goes first to the member that keeps the turn", async () => {
    const left: string[] = [];
    const member = (name: string, claim?: Hooks["claim"]): Hooks => ({
      ...(claim === undefined ? {} : { claim }),
      release: (call, { tombstone }) => {
        left.push(`${name} ${tombstone}`);
        return call();
      },
    });
    const hung: Hooks["claim"] = () => new Promise(() => {});
    const { clock, engine } = await rig([member("a"), member("b"), member("c"), member("d", hung)]);
    const locks = await connect(engine, { clock });
    const hold = await locks.mutex("votes").acquire();
    const waiting = locks.mutex("votes").acquire({ waitMs: 100 });
    const refused = expect(waiting).rejects.toMatchObject({ code: "HOLDFAST_ACQUIRE_TIMEOUT" });
    await clock.advance(200);
    await refused;
    left.length = 0;
    await hold.release();
    // Its vote and the turn, for which the release waits in any case.
    expect(left).toEqual(["c never", "c never", "a never", "b never", "d if-missing"]);
    await clock.advance(100_000);
    await locks.close();
  });

  test("whoever waits asks again when a dead holder's lease has ended, however long the pause between rounds is by then", async () => {
    const { clock, rival, engine } = await rig();
    const locks = await connect(engine, { clock });
    const dead = claimOf("dead");
    await rival.claim(dead);
    let grantedAt = Infinity;
    const waiting = locks
      .mutex(dead.name)
      .acquire()
      .finally(() => (grantedAt = clock.now()));
    const startedAt = clock.now();
    for (let ms = 0; ms < 12_000; ms += 10) await clock.advance(10);
    await (await waiting).release();
    expect(grantedAt - startedAt).toBeGreaterThanOrEqual(dead.leaseMs);
    expect(grantedAt - startedAt).toBeLessThanOrEqual(dead.leaseMs + 70);
    await locks.close();
  });

  test("a claim that a slow member grants after the round failed is given back there", async () => {
    let grant = (): void => {};
    const slow: Hooks = { claim: (call) => new Promise((resolve) => (grant = () => void call().then(resolve))) };
    const away: Hooks = { claim: () => Promise.reject(new Error("away")) };
    const { clock, stores, engine } = await rig([slow, away, away, away]);
    const answering = engine.claim(claimOf("late"));
    const failed = expect(answering).rejects.toThrow(/memory 1 timed out after 50 ms/);
    await clock.advance(50);
    await failed;
    grant();
    await clock.advance(2000);
    for (const store of stores) expect(await holderIds(store, "late")).toEqual([]);
  });

  test("a claim whose round failed is gone when it is sent again, whether its copies have arrived or not", async () => {
    const late: (() => Promise<unknown>)[] = [];
    const cut: Hooks = {
      claim: (call, { name }) => {
        if (late.length === 3 || name !== "failed") return call();
        late.push(call);
        return Promise.reject(new Error("cut off"));
      },
    };
    const { clock, stores, engine } = await rig([cut, cut, cut]);
    const claim = claimOf("failed");
    await expect(engine.claim(claim)).rejects.toThrow(/quorum not reached/);
    await clock.advance(10);
    for (const store of stores) expect(await holderIds(store, claim.name)).toEqual([]);
    for (const ms of [0, 100, 5_000, 10_000, 30_000]) {
      await clock.advance(ms);
      expect(await engine.claim(claim), `after ${ms} ms more`).toEqual({ kind: "gone" });
      for (const store of stores) expect(await holderIds(store, claim.name)).toEqual([]);
    }
    for (const arrive of late) expect(await arrive()).toEqual({ kind: "gone" });
    await clock.advance(60_000);
    await engine[Symbol.asyncDispose]();
    expect(clock.pending).toBe(0);
  });

  test("a claim whose round failed is gone when it is sent again, also where nothing can find a tombstone", async () => {
    let connected = false;
    const away: Hooks = { claim: (call) => (connected ? call() : Promise.reject(new NotSentError("not connected"))) };
    const { clock, engine } = await rig([away, away, away]);
    const claim = claimOf("not sent");
    await expect(engine.claim(claim)).rejects.toThrow(/quorum not reached/);
    connected = true;
    // A release that two members have not heard yet would end what they grant now.
    for (const ms of [0, 100, 8_000]) {
      await clock.advance(ms);
      expect(await engine.claim(claim), `after ${ms} ms more`).toEqual({ kind: "gone" });
    }
  });

  test("pitfall 60: what a majority forgot is not repaired", async () => {
    const { clock, stores, engine } = await rig();
    const claim = claimOf("forgotten");
    expect((await engine.claim(claim)).kind).toBe("granted");
    for (const n of [0, 1, 2]) await stores[n]?.release({ ...claim, tombstone: "never" });
    expect((await engine.renew([claim]))[0]?.kind).toBe("gone");
    await clock.advance(1000);
    for (const n of [0, 1, 2]) expect(await holderIds(stores[n] as Engine, "forgotten")).toEqual([]);
  });

  test("pitfall 38: what a minority forgot is repaired under the same token, and not after the release", async () => {
    const { clock, stores, engine } = await rig();
    const claim = claimOf("repaired");
    const granted = await engine.claim(claim);
    for (const n of [0, 1]) await stores[n]?.release({ ...claim, tombstone: "never" });
    expect((await engine.renew([claim]))[0]).toMatchObject({
      kind: "granted",
      token: (granted as { token: number }).token,
    });
    await clock.advance(10);
    for (const store of stores) expect(await holderIds(store, "repaired")).toEqual([claim.id]);
    expect(await engine.release(claim)).toBe("released");
    await clock.advance(10);
    for (const store of stores) expect(await holderIds(store, "repaired")).toEqual([]);
  });

  test("what an extending heartbeat repairs is renewed by the next one as everywhere", async () => {
    const { clock, stores, engine } = await rig();
    const claim = claimOf("extended");
    await engine.claim(claim);
    const [, , forgetful] = stores as [Engine, Engine, Engine];
    const names = ["extended", turnNameOf("extended")];
    for (const name of names) await forgetful.release({ name, id: claim.id, tombstone: "never" });
    await engine.renew([{ name: claim.name, id: claim.id, leaseMs: 100_000 }]);
    await clock.advance(95_000);
    const leftMs = async (name: string): Promise<number | undefined> => {
      for await (const { holders } of forgetful.inspect({ name })) return holders[0]?.leftMs;
      return undefined;
    };
    for (const name of names) expect(await leftMs(name)).toBe(5_000);
    await engine.renew([{ name: claim.name, id: claim.id }]);
    for (const name of names) expect(await leftMs(name)).toBe(claim.leaseMs);
  });

  test("where others stood a moment ago the turn is asked for first, and who has it is granted in the same call", async () => {
    const { clock, engine, rival } = await rig();
    const [theirs, waiter, late] = [
      claimOf("fought"),
      claimOf("fought", { wait: true }),
      claimOf("fought", { wait: true }),
    ];
    expect((await rival.claim(theirs)).kind).toBe("granted");
    expect((await engine.claim(waiter)).kind).toBe("queued");
    await engine.release(waiter);
    await rival.release(theirs);
    await clock.advance(100);
    expect((await engine.claim(late)).kind).toBe("granted");
  });

  test("a claim that is sent again keeps the lease that it has, and has another when it had ended: also where it is repaired", async () => {
    const { clock, stores, engine } = await rig();
    const claim = claimOf("again");
    const { name, id } = claim;
    const repairedFor = async (leaseMs: number): Promise<void> => {
      await stores[0]?.release({ name, id, tombstone: "never" });
      expect((await engine.renew([{ name, id }]))[0]?.kind).toBe("granted");
      await clock.advance(leaseMs - 1);
      for (const store of stores) expect(await holderIds(store, name)).toEqual([id]);
      await clock.advance(1);
      for (const store of stores) expect(await holderIds(store, name)).toEqual([]);
    };
    expect((await engine.claim(claim)).kind).toBe("granted");
    expect((await engine.claim({ ...claim, leaseMs: 60_000 })).kind).toBe("granted");
    await repairedFor(claim.leaseMs);
    expect((await engine.claim({ ...claim, leaseMs: 60_000 })).kind).toBe("granted");
    await repairedFor(60_000);
  });

  test("a member that was never sent the claim is told of no release, and gets the claim once it is back", async () => {
    let connected = false;
    const released: string[] = [];
    const away: Hooks = {
      claim: (call) => (connected ? call() : Promise.reject(new NotSentError("not connected"))),
      renew: (call) => (connected ? call() : Promise.reject(new NotSentError("not connected"))),
      release: (call, { id }) => {
        released.push(id);
        return call();
      },
    };
    const { clock, stores, engine } = await rig([away]);
    const first = claimOf("away");
    expect((await engine.claim(first)).kind).toBe("granted");
    expect(await engine.release(first)).toBe("released");
    await clock.advance(20_000);
    expect(released).toEqual([]);

    const second = claimOf("away");
    await engine.claim(second);
    connected = true;
    await engine.renew([second]);
    await clock.advance(10);
    expect(await holderIds(stores[0] as Engine, "away")).toEqual([second.id]);
    expect(await engine.release(second)).toBe("released");
    await clock.advance(10);
    expect(released).toEqual([second.id]);
  });

  test("pitfall 8: a hold that was lost is not revived by what is still on the way", async () => {
    let answer = (): void => {};
    const late: Hooks = {
      renew: (call) => new Promise((resolve, reject) => (answer = () => void call().then(resolve, reject))),
    };
    const { clock, stores, engine } = await rig([late, late, late]);
    const claim = claimOf("final", { leaseMs: 1000 });
    await engine.claim(claim);
    const renewing = engine.renew([claim]);
    await clock.advance(1500);
    answer();
    expect((await renewing)[0]?.kind).not.toBe("granted");
    await clock.advance(1000);
    for (const store of stores) expect(await holderIds(store, "final")).toEqual([]);
  });

  test("pitfall 60: a copy that arrives after a quorum was lost does not make it a quorum again", async () => {
    const { clock, stores, engine, arrive } = await withLateCopies();
    const claim = claimOf("late copy");
    expect((await engine.claim(claim)).kind).toBe("granted");
    await clock.advance(60);
    await stores[0]?.release({ ...claim, tombstone: "never" });
    await arrive();
    for (const n of [1, 2, 3, 4]) expect(await holderIds(stores[n] as Engine, "late copy")).toEqual([claim.id]);
    expect((await engine.renew([claim]))[0]?.kind).toBe("gone");
  });

  test("a copy that arrives late holds the claim up when one of the first is away", async () => {
    const { clock, engine, arrive, away } = await withLateCopies();
    const claim = claimOf("away");
    expect((await engine.claim(claim)).kind).toBe("granted");
    await clock.advance(60);
    await arrive();
    away();
    expect((await engine.renew([claim]))[0]?.kind).toBe("granted");
  });

  test("a copy that arrives late counts once a quorum of the first ones was there beside it", async () => {
    const { clock, stores, engine, arrive } = await withLateCopies();
    const claim = claimOf("joined later");
    expect((await engine.claim(claim)).kind).toBe("granted");
    await clock.advance(60);
    await arrive();
    expect((await engine.renew([claim]))[0]?.kind).toBe("granted");
    for (const n of [0, 1]) await stores[n]?.release({ ...claim, tombstone: "never" });
    expect((await engine.renew([claim]))[0]?.kind).toBe("granted");
  });

  test("tokens that differ are written back to a quorum before the grant counts", async () => {
    const { stores, engine } = await rig();
    const far = Date.UTC(2040, 0, 1) * 1000;
    // No three of them agree.
    for (const [n, ahead] of [-9, -5, 0].entries()) {
      const high = claimOf("token", { tokenAtLeast: far + ahead });
      await stores[n]?.claim(high);
      await stores[n]?.release(high);
    }
    const claim = claimOf("token");
    const answer = await engine.claim(claim);
    expect(answer).toMatchObject({ kind: "granted", token: far + 1, floor: far + 1 });
    let storing = 0;
    for (const store of stores) {
      for await (const { holders } of store.inspect({ name: "token" })) if (holders[0]?.token === far + 1) storing += 1;
    }
    expect(storing).toBeGreaterThanOrEqual(3);
  });

  test.each([
    ["alone", 1, 1],
    ["shared", 1, READERS_MAX],
  ])("a claim that ended and is granted anew under its id has a new token (%s)", async (_kind, units, capacity) => {
    const { clock, engine } = await rig();
    const claim = claimOf("anew", { units, capacity });
    const first = await engine.claim(claim);
    // Handed over: this client hears nothing more of it, not even that its lease has ended.
    await clock.advance(claim.leaseMs);
    const between = claimOf("anew", { units, capacity });
    const second = await engine.claim(between);
    await engine.release(between);
    const third = await engine.claim(claim);
    const tokens = [first, second, third].map((answer) => (answer.kind === "granted" ? answer.token : 0));
    expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));
    expect(await engine.release(claim)).toBe("released");
  });

  test("a client gets no token below one it had, although its members forgot and the calendar was set back", async () => {
    const clock = new FakeClock();
    const members = [0, 1, 2].map((n) => new SimulatedMember(`member ${n}`, new MemberClock(clock, 1, 0)));
    const engine = await quorumEngine(
      members.map((member) => member.open()),
      { clock },
    );
    const taken = async (): Promise<number> => {
      const claim = claimOf("set back");
      const answer = await engine.claim(claim);
      await engine.release(claim);
      return answer.kind === "granted" ? answer.token : 0;
    };
    const tokens = [await taken()];
    for (let n = 0; n < 3; n += 1) {
      for (const member of members) member.comeBack(true);
      clock.stepWall(-7_200_000);
      tokens.push(await taken());
    }
    expect(tokens).toEqual([...new Set(tokens)].toSorted((one, two) => one - two));
  });

  test("a grant keeps its token when a member with a higher one answers in place of those it was agreed with", async () => {
    const high = claimOf("kept token", { tokenAtLeast: Date.UTC(2040, 0, 1) * 1000 });
    let reached = true;
    let arrive = (): void => {};
    const late: Hooks = { claim: (call) => new Promise((resolve) => (arrive = () => void call().then(resolve))) };
    const away: Hooks = { renew: (call) => (reached ? call() : Promise.reject(new Error("away"))) };
    const { clock, stores, engine } = await rig([late, {}, {}, away, away]);
    await stores[0]?.claim(high);
    await stores[0]?.release(high);
    const claim = claimOf("kept token");
    const answer = await engine.claim(claim);
    arrive();
    await clock.advance(0);
    reached = false;
    expect((await engine.renew([claim]))[0]).toMatchObject({
      kind: "granted",
      token: (answer as { token: number }).token,
    });
  });

  test("what fewer members than a quorum hold is listed as held by nobody", async () => {
    const { stores, engine } = await rig();
    const claim = claimOf("few");
    for (const [n, listed] of [[], [], [claim.id], [claim.id], [claim.id]].entries()) {
      await stores[n]?.claim(claim);
      expect(await holderIds(engine, "few"), `${n + 1} of 5`).toEqual(listed);
    }
  });

  test("what most members say is listed, whichever of them answers first", async () => {
    const { clock, stores, engine } = await rig();
    const token = clock.wallMs() * 1000 + 1_000_000;
    const claim = claimOf("most", { capacity: 2, tokenAtLeast: token });
    const other = { ...claim, capacity: 3, units: 3, tokenAtLeast: token + 7 };
    for (const [n, store] of stores.entries()) await store.claim(n === 0 ? other : claim);
    const states = [];
    for await (const state of engine.inspect({ name: "most" })) states.push(state);
    expect(states).toMatchObject([{ capacity: 2, holders: [{ id: claim.id, units: 1, token }] }]);
  });

  test("so many noes that no quorum is left are an answer at once: those that are slow could not change it", async () => {
    const hung: Hooks = { claim: () => new Promise(() => {}) };
    const { clock, stores, engine } = await rig([{}, {}, hung, hung, hung]);
    const rival = claimOf("full", { capacity: 2, units: 2 });
    for (const n of [0, 1]) await stores[n]?.claim(rival);
    let kind = "open";
    void engine.claim(claimOf("full", { capacity: 2 })).then((answer) => (kind = answer.kind));
    await clock.advance(0);
    expect(kind).toBe("busy");
  });

  test("a hold that so many have lost that no quorum is left is gone at once, though others are silent", async () => {
    let silent = false;
    const hung: Hooks = { renew: (call) => (silent ? new Promise(() => {}) : call()) };
    const { clock, stores, engine } = await rig([{}, {}, {}, hung, hung]);
    const claim = claimOf("forgotten");
    await engine.claim(claim);
    for (const n of [0, 1, 2]) await stores[n]?.release({ ...claim, tombstone: "never" });
    silent = true;
    let kind = "open";
    void engine.renew([claim]).then(([answer]) => (kind = answer?.kind ?? "none"));
    await clock.advance(0);
    expect(kind).toBe("gone");
  });

  test("units that became fewer are told to a member that missed it with each heartbeat until it has heard", async () => {
    let calls = 0;
    let say: "away" | "gone" | "here" = "away";
    const first: Hooks = {
      resize: async (call) => {
        calls += 1;
        if (say === "away") throw new Error("away");
        return say === "gone" ? "gone" : call();
      },
    };
    const { clock, stores, engine } = await rig([first]);
    const writer = claimOf("downgraded", { units: READERS_MAX, capacity: READERS_MAX });
    await engine.claim(writer);
    expect(await engine.resize(writer, 1)).toBe("resized");
    const counted: number[] = [];
    for (say of ["gone", "here", "here"] as const) {
      await engine.renew([writer]);
      await clock.advance(0);
      counted.push(calls);
    }
    expect(counted).toEqual([2, 3, 3]);
    for await (const { holders } of stores[0]?.inspect() ?? []) expect(holders[0]?.units).toBe(1);
  });

  describe("a writer whose token is higher at some members", () => {
    /** The last two members have seen a higher token. */
    const higherAtTwo = async (hooks: readonly Hooks[] = []) => {
      const all = await rig(hooks);
      const writer = claimOf("rw", { units: READERS_MAX, capacity: READERS_MAX });
      for (const n of [3, 4]) {
        const before = claimOf("rw", { capacity: READERS_MAX, tokenAtLeast: (all.clock.wallMs() + 7_200_000) * 1000 });
        await all.stores[n]?.claim(before);
        await all.stores[n]?.release(before);
      }
      const answer = await all.engine.claim(writer);
      if (answer.kind !== "granted") throw new Error(answer.kind);
      return { ...all, writer, token: answer.token, reader: () => claimOf("rw", { capacity: READERS_MAX }) };
    };

    test("becomes a reader only where a quorum has its own: nobody is told a floor above it", async () => {
      let away = false;
      const third: Hooks = { resize: (call) => (away ? Promise.reject(new NotSentError("away")) : call()) };
      const { stores, engine, rival, writer, token, reader } = await higherAtTwo([{}, {}, third]);
      away = true;
      await expect(engine.resize(writer, 1)).rejects.toThrow("(3 of 5 needed)");
      // Whoever reached the last three alone, after its time at the third is over, would be told their floor.
      for (const n of [3, 4]) expect((await stores[n]?.claim(reader()))?.kind).toBe("busy");
      away = false;
      expect(await engine.resize(writer, 1)).toBe("resized");
      expect(await rival.claim(reader())).toMatchObject({ kind: "granted", floor: token });
    });

    test("stays a writer where fewer than a quorum have its own", async () => {
      const { stores, engine, writer, reader } = await higherAtTwo();
      await stores[2]?.release({ ...writer, tombstone: "never" });
      const before = claimOf("rw", { capacity: READERS_MAX, tokenAtLeast: Number.MAX_SAFE_INTEGER - 9 });
      await stores[2]?.claim(before);
      await stores[2]?.release(before);
      expect((await engine.renew([writer]))[0]?.kind).toBe("granted");
      await new Promise((resolve) => setImmediate(resolve));
      const why = "too few members have the token of this hold (3 of 5 needed)";
      await expect(engine.resize(writer, 1)).rejects.toThrow(why);
      for (const store of stores) expect((await store.claim(reader())).kind).toBe("busy");
    });

    test("is kept as a reader by those that have its own, and leaves the others when its time there is over", async () => {
      const { clock, stores, engine, writer, token, reader } = await higherAtTwo();
      expect(await engine.resize(writer, 1)).toBe("resized");
      for (let beat = 0; beat < 4; beat += 1) {
        expect(await stores[3]?.claim(reader())).toMatchObject({ kind: "busy" });
        await clock.advance(3_000);
        expect((await engine.renew([writer]))[0]).toMatchObject({ kind: "granted", token });
        await clock.advance(0);
      }
      expect(await stores[3]?.claim(reader())).toMatchObject({ kind: "granted" });
    });

    test("is renewed as a reader although those with a higher token answer first", async () => {
      let answer = (): void => {};
      const slow: Hooks = { renew: (call) => new Promise((resolve) => (answer = () => resolve(call()))) };
      const { clock, engine, writer, token } = await higherAtTwo([slow]);
      expect(await engine.resize(writer, 1)).toBe("resized");
      const renewing = engine.renew([writer]);
      await clock.advance(0);
      answer();
      expect((await renewing)[0]).toMatchObject({ kind: "granted", token });
    });
  });

  test("answers that arrived while the process stood still are read before members count as late", async () => {
    const clocks: FakeClock[] = [];
    // Due at the same moment as the limit, and after it: as the answers that a late timer finds.
    const late: Hooks = {
      claim: (call) => new Promise((resolve) => clocks[0]?.after(50, () => resolve(call()))),
    };
    const { clock, stores, engine } = await rig([late, late, late, late, late]);
    clocks.push(clock);
    const claiming = engine.claim(claimOf("stood still"));
    await clock.advance(50);
    expect((await claiming).kind).toBe("granted");
    for (const store of stores) expect(await holderIds(store, "stood still")).toHaveLength(1);
  });

  test("a release sent once more counts what was answered meanwhile", async () => {
    const late: (() => void)[] = [];
    const slow: Hooks = {
      release: async (call) => {
        const answer = await call();
        await new Promise<void>((resolve) => late.push(resolve));
        return answer;
      },
    };
    const { clock, engine } = await rig([slow, slow, slow]);
    const claim = claimOf("late answers");
    await engine.claim(claim);
    const failed = expect(engine.release(claim)).rejects.toThrow(
      /too few members answered the release \(3 of 5 needed\): .*memory 1 timed out after 50 ms/,
    );
    await clock.advance(50);
    await failed;
    for (const answer of late) answer();
    await clock.advance(0);
    expect(await engine.release(claim)).toBe("released");
  });

  test.each([
    ["answers", (call: () => Promise<unknown>) => call()],
    ["fails", () => Promise.reject(new Error("too late"))],
  ])("a member that always %s late is asked each time", async (_how, end) => {
    let calls = 0;
    const late: (() => void)[] = [];
    const slow: Hooks = {
      claim: async (call) => {
        calls += 1;
        await new Promise<void>((resolve) => late.push(resolve));
        return (await end(call)) as Awaited<ReturnType<typeof call>>;
      },
    };
    const { clock, engine } = await rig([slow]);
    for (let n = 1; n <= 40; n += 1) {
      const claim = claimOf(`late ${n}`);
      expect((await engine.claim(claim)).kind).toBe("granted");
      await clock.advance(60);
      late.shift()?.();
      await clock.advance(1);
      await engine.release(claim);
      expect(calls).toBe(n);
    }
  });

  test("a member that left sixteen calls unanswered is left alone, and asked again later", async () => {
    let calls = 0;
    const hung: Hooks = {
      claim: () => {
        calls += 1;
        return new Promise(() => {});
      },
    };
    const { clock, engine } = await rig([hung]);
    const take = async (): Promise<void> => {
      const claim = claimOf(`hung ${ids}`);
      expect((await engine.claim(claim)).kind).toBe("granted");
      await engine.release(claim);
      await clock.advance(60);
    };
    for (let n = 0; n < 40; n += 1) await take();
    expect(calls).toBe(16);
    await clock.advance(6000);
    await take();
    expect(calls).toBe(17);
  });
});
