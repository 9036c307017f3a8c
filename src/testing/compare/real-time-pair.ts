import assert from "node:assert/strict";
import { SystemChance, SystemClock } from "../../core/clock.js";
import type { ClaimAnswer, ClaimRequest, Engine, RenewAnswer } from "../../core/engine.js";
import type { NameState } from "../../core/inspect.js";
import { READERS_MAX } from "../../core/limits.js";
import { memoryEngine, memoryStore } from "../../engines/memory/index.js";
import { Kit, type Setting } from "../conformance/kit.js";
import { FakeClock } from "../fake-clock.js";
import { type Call, callEngine, type Outcome } from "./reference.js";

/** As long as every run lasts, for claims that need not die in it. */
const LONG_MS = 60_000;
/** In real time a waiter is dead after 10 s without a heartbeat. */
const RENEW_EVERY_MS = 2_000;
const STALLED_MS = 8_000;

/** The three kinds of names, and the units that claims on them ask for. */
const KINDS = [
  { capacity: 1, units: [1, 1, 1, 1] },
  { capacity: 3, units: [1, 2, 3, 1] },
  { capacity: READERS_MAX, units: [1, READERS_MAX, 1, READERS_MAX] },
] as const;
/** The kind whose capacity is changed. */
const SEMAPHORE = 1;

type Answer = ClaimAnswer | RenewAnswer;

/** The engine under test and the reference, side by side. The reference's clock stands still but where time is waited for. */
export class RealTimePair {
  readonly #kit: Kit;
  readonly #modelClock: FakeClock;
  readonly #tested: readonly [Engine, Engine];
  readonly #model: readonly [Engine, Engine];
  readonly #names: readonly string[];
  readonly #claims: ClaimRequest[] = [];
  readonly sessionBound: boolean;
  readonly #clients = new Map<string, number>();
  readonly #capacities = KINDS.map((kind): number => kind.capacity);
  /** The reference's tokens with those of the engine under test, by name. */
  readonly #tokens = new Map<string, Map<number, number>>();
  #abandoned = 0;
  readonly #realClock = new SystemClock();
  /** When all claims were renewed last, in real time. */
  #renewedAt = this.#realClock.now();
  #stalled = false;
  /** Calls that were answered by both. */
  compared = 0;
  readonly log: string[] = [];

