import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { EngineRefusedError } from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { METHODS, STREAMS } from "../../src/engines/etcd/drivers/grpc-messages.js";
import { encode } from "../../src/engines/etcd/drivers/protobuf.js";
import { EtcdError, STATUS } from "../../src/engines/etcd/errors.js";
import { type EtcdDriver, etcdClient } from "../../src/engines/etcd/index.js";
import type { TxnRequest, WatchResponse } from "../../src/engines/etcd/messages.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { answering, FakeGrpc, frame, refusing } from "../servers/fake-grpc.js";
import { until } from "../servers/process.js";
import { etcdWorld } from "../virtual/lockstep/etcd.js";
import type { PathsWorld } from "../virtual/lockstep/paths.js";
import { claimOf, listening, states } from "./etcd-rig.js";

/** What holds by one condition each, and shows only when the server answers oddly or two clients cross: in virtual time. */

let cluster: EtcdCluster;
let client: EtcdDriver;
beforeAll(async () => {
  cluster = await startEtcd();
  client = await etcdClient(cluster.url);
}, 60_000);
afterAll(async () => {
  client?.close();
  await cluster?.stop();
});

type Through = (one: EtcdDriver) => EtcdDriver;

/** A world with as many engines as are asked for; each may have somebody in its wire. */
async function worldOf(...through: readonly Through[]): Promise<{ world: PathsWorld; engines: Engine[] }> {
  let opened = 0;
  const world = etcdWorld(client, new SeededChance(1), (one) => (through[opened++] ?? plain)(one));
  const engines: Engine[] = [];
  for (const _ of through) engines.push(await world.open());
  onTestFinished(async () => {
    for (const engine of engines) await engine[Symbol.asyncDispose]();
  });
  return { world, engines };
}

const plain: Through = (one) => one;
const HOUR_MS = 60 * 60 * 1000;
const caught = (promise: Promise<unknown>): Promise<unknown> => promise.catch((error: unknown) => error);

test("every call says that it wants a member with a leader, with a user too", async () => {
  const seen = new Map<string, unknown>();
  const token = frame(encode(METHODS.authenticate.response, { token: "t" }));
  const lease = frame(
    encode(METHODS.leaseGrant.response, { header: { cluster_id: 1n, revision: 1, raft_term: 1n }, ID: 1n, TTL: 2 }),
  );
  const fake = await FakeGrpc.start((stream, path, headers) => {
    seen.set(path, headers?.["hasleader"]);
    answering(path === METHODS.authenticate.path ? token : lease)(stream, path, headers);
  });
  onTestFinished(() => fake.stop());
  for (const user of ["", "user:password@"]) {
    seen.clear();
    const one = await etcdClient(`etcd://${user}127.0.0.1:${fake.port}`);
    onTestFinished(() => one.close());
    for (const name of Object.keys(METHODS)) {
      if (name !== "authenticate") await caught(one.call(name as "txn", {}));
    }
    await caught(one.keepAlive(1n));
    await one.watch(
      () => {},
      () => {},
    );
    const paths = [...Object.values(METHODS), ...Object.values(STREAMS)].map(({ path }) => path);
    const asked = user === "" ? paths.filter((path) => path !== METHODS.authenticate.path) : paths;
    await until("all were asked", () => asked.every((path) => seen.has(path)));
    for (const path of asked) expect(seen.get(path), path).toBe("true");
  }
});

test("a token that could not be had is asked for again by the next call", async () => {
  const lease = encode(METHODS.leaseGrant.response, {
    header: { cluster_id: 1n, revision: 1, raft_term: 1n },
    ID: 1n,
    TTL: 2,
  });
  let asked = 0;
  const fake = await FakeGrpc.start((stream, path) => {
    if (path !== METHODS.authenticate.path) return answering(frame(lease))(stream, path);
    asked += 1;
    if (asked === 1) return refusing(STATUS.UNAVAILABLE, "etcdserver: no leader")(stream, path);
    answering(frame(encode(METHODS.authenticate.response, { token: "t" })))(stream, path);
  });
  onTestFinished(() => fake.stop());
  const one = await etcdClient(`etcd://user:password@127.0.0.1:${fake.port}`);
  onTestFinished(() => one.close());
  expect(String(await caught(one.call("leaseGrant", { TTL: 2 })))).toMatch(/no leader/);
  expect((await one.call("leaseGrant", { TTL: 2 })).ID).toBe(1n);
  expect(asked).toBe(2);
});

