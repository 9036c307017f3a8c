import assert from "node:assert/strict";
import type { AsyncCommand, CommandsContraints } from "fast-check";
import { SystemChance, SystemClock } from "../../core/clock.js";
import type { ClaimAnswer, ClaimRequest, Engine, RenewAnswer } from "../../core/engine.js";
import { READERS_MAX } from "../../core/limits.js";
import { memoryEngine, memoryStore } from "../../engines/memory/index.js";
import { Kit, type Setting, stateOf } from "../conformance/kit.js";
import { FakeClock } from "../fake-clock.js";

type FastCheck = typeof import("fast-check");

/**
 * Commands for a store that keeps real time: leases either last the whole run or are waited for, so that a slow machine
 * changes nothing.
 */
export function realTimeCommands(fc: FastCheck, constraints: CommandsContraints) {
  const index = fc.nat(1000);
  const client = fc.nat(1);
  return fc.commands(
    [
      fc
        .tuple(client, fc.nat(2), fc.nat(3), fc.boolean(), fc.boolean(), fc.boolean())
        .map((parts) => claimCommand(...parts)),
      fc.tuple(client, index).map((parts) => againCommand(...parts)),
      fc.tuple(client, index, fc.boolean()).map((parts) => releaseCommand(...parts)),
      fc.tuple(client, fc.array(index, { maxLength: 5 })).map((parts) => renewCommand(...parts)),
      fc.tuple(client, index, fc.constantFrom(30_000, 90_000)).map((parts) => extendCommand(...parts)),
      fc.tuple(client, index, fc.nat(3)).map((parts) => resizeCommand(...parts)),
      fc.tuple(client, fc.integer({ min: 1, max: 4 })).map((parts) => capacityCommand(...parts)),
      fc.tuple(client, fc.nat(2), fc.boolean()).map((parts) => abandonCommand(...parts)),
      fc.nat(2).map((name) => inspectCommand(name)),
    ],
    constraints,
  );
}

type Command = AsyncCommand<object, RealTimePair>;

/** The model that fast-check carries along is not used: the reference engine is the model, and lives in the pair. */
function command(text: string, run: (pair: RealTimePair) => Promise<void>): Command {
  const runAndLive = async (pair: RealTimePair): Promise<void> => {
    await run(pair);
    await pair.liveOn();
  };
  return { check: () => true, run: (_model, pair) => runAndLive(pair), toString: () => text };
}

/** As long as every run lasts, for claims that need not die in it. */
const LONG_MS = 60_000;
/** In real time whoever waits is dead after 10 s without a heartbeat. */
const SIGN_EVERY_MS = 2_000;
const STALLED_MS = 8_000;

/** The three kinds of names, and the units that claims on them ask for. */
const KINDS = [
  { capacity: 1, units: [1, 1, 1, 1] },
  { capacity: 3, units: [1, 2, 3, 1] },
  { capacity: READERS_MAX, units: [1, READERS_MAX, 1, READERS_MAX] },
] as const;

const claimCommand = (
  client: number,
  kind: number,
  units: number,
  wait: boolean,
  exact: boolean,
  chosen: boolean,
): Command => {
  const text = `claim(client ${client}, kind ${kind}, units ${units}, wait ${wait}, exact ${exact}, chosen ${chosen})`;
  const more: Partial<ClaimRequest> = { wait, ...(exact ? { exact } : {}), ...(chosen ? { chosen } : {}) };
  return command(text, (pair) => pair.claim(client, pair.newClaim(kind, units, more)));
};