  private constructor(setting: Setting, kit: Kit, tested: readonly [Engine, Engine]) {
    this.#kit = kit;
    this.sessionBound = setting.sessionBound === true;
    this.#modelClock = new FakeClock();
    const store = memoryStore(this.#modelClock);
    this.#tested = tested;
    this.#model = [memoryEngine(store), memoryEngine(store)];
    const stem = new SystemChance().id();
    this.#names = KINDS.map((_, kind) => `compare ${stem} ${kind}`);
  }

  static async open(setting: Setting): Promise<RealTimePair> {
    const kit = new Kit(setting);
    return new RealTimePair(setting, kit, [await kit.open(), await kit.open()]);
  }

  name(kind: number): string {
    return this.#names[kind] ?? "";
  }

  newClaim(client: number, kind: number, units: number, more: Partial<ClaimRequest>): ClaimRequest {
    const { units: choices } = KINDS[kind] ?? KINDS[0];
    const capacity = this.#capacities[kind] ?? 1;
    const claim = this.#kit.claim(this.name(kind), {
      capacity,
      units: Math.min(choices[units] ?? 1, capacity),
      leaseMs: LONG_MS,
      ...more,
    });
    this.#claims.push(claim);
    this.#clients.set(claim.id, client);
    return claim;
  }

  pick(index: number): ClaimRequest | undefined {
    return this.#claims[index % Math.max(1, this.#claims.length)];
  }

  /** A claim that is released without a tombstone is not sent again: that is what its program says by it. */
  forget(claim: ClaimRequest): void {
    this.#claims.splice(this.#claims.indexOf(claim), 1);
  }

  /** The client that claimed it first, if that one is not dead. */
  clientOf(claim: ClaimRequest, client: number): number {
    return this.#clients.get(claim.id) ?? client;
  }

  async call(client: number, call: Call): Promise<void> {
    // Sent again by another client it stays with the first, unless that one is dead.
    if (call.verb === "claim" && !this.#clients.has(call.request.id)) this.#clients.set(call.request.id, client);
    this.log.push(`client ${client}: ${JSON.stringify(call)}`);
    const expected = await callEngine(engineOf(this.#model, client), call);
    const actual = await callEngine(engineOf(this.#tested, client), call);
    this.log.push(`  => ${JSON.stringify(actual)}`);
    this.compared += 1;
    this.#compare(call, expected, actual);
  }

  async renew(client: number, picks: readonly number[], leaseMs?: number): Promise<void> {
    const claims = [...new Set(picks.map((pick) => this.pick(pick)))].filter((claim) => claim !== undefined);
    const requests = claims.map(({ name, id }) => ({ name, id, ...(leaseMs === undefined ? {} : { leaseMs }) }));
    await this.call(client, { verb: "renew", requests });
  }

  async setCapacity(client: number, to: number): Promise<void> {
    const from = this.#capacities[SEMAPHORE] ?? 1;
    await this.call(client, { verb: "setCapacity", name: this.name(SEMAPHORE), from, to });
    this.#capacities[SEMAPHORE] = to;
  }

  /** A claim that dies. Afterwards all others are renewed: what lives on must be the same in both. */
  async abandon(client: number, kind: number, wait: boolean): Promise<void> {
    this.#abandoned += 1;
    if (this.#abandoned > 2) return;
    const claim = this.newClaim(client, kind, 0, { wait, leaseMs: this.#kit.step });
    await this.call(client, { verb: "claim", request: claim });
    await this.#pass(2.5);
    // The dead one itself is not renewed: asking for it could be what removes it.
    this.#clients.delete(claim.id);
    // Should it come again, then to stay: how much of a short lease is left is a matter of luck in real time.
    this.#claims.splice(-1, 1, { ...claim, leaseMs: LONG_MS });
    await this.#renewAll();
  }

  /** The reference's clock stands still between the calls, so nobody may die meanwhile in the store under test. */
  async keepAlive(): Promise<void> {
    if (this.#unrenewedMs() > RENEW_EVERY_MS) await this.#renewAll();
  }

  /** Whether somebody may have died for want of a heartbeat. */
  get stalled(): boolean {
    return this.#stalled || this.#unrenewedMs() > STALLED_MS;
  }

  /** Each claim by its own client: with a session nobody else can. */
  async #renewAll(): Promise<void> {
    this.#stalled = this.stalled;
    this.#renewedAt = this.#realClock.now();
    for (const client of [0, 1]) {
      const own = [...this.#claims.keys()].filter((n) => this.#clients.get(this.#claims[n]?.id ?? "") === client);
      await this.renew(client, own);
    }
  }

  #unrenewedMs(): number {
    return this.#realClock.now() - this.#renewedAt;
  }

  async #pass(steps: number): Promise<void> {
    await this.#modelClock.advance(steps * this.#kit.step);
    await this.#kit.pass(steps);
  }

  /** After a run without a difference. Pushes are not compared in real time, so nothing is left to check. */
  async end(): Promise<void> {}

  async close(): Promise<void> {
    for (const claim of this.#claims) await this.#tested[0].release(claim);
    await this.#kit.close();
  }

  #compare(call: Call, expected: Outcome, actual: Outcome): void {
    if (call.verb === "claim" && expected.verb === "claim" && actual.verb === "claim") {
      this.#same(expected.answer, actual.answer, call.request.name);
    } else if (call.verb === "renew" && expected.verb === "renew" && actual.verb === "renew") {
      assert.equal(actual.answers.length, call.requests.length, "an answer to each request");
      for (const [n, { name }] of call.requests.entries()) this.#same(expected.answers[n], actual.answers[n], name);
    } else if (expected.verb === "inspect" && actual.verb === "inspect") {
      assert.deepEqual(shape(actual.state), shape(expected.state));
    } else {
      assert.deepEqual(actual, expected);
    }
  }

  #same(expected: Answer | undefined, actual: Answer | undefined, name: string): void {
    assert.equal(actual?.kind, expected?.kind);
    if (expected?.kind === "granted" && actual?.kind === "granted") {
      assert.equal(actual.token, this.#token(name, expected.token, actual.token));
      assert.equal(actual.floor, this.#token(name, expected.floor, actual.floor), "the same floor");
      assert.equal(actual.live?.length, expected.live?.length);
      expected.live?.forEach((token, n) =>
        assert.equal(actual.live?.[n], this.#token(name, token, actual.live?.[n] ?? 0)),
      );
    }
    if (expected?.kind === "queued" && actual?.kind === "queued") {
      assert.equal(actual.nextMs === null, expected.nextMs === null, "the same first waiter");
      assert.equal(actual.token, this.#token(name, expected.token, actual.token), "the same token while it waits");
      if (actual.ahead !== undefined) assert.equal(actual.ahead, expected.ahead, "the same claim ahead");
    }
    if (expected?.kind === "mismatch" || expected?.kind === "gone") assert.deepEqual(actual, expected);
  }

  /** A token seen before is the same again; a new one is higher than all before it. */
  #token(name: string, expected: number, actual: number): number {
    const known = this.#tokens.get(name) ?? new Map<number, number>();
    this.#tokens.set(name, known);
    const before = known.get(expected);
    if (before !== undefined) return before;
    for (const [older, seen] of known) {
      assert.equal(actual > seen, expected > older, `token ${actual} stands in the same order to ${seen}`);
    }
    known.set(expected, actual);
    return actual;
  }
}

function engineOf(engines: readonly [Engine, Engine], client: number): Engine {
  return engines[client === 0 ? 0 : 1];
}

function shape(state: NameState | undefined) {
  return (
    state && {
      capacity: state.capacity,
      holders: state.holders.map(({ id, units }) => ({ id, units })),
      waiters: state.waiters.map(({ id, units }) => ({ id, units })),
    }
  );
}