test("a capacity that was changed is kept for as long as anybody of the name shows a heartbeat", async () => {
  const { world, engines } = await worldOf(plain);
  const [engine] = engines as [Engine];
  const claim = claimOf("kept", { capacity: 2, leaseMs: 24 * HOUR_MS });
  expect((await engine.claim(claim)).kind).toBe("granted");
  expect(await engine.setCapacity("kept", 2, 3)).toEqual({ kind: "set" });
  // Its record lasts 25 hours by itself.
  for (let n = 0; n < 4; n += 1) {
    await world.time.advance(13 * HOUR_MS, 13 * HOUR_MS);
    expect((await engine.renew([claim]))[0]?.kind).toBe("granted");
  }
  expect((await engine.claim(claimOf("kept", { capacity: 3 }))).kind).toBe("granted");
});

test("pitfall 51: what a leader of another term says of a lease does not count for another client's claim", async () => {
  const other = { term: 0n };
  const lying: Through = (one) => ({
    ...one,
    async call(name, request) {
      const answer = (await one.call(name, request)) as { header?: { raft_term: bigint } };
      if (name !== "leaseTimeToLive" || answer.header === undefined) return answer;
      return { ...answer, header: { ...answer.header, raft_term: answer.header.raft_term + other.term } } as never;
    },
  });
  const { engines } = await worldOf(plain, lying);
  const [owner, stranger] = engines as [Engine, Engine];
  const claim = claimOf("term", { chosen: true, fixed: true });
  expect((await owner.claim(claim)).kind).toBe("granted");
  expect((await stranger.claim(claim)).kind).toBe("granted");
  other.term = 1n;
  expect(String(await caught(stranger.claim(claim)))).toMatch(/leader changed/);
});

test("another client's claim whose lease has ended since it was read is gone, to a heartbeat and to a claim that is sent again", async () => {
  let ended = false;
  const late: Through = (one) => ({
    ...one,
    async call(name, request) {
      const answer = await one.call(name, request);
      return name === "leaseTimeToLive" && ended ? { ...answer, TTL: -1 } : answer;
    },
  });
  const { engines } = await worldOf(plain, late);
  const [owner, stranger] = engines as [Engine, Engine];
  const claim = claimOf("ended", { chosen: true });
  expect((await owner.claim(claim)).kind).toBe("granted");
  ended = true;
  expect((await stranger.renew([claim]))[0]?.kind).toBe("gone");
  expect((await stranger.claim(claim)).kind).toBe("gone");
  ended = false;
  expect((await stranger.renew([claim]))[0]?.kind).toBe("granted");
});

test("a lease end never moves back: of two clients that take a claim over at once the later finds that it changed hands", async () => {
  let waits: Promise<void> | null = null;
  let moving = 0;
  const slow: Through = (one) => ({
    ...one,
    async call(name, request) {
      const moves =
        name === "txn" && (request as TxnRequest).success?.some((op) => op.request_put?.ignore_value === true);
      if (moves) moving += 1;
      if (moves) await waits;
      return one.call(name, request);
    },
  });
  const { world, engines } = await worldOf(plain, slow, plain);
  const [owner, late, taker] = engines as [Engine, Engine, Engine];
  const claim = claimOf("crossed", { leaseMs: 10_000 });
  expect((await owner.claim(claim)).kind).toBe("granted");
  let letGo = (): void => {};
  waits = new Promise((resolve) => (letGo = resolve));
  const crossed = late.renew([{ ...claim, leaseMs: 10_000 }]);
  await until("it is about to be moved", () => moving === 1);
  const [taken] = await taker.renew([{ ...claim, leaseMs: 60_000 }]);
  expect(taken).toMatchObject({ kind: "granted", leftMs: 60_000 });
  letGo();
  expect((await crossed)[0]?.kind).toBe("unknown");
  await world.time.advance(30_000);
  expect((await taker.claim(claimOf("crossed", { wait: false }))).kind, "it lives as long as was said").toBe("busy");
});