const againCommand = (client: number, pick: number): Command =>
  command(`claim again(client ${client}, ${pick})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim !== undefined) await pair.claim(claim.chosen ? client : pair.clientOf(claim, client), claim);
  });

const releaseCommand = (client: number, pick: number, settled: boolean): Command =>
  command(`release(client ${client}, ${pick}, settled ${settled})`, async (pair) => {
    const claim = pair.pick(pick);
    // An id released as settled is not heard of again: that is what the word promises.
    if (claim === undefined) return;
    await pair.equal(client, (engine) =>
      engine.release({ name: claim.name, id: claim.id, tombstone: settled ? "never" : "always" }),
    );
    if (settled) pair.forget(claim);
  });

const renewCommand = (client: number, picks: readonly number[]): Command =>
  command(`renew(client ${client}, ${picks.join(" ")})`, (pair) => pair.renew(client, picks));

const extendCommand = (client: number, pick: number, leaseMs: number): Command =>
  command(`renew for(client ${client}, ${pick}, ${leaseMs} ms)`, (pair) => pair.renew(client, [pick], leaseMs));

const resizeCommand = (client: number, pick: number, units: number): Command =>
  command(`resize(client ${client}, ${pick}, to ${units + 1})`, async (pair) => {
    const claim = pair.pick(pick);
    if (claim === undefined) return;
    const shrinker = pair.sessionBound ? pair.clientOf(claim, client) : client;
    await pair.equal(shrinker, (engine) => engine.resize(claim, units + 1));
  });

const capacityCommand = (client: number, capacity: number): Command =>
  command(`set capacity(client ${client}, ${capacity})`, (pair) => pair.setCapacity(client, capacity));

const abandonCommand = (client: number, kind: number, wait: boolean): Command =>
  command(`claim and abandon(client ${client}, kind ${kind}, wait ${wait})`, (pair) =>
    pair.abandon(client, kind, wait),
  );

const inspectCommand = (kind: number): Command => command(`inspect(kind ${kind})`, (pair) => pair.inspect(kind));

/** The engine under test and the reference, side by side. The reference's clock stands still but where time is waited for. */
export class RealTimePair {
  readonly #kit: Kit;
  readonly #forgetsTokens: boolean;
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
  /** The last heartbeats of everybody, in real time. */
  #livedAt = this.#realClock.now();
  #stalled = false;
  /** How many were answered by both. */
  requests = 0;

  private constructor(setting: Setting, kit: Kit, tested: readonly [Engine, Engine]) {
    this.#kit = kit;
    this.#forgetsTokens = setting.forgetsTokens === true;
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

  newClaim(kind: number, units: number, more: Partial<ClaimRequest>): ClaimRequest {
    const { units: choices } = KINDS[kind] ?? KINDS[0];
    const capacity = this.#capacities[kind] ?? 1;
    const claim = this.#kit.claim(this.#names[kind] ?? "", {
      capacity,
      units: Math.min(choices[units] ?? 1, capacity),
      leaseMs: LONG_MS,
      ...more,
    });
    this.#claims.push(claim);
    return claim;
  }

  pick(index: number): ClaimRequest | undefined {
    return this.#claims[index % Math.max(1, this.#claims.length)];
  }

  forget(claim: ClaimRequest): void {
    this.#claims.splice(this.#claims.indexOf(claim), 1);
  }

  /** Who claimed it first, if that one is not dead. */
  clientOf(claim: ClaimRequest, client: number): number {
    return this.#clients.get(claim.id) ?? client;
  }

  async claim(client: number, claim: ClaimRequest): Promise<void> {
    // Sent again by somebody else it stays with the first, unless that one is dead.
    if (!this.#clients.has(claim.id)) this.#clients.set(claim.id, client);
    await this.both(client, (engine) => engine.claim(claim), claim.name);
  }

  async both(client: number, call: (engine: Engine) => Promise<ClaimAnswer>, name: string): Promise<void> {
    this.requests += 1;
    const expected = await this.#expected(await call(this.#of(this.#model, client)), name);
    this.#same(expected, await call(this.#of(this.#tested, client)), name);
  }

  async equal<T>(client: number, call: (engine: Engine) => Promise<T>): Promise<void> {
    this.requests += 1;
    const expected = await call(this.#of(this.#model, client));
    assert.deepEqual(await call(this.#of(this.#tested, client)), expected);
  }

  async renew(client: number, picks: readonly number[], leaseMs?: number): Promise<void> {
    const claims = [...new Set(picks.map((pick) => this.pick(pick)))].filter((claim) => claim !== undefined);
    const signs = claims.map(({ name, id }) => ({ name, id, ...(leaseMs === undefined ? {} : { leaseMs }) }));
    this.requests += 1;
    const renewals = await this.#of(this.#model, client).renew(signs);
    const expected = await Promise.all(renewals.map((one, n) => this.#expected(one, signs[n]?.name ?? "")));
    const actual = await this.#of(this.#tested, client).renew(signs);
    assert.equal(actual.length, signs.length);
    for (const [n, sign] of signs.entries()) this.#same(expected[n], actual[n], sign.name);
  }

  async setCapacity(client: number, capacity: number): Promise<void> {
    const name = this.#names[1] ?? "";
    const from = this.#capacities[1] ?? 1;
    await this.equal(client, (engine) => engine.setCapacity(name, from, capacity));
    this.#capacities[1] = capacity;
  }

  /** A claim that dies. Afterwards everybody else shows a heartbeat: what lives on must be the same in both. */
  async abandon(client: number, kind: number, wait: boolean): Promise<void> {
    this.#abandoned += 1;
    if (this.#abandoned > 2) return;
    const claim = this.newClaim(kind, 0, { wait, leaseMs: this.#kit.step });
    await this.claim(client, claim);
    await this.pass(2.5);
    // The dead one itself shows none: asking after it could be what clears it away.
    this.#clients.delete(claim.id);
    // Should it come again, then to stay: how much of a short lease is left is a matter of luck in real time.
    this.#claims.splice(-1, 1, { ...claim, leaseMs: LONG_MS });
    await this.#showLife();
  }

  /** In real time the reference's clock stands still meanwhile, so in the store under test nobody may die of it. */
  async liveOn(): Promise<void> {
    if (this.#silentMs() > SIGN_EVERY_MS) await this.#showLife();
  }

  /** Whether somebody may have died for want of a heartbeat. */
  get stalled(): boolean {
    return this.#stalled || this.#silentMs() > STALLED_MS;
  }

  /** Each claim by its own client: with a session nobody else can. */
  async #showLife(): Promise<void> {
    this.#stalled = this.stalled;
    this.#livedAt = this.#realClock.now();
    for (const client of [0, 1]) {
      const own = [...this.#claims.keys()].filter((n) => this.#clients.get(this.#claims[n]?.id ?? "") === client);
      await this.renew(client, own);
    }
  }

  #silentMs(): number {
    return this.#realClock.now() - this.#livedAt;
  }

  async inspect(kind: number): Promise<void> {
    const name = this.#names[kind] ?? "";
    const [expected, actual] = [await stateOf(this.#model[0], name), await stateOf(this.#tested[0], name)];
    const shape = (state: typeof expected) =>
      state && {
        capacity: state.capacity,
        holders: state.holders.map(({ id, units }) => ({ id, units })),
        waiters: state.waiters.map(({ id, units }) => ({ id, units })),
      };
    assert.deepEqual(shape(actual), shape(expected));
  }

  async pass(steps: number): Promise<void> {
    await this.#modelClock.advance(steps * this.#kit.step);
    await this.#kit.pass(steps);
  }

  async close(): Promise<void> {
    for (const claim of this.#claims) await this.#tested[0].release(claim);
    await this.#kit.close();
  }

  #of(engines: readonly [Engine, Engine], client: number): Engine {
    return engines[client === 0 ? 0 : 1];
  }

  /** What the reference answers, less what the engine under test does not remember. */
  async #expected<T extends ClaimAnswer | RenewAnswer>(answer: T, name: string): Promise<T> {
    if (!this.#forgetsTokens || answer.kind !== "queued") return answer;
    const newest = (await stateOf(this.#model[0], name))?.holders.at(-1);
    return { ...answer, lastToken: newest?.token ?? 0 };
  }

  #same(
    expected: ClaimAnswer | RenewAnswer | undefined,
    actual: ClaimAnswer | RenewAnswer | undefined,
    name: string,
  ): void {
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
      assert.equal(actual.lastToken, this.#token(name, expected.lastToken, actual.lastToken), "the same last token");
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