test("what another cluster tells grants nothing, and what it answers is refused for good", async () => {
  const foreign = { watch: false, txn: false };
  let asked = 0;
  const odd: Through = (one) => ({
    ...one,
    async call(name, request) {
      if (name === "txn") asked += 1;
      const answer = (await one.call(name, request)) as { header: { cluster_id: bigint } };
      if (name !== "txn" || !foreign.txn) return answer;
      return { ...answer, header: { ...answer.header, cluster_id: answer.header.cluster_id + 1n } } as never;
    },
    watch: (heard, ended) =>
      one.watch((response: WatchResponse) => {
        const { header } = response;
        heard(foreign.watch ? { ...response, header: { ...header, cluster_id: header.cluster_id + 1n } } : response);
      }, ended),
  });
  const { engines } = await worldOf(plain, odd);
  const [near, far] = engines as [Engine, Engine];
  const events = listening(far);
  const held: string[] = [];
  for (const watch of [false, true]) {
    foreign.watch = watch;
    const [holder, waiter] = [claimOf(`cluster ${watch}`), claimOf(`cluster ${watch}`)];
    await near.claim(holder);
    expect((await far.claim(waiter)).kind).toBe("queued");
    const before = asked;
    await near.release(holder);
    await until("its turn is told", () => events.some((event) => event.kind === "granted" && event.id === waiter.id));
    // By the event itself, or, where that cannot be believed, by asking.
    expect(asked - before > 0).toBe(watch);
    held.push(waiter.id);
  }
  foreign.txn = true;
  expect(await caught(far.claim(claimOf("cluster")))).toBeInstanceOf(EngineRefusedError);
  foreign.txn = false;
  expect(await caught(far.claim(claimOf("cluster"))), "for good").toBeInstanceOf(EngineRefusedError);
  const lost = events.flatMap((event) => (event.kind === "lost" ? [event.id] : []));
  expect(lost).toEqual(expect.arrayContaining(held));
});

test("another client that claims with the same chosen id is told no more time than the claim has", async () => {
  const { world, engines } = await worldOf(plain, plain);
  const [owner, stranger] = engines as [Engine, Engine];
  const [claim, other] = [claimOf("copied", { chosen: true, leaseMs: 60_000 }), claimOf("other", { leaseMs: 60_000 })];
  await owner.claim(claim);
  await owner.claim(other);
  await world.time.advance(50_000);
  // Under the same lease, which lives on; its own client takes the first one out ten seconds later.
  await owner.renew([other]);
  const answer = await stranger.claim(claim);
  const leftMs = answer.kind === "granted" ? answer.leftMs : 0;
  await world.time.advance(Math.max(0, leftMs - 2_000));
  expect((await owner.claim(claimOf("copied", { wait: false }))).kind, `it lives for ${leftMs} ms`).toBe("busy");
});

test("who found room does not take what is gone when it comes: a unit, the capacity, or its own right to it", async () => {
  let waits: Promise<void> | null = null;
  let entering = 0;
  const slow: Through = (one) => ({
    ...one,
    async call(name, request) {
      const { success = [] } = request as TxnRequest;
      // Beside others that hold: what it writes comes first, and then it reads who they are.
      const enters = name === "txn" && success.length === 3 && success[0]?.request_put !== undefined;
      if (enters) entering += 1;
      if (enters) await waits;
      return one.call(name, request);
    },
  });
  const { engines } = await worldOf(plain, slow);
  const [near, far] = engines as [Engine, Engine];
  const cases: readonly [string, (name: string, id: string) => Promise<unknown>][] = [
    ["busy", (name) => near.claim(claimOf(name, { capacity: 2 }))],
    ["mismatch", (name) => near.setCapacity(name, 2, 3)],
    ["gone", (name, id) => near.release({ name, id })],
  ];
  for (const [kind, meanwhile] of cases) {
    const name = `entered ${kind}`;
    entering = 0;
    expect((await near.claim(claimOf(name, { capacity: 2 }))).kind).toBe("granted");
    let letGo = (): void => {};
    waits = new Promise((resolve) => (letGo = resolve));
    const late = claimOf(name, { capacity: 2, wait: false });
    const answer = far.claim(late);
    await until("it is about to enter", () => entering === 1);
    await meanwhile(name, late.id);
    letGo();
    expect((await answer).kind).toBe(kind);
  }
});

test("another client that claims with the same chosen id holds what is held with it, though it does not wait", async () => {
  const { engines } = await worldOf(plain, plain);
  const [owner, stranger] = engines as [Engine, Engine];
  const claim = claimOf("same id", { chosen: true, wait: false });
  const [first, second] = [await owner.claim(claim), await stranger.claim(claim)];
  expect(first.kind).toBe("granted");
  expect(second).toMatchObject({ kind: "granted", token: first.kind === "granted" ? first.token : 0 });
});

test("pitfall 16: who seemed to fit and came too late waits as long as a waiter does, not for all of its lease", async () => {
  let waits: Promise<void> | null = null;
  let joining = 0;
  const slow: Through = (one) => ({
    ...one,
    async call(name, request) {
      const { success = [], compare = [] } = request as TxnRequest;
      // To stand at the end of a queue that was looked at before.
      const joins = name === "txn" && compare.length === 2 && success[0]?.request_put !== undefined;
      if (joins) joining += 1;
      if (joins) await waits;
      return one.call(name, request);
    },
  });
  for (const fixed of [{}, { fixed: true as const }]) {
    joining = 0;
    const { world, engines } = await worldOf(plain, slow);
    const [near, far] = engines as [Engine, Engine];
    const ask = { capacity: 3, leaseMs: 60_000, ...fixed };
    expect((await near.claim(claimOf("late", { ...ask, units: 2 }))).kind).toBe("granted");
    let letGo = (): void => {};
    waits = new Promise((resolve) => (letGo = resolve));
    const late = claimOf("late", ask);
    const answer = far.claim(late);
    await until("it is about to join", () => joining === 1);
    expect((await near.claim(claimOf("late", ask))).kind).toBe("granted");
    letGo();
    expect((await answer).kind).toBe("queued");
    await world.time.advance(8_000);
    expect((await far.renew([late]))[0]?.kind).toBe("queued");
    await world.time.advance(12_000);
    expect((await far.renew([late]))[0]?.kind, "nobody showed a heartbeat for it").toBe("gone");
  }
});

test("a claim whose time ends while a lease is asked for is gone, and that lease with it", async () => {
  let stage: "opening" | "lost" | "slow" | "silent" = "opening";
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  const granted: bigint[] = [];
  const revoked: bigint[] = [];
  const odd: Through = (one) => ({
    ...one,
    call: async (name, request) => {
      if (name === "txn" && stage === "lost") throw new EtcdError(STATUS.UNAVAILABLE, "lost");
      if (name === "txn" && stage === "silent") return new Promise(() => {});
      if (name === "leaseRevoke") revoked.push((request as { ID: bigint }).ID);
      const answer = await one.call(name, request);
      if (name !== "leaseGrant") return answer;
      granted.push((answer as { ID: bigint }).ID);
      if (stage === "slow") await opened;
      return answer;
    },
  });
  const { world, engines } = await worldOf(odd);
  const [engine] = engines;
  stage = "lost";
  const claim = { ...claimOf("ends early", { leaseMs: 9_000 }), fixed: true as const };
  expect(await caught(engine?.claim(claim) ?? Promise.resolve())).toBeInstanceOf(Error);
  stage = "slow";
  const before = granted.length;
  const again = engine?.claim(claim);
  await until("another lease is granted", () => granted.length > before);
  // Its time ends, and nobody answers the removal of what may be there.
  stage = "silent";
  await world.time.advance(12_000);
  open();
  expect(await again).toEqual({ kind: "gone" });
  await until("its lease ends", () => revoked.includes(granted.at(-1) ?? 0n));
});

test("a claim that another client removes right after it came is known to be gone to who waits for it", async () => {
  const { engines } = await worldOf(plain, plain);
  const [a, b] = engines;
  if (a === undefined || b === undefined) throw new Error("two");
  const events = listening(a);
  const ask = { capacity: READERS_MAX, leaseMs: 60_000 };
  const [writer, reader] = [claimOf("n", { ...ask, units: READERS_MAX }), claimOf("n", { ...ask, units: 1 })];
  expect((await a.claim(writer)).kind).toBe("granted");
  expect((await a.claim(reader)).kind).toBe("queued");
  // No time passes: nothing is watched after a while.
  expect(await b.release(writer)).toBe("released");
  await until("it holds", () => events.some(({ kind }) => kind === "granted"));
});

test("who waits for a writer of its own client is told when another client makes that a reader", async () => {
  const { engines } = await worldOf(plain, plain);
  const [a, b] = engines;
  if (a === undefined || b === undefined) throw new Error("two");
  const events = listening(a);
  const ask = { capacity: READERS_MAX, leaseMs: 60_000 };
  const [writer, reader] = [claimOf("n", { ...ask, units: READERS_MAX }), claimOf("n", { ...ask, units: 1 })];
  expect((await a.claim(writer)).kind).toBe("granted");
  expect((await a.claim(reader)).kind).toBe("queued");
  expect(await b.resize(writer, 1)).toBe("resized");
  await until("it holds", () => events.some(({ kind }) => kind === "granted"));
});

test("what a call, a reading or a lease fails with that requests share is told to each by an error of its own", async () => {
  let lost: string | null = null;
  const losing: Through = (one) => ({
    ...one,
    call: async (name, request) => {
      const answer = await one.call(name, request);
      if (name === lost) throw new EtcdError(STATUS.UNAVAILABLE, `${name} was lost`);
      return answer;
    },
  });
  const { engines } = await worldOf(losing);
  const [engine] = engines;
  if (engine === undefined) throw new Error("one");
  const errorsOf = async (all: readonly Promise<unknown>[]): Promise<unknown[]> => {
    const outcomes = await Promise.allSettled(all);
    return outcomes.map((one) => (one.status === "rejected" ? one.reason : one.value));
  };
  const three = ["a", "b", "c"] as const;
  lost = "leaseGrant";
  const leases = await errorsOf(three.map((name) => engine.claim(claimOf(`lease ${name}`))));
  lost = null;
  const held = three.map((name) => claimOf(`call ${name}`));
  for (const claim of held) await engine.claim(claim);
  lost = "txn";
  const calls = await errorsOf(held.map((claim) => engine.release(claim)));
  // Claims of one name that are asked for again read it together.
  const [first, ...again] = three.map(() => claimOf("reading"));
  if (first === undefined) throw new Error("three");
  await errorsOf([engine.claim(first), ...again.map((claim) => engine.claim(claim))]);
  const readings = await errorsOf([first, ...again].map((claim) => engine.resize(claim, 1)));
  lost = null;
  for (const [name, errors] of Object.entries({ leaseGrant: leases, txn: [...calls, ...readings] })) {
    expect(errors).toEqual(errors.map(() => new EtcdError(STATUS.UNAVAILABLE, `${name} was lost`)));
    expect(new Set(errors).size, name).toBe(errors.length);
  }
});

/** Lets a test decide what becomes of each call. */
function tapping(tap: {
  call?: (name: string, request: object, send: () => Promise<object>) => Promise<object>;
}): Through {
  return (one) => ({
    ...one,
    call: async (name, request) => {
      const send = (): Promise<object> => one.call(name, request);
      return (await tap.call?.(name, request, send)) ?? (await send());
    },
    keepAlive: async (lease) => {
      const send = (): Promise<object> => one.keepAlive(lease);
      return ((await tap.call?.("keepAlive", { ID: lease }, send)) ?? (await send())) as never;
    },
  });
}

const writes = (request: TxnRequest): boolean =>
  [...(request.success ?? []), ...(request.failure ?? [])].some((op) => op.request_range === undefined);
const moves = (name: string, request: object): boolean =>
  name === "txn" && (request as TxnRequest).success?.some((op) => op.request_put?.ignore_value === true) === true;

test("a heartbeat reads and keeps alive, and writes nothing while the lease is long enough", async () => {
  const asked: string[] = [];
  const tap = {
    call: (name: string, request: object, send: () => Promise<object>) => {
      asked.push(name === "txn" && writes(request) ? "write" : name);
      return send();
    },
  };
  const { world, engines } = await worldOf(tapping(tap));
  const [engine] = engines as [Engine];
  const [holder, waiter] = [claimOf("beats"), claimOf("beats")];
  await engine.claim(holder);
  await engine.claim(waiter);
  await world.time.advance(3000);
  asked.length = 0;
  for (let n = 0; n < 3; n += 1) {
    expect((await engine.renew([holder, waiter])).map(({ kind }) => kind)).toEqual(["granted", "queued"]);
    await world.time.advance(3000);
  }
  expect(asked.filter((name) => name === "keepAlive")).toHaveLength(3);
  expect(asked.filter((name) => name !== "keepAlive" && name !== "txn")).toEqual([]);
});

test("a hold whose lease the server does not know is gone, though its key is still there, and nobody is put there", async () => {
  let known = true;
  const tap = {
    call: async (name: string, _: object, send: () => Promise<object>) =>
      name === "keepAlive" && !known ? { ...(await send()), TTL: 0 } : send(),
  };
  const { world, engines } = await worldOf(tapping(tap));
  const [engine] = engines as [Engine];
  const claim = claimOf("unknown lease");
  await engine.claim(claim);
  known = false;
  expect((await engine.renew([claim]))[0]?.kind).toBe("gone");
  known = true;
  const [left] = (await world.stored("unknown lease")).claims;
  expect(left?.id).toBe(claim.id);
  // What is there is another's business: the next claim of this engine has a key of its own, behind it.
  expect((await engine.claim(claimOf("unknown lease", { wait: false }))).kind).toBe("busy");
  expect((await engine.claim(claimOf("unknown lease"))).kind).toBe("queued");
  expect((await world.stored("unknown lease")).claims).toHaveLength(2);
});

test("a claim that is to last longer under a lease which the server forgot gets another one with the next heartbeat", async () => {
  let forgotten = 0;
  const tap = {
    call: (name: string, request: object, send: () => Promise<object>) => {
      if (!moves(name, request) || forgotten-- <= 0) return send();
      return Promise.reject(new EtcdError(STATUS.NOT_FOUND, "etcdserver: requested lease not found"));
    },
  };
  const { engines } = await worldOf(tapping(tap));
  const [engine] = engines as [Engine];
  const claim = claimOf("longer", { leaseMs: 10_000 });
  const other = claimOf("other", { leaseMs: 30_000 });
  await engine.claim(other);
  await engine.claim(claim);
  forgotten = 1;
  const lengths: number[] = [];
  const kinds: string[] = [];
  for (let n = 0; n < 2; n += 1) {
    const [answer] = await engine.renew([{ ...claim, leaseMs: 30_000 }]);
    kinds.push(answer?.kind ?? "");
    lengths.push(answer?.kind === "granted" ? answer.leftMs : 0);
  }
  expect([kinds, lengths[1]]).toEqual([["unknown", "granted"], 30_000]);
  expect((await engine.renew([other]))[0]?.kind, "who is under that one").toBe("gone");
});

test("without space a fixed hold is not extended and says so; it keeps the time that it had", async () => {
  let full = false;
  const tap = {
    call: (name: string, request: object, send: () => Promise<object>) =>
      full && name === "txn" && writes(request)
        ? Promise.reject(new EtcdError(STATUS.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"))
        : send(),
  };
  const { world, engines } = await worldOf(tapping(tap), plain);
  const [engine, other] = engines as [Engine, Engine];
  const fixed = claimOf("full", { leaseMs: 20_000, fixed: true });
  expect((await engine.claim(fixed)).kind).toBe("granted");
  full = true;
  const [answer] = await engine.renew([{ ...fixed, leaseMs: 60_000 }]);
  expect(answer?.kind === "unknown" && answer.cause).toBeInstanceOf(EngineRefusedError);
  // Nor does another client that knows of it only from the store.
  expect((await engine.renew([fixed]))[0]?.kind).toBe("unknown");
  full = false;
  await world.time.advance(19_000);
  expect((await other.claim(claimOf("full", { wait: false }))).kind).toBe("busy");
  await world.time.advance(3000);
  expect((await other.claim(claimOf("full", { wait: false }))).kind).toBe("granted");
});

test("without space another client's claim cannot be taken over, and that is said", async () => {
  let full = false;
  const tap = {
    call: (name: string, request: object, send: () => Promise<object>) =>
      full && moves(name, request)
        ? Promise.reject(new EtcdError(STATUS.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"))
        : send(),
  };
  const { engines } = await worldOf(plain, tapping(tap));
  const [owner, taker] = engines as [Engine, Engine];
  const claim = claimOf("theirs");
  await owner.claim(claim);
  full = true;
  expect((await taker.renew([claim]))[0]?.kind).toBe("unknown");
  full = false;
  expect((await taker.renew([claim]))[0]?.kind).toBe("granted");
});

test("the record of a changed capacity whose heartbeat failed gets another with the next, and then none for an hour", async () => {
  const beats: bigint[] = [];
  let failing = false;
  const tap = {
    call: (name: string, request: object, send: () => Promise<object>) => {
      if (name !== "keepAlive") return send();
      beats.push((request as { ID: bigint }).ID);
      return failing ? Promise.reject(new EtcdError(STATUS.UNAVAILABLE, "lost")) : send();
    },
  };
  const { world, engines } = await worldOf(tapping(tap));
  const [engine] = engines as [Engine];
  const claim = claimOf("resized", { capacity: 2, leaseMs: 24 * HOUR_MS });
  await engine.claim(claim);
  expect(await engine.setCapacity("resized", 2, 3)).toEqual({ kind: "set" });
  const beatsOf = async (): Promise<number> => {
    beats.length = 0;
    await caught(engine.renew([claim]));
    await world.time.quiet();
    // One of them is for the claim's own lease.
    return beats.length - 1;
  };
  failing = true;
  expect([await beatsOf(), await beatsOf()], "each time, as long as it fails").toEqual([1, 1]);
  failing = false;
  expect([await beatsOf(), await beatsOf()]).toEqual([1, 0]);
  await world.time.advance(HOUR_MS - 1000, HOUR_MS);
  expect(await beatsOf()).toBe(0);
  await world.time.advance(1000);
  expect(await beatsOf()).toBe(1);
});

test("a claim of a name that fell idle has the capacity that it asks for, and the record of another is gone with its lease", async () => {
  const { world, engines } = await worldOf(plain, plain);
  const [engine, other] = engines as [Engine, Engine];
  const holder = claimOf("idle", { capacity: 2 });
  await engine.claim(holder);
  expect(await engine.setCapacity("idle", 2, 5)).toEqual({ kind: "set" });
  // Its key goes by itself: nobody is there to remove the record.
  await world.time.advance(0);
  await engine[Symbol.asyncDispose]();
  await world.time.advance(20_000);
  expect((await world.stored("idle")).changed).toMatchObject({ capacity: 5 });
  const next = claimOf("idle", { capacity: 3, units: 3 });
  expect((await other.claim(next)).kind).toBe("granted");
  expect((await world.stored("idle")).changed).toBeNull();
  expect(await other.release({ ...next, tombstone: "never" })).toBe("released");
  await other[Symbol.asyncDispose]();
  await world.assertEmpty();
});

test.each<[string, (engine: Engine, name: string) => Promise<unknown>]>([
  ["changes its capacity", (engine, name) => engine.setCapacity(name, 5, 6)],
  ["releases a claim that is gone", (engine, name) => engine.release({ name, id: "gone", tombstone: "never" })],
])("who %s removes the record of an idle name, which nobody was there to remove", async (_what, ask) => {
  const { world, engines } = await worldOf(plain, plain);
  const [engine, other] = engines as [Engine, Engine];
  await engine.claim(claimOf("idle", { capacity: 2 }));
  expect(await engine.setCapacity("idle", 2, 5)).toEqual({ kind: "set" });
  await world.time.advance(0);
  await engine[Symbol.asyncDispose]();
  await world.time.advance(20_000);
  expect((await world.stored("idle")).changed).toMatchObject({ capacity: 5 });
  await ask(other, "idle");
  expect((await world.stored("idle")).changed).toBeNull();
  await other[Symbol.asyncDispose]();
  await world.assertEmpty();
});

test("what a cell became while its watch was broken is read, and told once", async () => {
  const { world, engines } = await worldOf(plain, plain);
  const [watching, writing] = engines as [Engine, Engine];
  const seen: (string | null)[] = [];
  onTestFinished(watching.cells?.watch("cell", ({ value }) => seen.push(value)) ?? (() => {}));
  let version = 0;
  const write = async (value: string): Promise<void> => {
    const answer = await writing.cells?.write({ name: "cell", operation: value, expected: version, value });
    version = answer?.cell.version ?? 0;
  };
  await until("it is watched", async () => {
    await write(`first ${version}`);
    return seen.length > 0;
  });
  seen.length = 0;
  world.cutWatches?.();
  await write("second");
  expect(seen).toEqual([]);
  // The pause before it is watched again, by the clock of the test; then it is read.
  await world.time.advance(1000);
  expect(seen).toEqual(["second"]);
  await until("it is watched again", async () => {
    await write(`third ${version}`);
    return seen.length > 1;
  });
});

test("a waiter whose watch broke is asked to look, watches anew with its next heartbeat, and is told by that", async () => {
  const asked: TxnRequest[] = [];
  let created = 0;
  const counting: Through = (one) => ({
    ...one,
    call: (name, request) => {
      if (name === "txn") asked.push(request as TxnRequest);
      return one.call(name, request);
    },
    watch: async (heard, ended) => {
      const stream = await one.watch(heard, ended);
      return {
        ...stream,
        send: (request) => {
          if (request.create_request !== undefined) created += 1;
          stream.send(request);
        },
      };
    },
  });
  const { world, engines } = await worldOf(plain, counting);
  const [near, far] = engines as [Engine, Engine];
  const events = listening(far);
  const [holder, waiter] = [claimOf("broken", { leaseMs: 60_000 }), claimOf("broken", { leaseMs: 60_000 })];
  await near.claim(holder);
  expect((await far.claim(waiter)).kind).toBe("queued");
  for (let n = 0; n < 2; n += 1) {
    world.cutWatches?.();
    await world.time.advance(1000);
    expect(events.filter(({ kind }) => kind === "wake").length, "it is to be asked for").toBeGreaterThan(n);
    const before = created;
    expect((await far.renew([waiter]))[0]?.kind).toBe("queued");
    expect(created, "on a new stream").toBeGreaterThan(before);
  }
  await near.release(holder);
  await until("it is told", () => events.some(({ kind }) => kind === "granted"));
});

test("a claim whose lease the server does not know gets one new lease, and no third", async () => {
  let tries = 0;
  const tap = {
    call: (name: string, request: object, send: () => Promise<object>) => {
      const claims = name === "txn" && (request as TxnRequest).compare?.length === 3;
      if (!claims) return send();
      tries += 1;
      const gone = new EtcdError(STATUS.NOT_FOUND, "etcdserver: requested lease not found");
      return Promise.reject(tries > 5 ? new Error("again and again") : gone);
    },
  };
  const { engines } = await worldOf(tapping(tap));
  const [engine] = engines as [Engine];
  expect(String(await caught(engine.claim(claimOf("no lease"))))).toMatch(/lease not found/);
  expect(tries).toBe(2);
});

test("a hold is shown until its last moment, also when etcd says that no whole second is left of it", async () => {
  const { world, engines } = await worldOf(plain);
  const [engine] = engines as [Engine];
  await engine.claim(claimOf("last second"));
  await world.time.advance(9_500);
  expect((await states(engine, { name: "last second" }))[0]?.holders).toMatchObject([{ leftMs: 1 }]);
});
