import assert from "node:assert/strict";
import type { Cell } from "../../../src/core/cells.js";
import type { ClaimAnswer, ClaimRequest, Engine, EngineEvent, RenewAnswer } from "../../../src/core/engine.js";
import { HoldfastError } from "../../../src/core/errors.js";
import { READERS_MAX, TOMBSTONE_MS } from "../../../src/core/limits.js";
import { memoryEngine, memoryStore } from "../../../src/engines/memory/index.js";
import { stateOf } from "../../../src/testing/conformance/kit.js";
import type { SeededChance } from "../../../src/testing/seeded-chance.js";
import { TICK_MS, type VirtualTime, type Wire } from "./time.js";

/** A store in which a run has names, a clock and a wire of its own. */
export type World = {
  readonly time: VirtualTime;
  readonly wire: Wire;
  /** Claims belong to the session that made them: nobody else keeps them alive or shrinks them. */
  readonly sessionBound?: true;
  open(): Promise<Engine>;
  /** The least and the most that may be left where the reference has so much; `others`: how often other clients asked for it. */
  leftMs(expected: number, leaseMs: number, others: number): readonly [least: number, most: number];
  cutWatches?(): void;
  /** After everybody has gone, and everything that ends by itself has ended. */
  assertEmpty(): Promise<void>;
};

export type Extent = { readonly commands: number; readonly bad: number };

type Kept = {
  claim: ClaimRequest;
  /** Who claimed it last when it was not there. */
  client: number;
  /** The longest lease that was asked for: asked for again with each heartbeat, as some stores keep the longest. */
  leaseMs: number;
  /** Sent once, and answered: it may be released as settled. */
  clean: boolean;
  /** Kept alive by another client since it was claimed. */
  shared: boolean;
  /** How often it was asked for or kept alive by another client than before. */
  others: number;
  releasedAt: number | null;
};

/** Ends between two ticks, wherever a store rounds up by up to two seconds. */
const LEASES_MS = [9_000, 21_000, 61_000] as const;
const KINDS = [
  { capacity: 1, units: [1] },
  { capacity: 3, units: [1, 2, 3] },
  { capacity: READERS_MAX, units: [1, 1, READERS_MAX] },
] as const;
/** In real time; only what is never told takes so long. */
const TOLD_WITHIN_MS = Number(process.env["HOLDFAST_TOLD_MS"] ?? 45_000);

/**
 * Random commands of two clients, each answered by the engine under test and by the reference, in virtual time: every answer is
 * compared, and every push. Tokens are compared by their order. The same seed, the same commands.
 */
export async function lockstep(world: World, chance: SeededChance, extent: Extent): Promise<number> {
  const run = await Lockstep.open(world, chance, extent);
  try {
    await run.run();
    return run.done;
  } catch (error) {
    throw new Error(`${error instanceof Error ? error.message : String(error)}\n${run.trace}`, { cause: error });
  } finally {
    await run.close();
  }
}

class Lockstep {
  readonly #world: World;
  readonly #chance: SeededChance;
  readonly #extent: Extent;
  readonly #tested: readonly Engine[];
  readonly #model: readonly Engine[];
  readonly #names: readonly string[];
  readonly #kept: Kept[] = [];
  readonly #capacities: number[] = KINDS.map(({ capacity }) => capacity);
  readonly #tokens = new Map<string, Map<number, number>>();
  readonly #log: string[] = [];
  /** Granted by the engine under test, as far as its clients were told. */
  readonly #told = new Set<string>();
  /** Lost by the reference's word; to be told by the engine, too. */
  readonly #lost = new Set<string>();
  readonly #woken = new Set<string>();
  readonly #wrong: string[] = [];
  readonly #cells = new Map<string, Map<number, number>>();
  #operations: {
    readonly id: string;
    readonly at: number;
    readonly name: string;
    expected: number;
    value: string | null;
  }[] = [];
  readonly #heard: Map<string, string | null>[] = [new Map(), new Map()];
  done = 0;

  private constructor(world: World, chance: SeededChance, extent: Extent, tested: readonly Engine[]) {
    this.#world = world;
    this.#chance = chance;
    this.#extent = extent;
    this.#tested = tested;
    const store = memoryStore(world.time);
    this.#model = tested.map(() => memoryEngine(store));
    this.#names = KINDS.map((_, kind) => `name ${kind} ${chance.id()}`);
    tested.forEach((engine, client) => engine.listen((event) => this.#pushed(event, client)));
    for (const engine of this.#model) engine.listen((event) => this.#expectedPush(event));
    // The reference looks at its leases when it is asked.
    world.time.onStep = async () => {
      for (const name of this.#names) await stateOf(this.#modelOf(0), name);
    };
  }

  static async open(world: World, chance: SeededChance, extent: Extent): Promise<Lockstep> {
    return new Lockstep(world, chance, extent, [await world.open(), await world.open()]);
  }

  get trace(): string {
    return this.#log.slice(-60).join("\n");
  }

  async close(): Promise<void> {
    this.#world.wire.bad = 0;
    this.#world.time.onStep = async () => {};
    for (const engine of this.#tested) await engine[Symbol.asyncDispose]();
  }

  async run(): Promise<void> {
    await this.#watchCells();
    for (let n = 0; n < this.#extent.commands; n += 1) {
      await this.#command();
      await this.#everybodyIsTold();
      assert.deepEqual(this.#wrong, []);
      this.done += 1;
    }
    await this.#leave();
  }

  async #command(): Promise<void> {
    const { wire } = this.#world;
    wire.bad = this.#extent.bad;
    const dice = this.#chance.between(0, 99);
    if (dice < 26) await this.#claimNew();
    else if (dice < 31) await this.#again();
    else if (dice < 46) await this.#release();
    else if (dice < 62) await this.#renew();
    else if (dice < 67) await this.#extend();
    else if (dice < 72) await this.#resize();
    else if (dice < 80) await this.#cell();
    else {
      wire.bad = 0;
      if (dice < 84) await this.#setCapacity();
      else if (dice < 88) await this.#burst();
      else if (dice < 91) await this.#inspect();
      else if (dice < 93 && this.#world.cutWatches !== undefined) await this.#cut();
      else if (dice < 97) await this.#live();
      else await this.#pass();
    }
    wire.bad = 0;
  }

  // Commands.

  async #claimNew(): Promise<void> {
    const claim = this.#newClaim(this.#chance.between(0, 2), this.#chance.chance(0.8));
    const kept = this.#keep(claim, this.#chance.between(0, 1));
    await this.#claim(kept, kept.client);
  }

  async #again(): Promise<void> {
    const kept = this.#pick();
    if (kept === undefined) return;
    kept.clean = false;
    await this.#claim(kept, kept.claim.chosen ? this.#chance.between(0, 1) : kept.client);
  }

  async #claim(kept: Kept, client: number): Promise<void> {
    const { claim } = kept;
    this.#say(`claim by ${client}: ${shown(claim)}`);
    const there = await this.#modelHas(claim);
    if (!there) [kept.client, kept.shared, kept.leaseMs] = [client, false, claim.leaseMs];
    else if (client !== kept.client) kept.others += 1;
    const expected = await this.#modelOf(client).claim(claim);
    const { answer, tries } = await this.#untilAnswered(() => this.#testedOf(client).claim(claim));
    if (tries > 1) kept.clean = false;
    if (tries === 1) return this.#same(expected, answer, kept, client);
    // Refused, and the answer to that lost: the id may be over. Granted, and the answer lost: it may stand as a waiter would.
    const refused = expected.kind === "busy" || expected.kind === "mismatch";
    if (answer.kind === "gone" && refused) return;
    this.#world.wire.bad = 0;
    if (answer.kind === "granted" && expected.kind === "granted") await this.#renewAll(kept.client, [kept]);
    else this.#same(expected, answer, kept, client);
  }

  /** Mostly of somebody who holds: then others get their turn. */
  async #release(): Promise<void> {
    const state = await stateOf(this.#modelOf(0), this.#one(this.#names));
    const holder = this.#chance.chance(0.7)
      ? state?.holders[this.#chance.between(0, state.holders.length - 1)]
      : undefined;
    const kept = this.#kept.find(({ claim }) => claim.id === holder?.id) ?? this.#pick();
    if (kept === undefined) return;
    const client = this.#chance.chance(0.75) ? kept.client : 1 - kept.client;
    const { name, id } = kept.claim;
    const settled = kept.clean && kept.releasedAt === null && client === kept.client && this.#chance.chance(0.5);
    this.#say(`release by ${client}${settled ? ", settled" : ""}: ${shown(kept.claim)}`);
    const expected = await this.#modelOf(client).release({ name, id, tombstone: settled ? "never" : "always" });
    if (client === kept.client) this.#lost.delete(id);
    const { answer, tries } = await this.#untilAnswered(() =>
      this.#testedOf(client).release({ name, id, tombstone: settled ? "never" : "always" }),
    );
    if (tries === 1) assert.equal(answer, expected, `release of ${id}`);
    kept.releasedAt ??= this.#world.time.now();
    if (settled) this.#kept.splice(this.#kept.indexOf(kept), 1);
  }

  async #renew(): Promise<void> {
    const client = this.#chance.between(0, 1);
    const picks = new Set(Array.from({ length: this.#chance.between(1, 7) }, () => this.#pick()));
    const mine = [...picks].filter((kept) => kept !== undefined);
    for (const kept of mine) {
      if (kept.client === client || this.#world.sessionBound) continue;
      [kept.client, kept.shared, kept.others] = [client, true, kept.others + 1];
    }
    await this.#renewAll(client, mine);
  }

  async #extend(): Promise<void> {
    const kept = this.#pick();
    if (kept === undefined) return;
    kept.leaseMs = Math.max(kept.leaseMs, this.#one(LEASES_MS));
    await this.#renewAll(kept.client, [kept]);
  }

  async #renewAll(client: number, some: readonly Kept[]): Promise<void> {
    this.#say(
      `renew by ${client}: ${some.map((kept) => `${kept.claim.id.slice(0, 4)} for ${kept.leaseMs}`).join(", ")}`,
    );
    let rest = some;
    const expected = new Map<Kept, RenewAnswer>();
    for (const kept of rest) expected.set(kept, await this.#modelRenewal(kept, client));
    for (let tries = 1; rest.length > 0; tries += 1) {
      const requests = rest.map(({ claim: { name, id }, leaseMs }) => ({ name, id, leaseMs }));
      const { answer } = await this.#untilAnswered(() => this.#testedOf(client).renew(requests));
      assert.equal(answer.length, requests.length);
      const unknown: Kept[] = [];
      for (const [n, kept] of rest.entries()) {
        const one = answer[n];
        if (one?.kind === "unknown" && this.#extent.bad > 0 && tries < 40) unknown.push(kept);
        else this.#same(expected.get(kept), one, kept, client);
      }
      if (tries > 10) this.#world.wire.bad = 0;
      rest = unknown;
    }
  }

  async #modelRenewal(kept: Kept, client: number): Promise<RenewAnswer> {
    const { claim, leaseMs } = kept;
    const { name, id } = claim;
    // Nobody but its own session keeps it alive; a copy of the claim is answered without being a heartbeat.
    const looksOnly = this.#world.sessionBound && kept.client !== client && (await this.#modelHas(claim));
    const [renewal] = looksOnly
      ? [await this.#modelOf(client).claim(claim)]
      : await this.#modelOf(client).renew([{ name, id, leaseMs }]);
    assert.ok(renewal && renewal.kind !== "busy" && renewal.kind !== "mismatch");
    return renewal;
  }

  async #resize(): Promise<void> {
    const kept = this.#pick();
    if (kept === undefined) return;
    const client = this.#world.sessionBound || this.#chance.chance(0.7) ? kept.client : 1 - kept.client;
    const units = this.#chance.between(1, 3);
    this.#say(`resize by ${client} to ${units}: ${shown(kept.claim)}`);
    const expected = await this.#modelOf(client).resize(kept.claim, units);
    const { answer } = await this.#untilAnswered(() => this.#testedOf(client).resize(kept.claim, units));
    assert.equal(answer, expected, `resize of ${kept.claim.id}`);
  }

  async #setCapacity(): Promise<void> {
    const client = this.#chance.between(0, 1);
    const [name = "", , from = 1, to] = [this.#names[1], 0, this.#capacities[1], this.#chance.between(1, 5)];
    this.#say(`set capacity by ${client} from ${from} to ${to}`);
    const state = await stateOf(this.#modelOf(0), name);
    const live = new Set([...(state?.holders ?? []), ...(state?.waiters ?? [])].map(({ id }) => id));
    const expected = await this.#modelOf(client).setCapacity(name, from, to);
    // The reference tells it of dead ones, too, which it had not cleared away.
    for (const id of this.#lost) if (!live.has(id)) this.#lost.delete(id);
    assert.deepEqual(await this.#testedOf(client).setCapacity(name, from, to), expected, "set capacity");
    this.#capacities[1] = to;
    // Claims are watched from a moment after they came, and whoever changes a capacity touches those whose turn it is.
    await this.#advance(1);
  }

  /** At once: in what order they came is asked afterwards. */
  async #burst(): Promise<void> {
    const client = this.#chance.between(0, 1);
    const kind = this.#chance.between(0, 2);
    const count = this.#chance.between(2, 6);
    const all = Array.from({ length: count }, () => {
      const { exact: _, ...claim } = this.#newClaim(kind, true);
      return this.#keep(claim, client);
    });
    this.#say(`burst by ${client}: ${all.map(({ claim }) => shown(claim)).join("; ")}`);
    const answers = await Promise.all(all.map(({ claim }) => this.#testedOf(client).claim(claim)));
    const state = await stateOf(this.#testedOf(client), this.#names[kind] ?? "");
    const order = [...(state?.holders ?? []), ...(state?.waiters ?? [])].map(({ id }) => id);
    const sorted = [...all.entries()].toSorted(([, a], [, b]) => order.indexOf(a.claim.id) - order.indexOf(b.claim.id));
    for (const [n, kept] of sorted) {
      const { claim } = kept;
      const expected = await this.#modelOf(client).claim(claim);
      const answer = answers[n];
      this.#same(expected, answer, kept, client);
    }
  }

  async #inspect(): Promise<void> {
    for (const name of this.#names) {
      const [expected, actual] = [await stateOf(this.#modelOf(0), name), await stateOf(this.#testedOf(1), name)];
      const shape = (state: typeof expected) =>
        state && {
          capacity: state.capacity,
          holders: state.holders.map(({ id, units }) => ({ id, units })),
          waiters: state.waiters.map(({ id, units }) => ({ id, units })),
        };
      assert.deepEqual(shape(actual), shape(expected), `inspect ${name}`);
    }
  }

  /** Whoever watched is told to look; until then nobody has to be told anything. */
  async #cut(): Promise<void> {
    this.#say("cut the watches");
    this.#world.cutWatches?.();
    await this.#advance(1);
  }

  /** Everybody shows a heartbeat, by its own client. */
  async #live(): Promise<void> {
    for (const client of [0, 1]) {
      const own = this.#kept.filter((kept) => kept.client === client && kept.releasedAt === null);
      await this.#renewAll(client, own);
    }
    await this.#advance(1);
  }

  async #pass(): Promise<void> {
    await this.#advance(this.#chance.between(1, 4));
  }

  async #advance(ticks: number): Promise<void> {
    this.#say(`${ticks} ticks`);
    await this.#world.wire.flush();
    for (let tick = 0; tick < ticks; tick += 1) {
      await this.#world.time.advance(TICK_MS);
      // A loss is told before the lease ends, unless a server is slower than a clock that does not wait for it.
      if (this.#extent.bad === 0) await this.#heardOfLosses();
    }
    const now = this.#world.time.now();
    const old = this.#kept.filter(
      ({ releasedAt }) => releasedAt !== null && now - releasedAt > TOMBSTONE_MS - 2 * TICK_MS,
    );
    for (const kept of old) this.#kept.splice(this.#kept.indexOf(kept), 1);
    this.#operations = this.#operations.filter(({ at }) => now - at < TOMBSTONE_MS - 2 * TICK_MS);
    await this.#world.time.quiet();
  }

  async #leave(): Promise<void> {
    this.#say("everybody leaves");
    for (const { claim, client } of this.#kept)
      await this.#testedOf(client).release({ name: claim.name, id: claim.id });
    await this.#world.wire.flush();
    for (const name of this.#names) assert.equal(await stateOf(this.#testedOf(0), name), undefined, "an idle name");
    await this.#world.time.advance(2 * TOMBSTONE_MS + 2 * TICK_MS, 2 * TICK_MS);
    await this.close();
    await this.#world.assertEmpty();
  }

  // Cells.

  async #watchCells(): Promise<void> {
    for (const name of ["cell 0", "cell 1"]) {
      this.#tested.forEach((engine, client) =>
        engine.cells?.watch(name, ({ value }) => this.#heard[client]?.set(name, value)),
      );
      // Heard by both before anything is compared: a watch takes a moment to stand.
      for (let n = 0; this.#heard.some((heard) => !heard.has(name)); n += 1) {
        assert.ok(n < 500, "a watch of a cell stands");
        const write = { name, operation: this.#chance.id(), value: `first ${n}` };
        const expected = await this.#testedOf(0).cells?.read(name);
        await this.#testedOf(0).cells?.write({ ...write, expected: expected?.version ?? 0 });
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      const cell = await this.#testedOf(0).cells?.read(name);
      await this.#testedOf(0).cells?.write({
        name,
        operation: this.#chance.id(),
        expected: cell?.version ?? 0,
        value: null,
      });
    }
  }

  async #cell(): Promise<void> {
    const client = this.#chance.between(0, 1);
    const name = `cell ${this.#chance.between(0, 1)}`;
    const versions = this.#cells.get(name) ?? new Map<number, number>([[0, 0]]);
    this.#cells.set(name, versions);
    const [model, tested] = [this.#modelOf(client).cells, this.#testedOf(client).cells];
    assert.ok(model && tested);
    const before = await model.read(name);
    this.#sameCell(name, before, (await this.#untilAnswered(() => tested.read(name))).answer);
    const known = [...versions.keys()];
    const repeated = this.#chance.chance(0.25)
      ? this.#operations[this.#chance.between(0, this.#operations.length - 1)]
      : undefined;
    const operation = repeated ?? {
      id: this.#chance.id(),
      at: this.#world.time.now(),
      name,
      expected: this.#chance.chance(0.75) ? before.version : (known[this.#chance.between(0, known.length - 1)] ?? 0),
      value: this.#chance.chance(0.25) ? null : this.#chance.id(),
    };
    if (repeated === undefined) this.#operations.push(operation);
    const { id, expected, value } = operation;
    this.#say(`cell by ${client}: ${JSON.stringify(operation)}`);
    const write = { name: operation.name, operation: id, value };
    const answer = await model.write({ ...write, expected });
    const version = this.#cells.get(operation.name)?.get(expected) ?? 0;
    const { answer: actual } = await this.#untilAnswered(() => tested.write({ ...write, expected: version }));
    assert.equal(actual.kind, answer.kind, "a cell's write");
    this.#sameCell(operation.name, answer.cell, actual.cell);
    if (this.#extent.bad > 0) return;
    const now = (await model.read(name)).value;
    await this.#soon(`${name} is told to all who watch it`, () =>
      this.#heard.every((heard) => (heard.get(name) ?? null) === now),
    );
  }

  #sameCell(name: string, expected: Cell, actual: Cell): void {
    assert.equal(actual.value, expected.value, `the value of ${name}`);
    const versions = this.#cells.get(name) ?? new Map<number, number>();
    const before = versions.get(expected.version);
    if (before !== undefined) return assert.equal(actual.version, before, `the version of ${name}`);
    for (const [older, seen] of versions)
      assert.equal(actual.version > seen, expected.version > older, `versions of ${name} grow`);
    versions.set(expected.version, actual.version);
  }

  // What is told.

  #pushed(event: EngineEvent, client: number): void {
    if (event.kind === "warning") return;
    if (event.kind === "wake") {
      for (const { claim } of this.#kept) {
        if (event.id === undefined || event.id === claim.id) this.#woken.add(claim.id);
      }
      return;
    }
    this.#say(`  ${event.kind} is pushed to ${client}: ${event.id.slice(0, 4)}`);
    const kept = this.#kept.find(({ claim }) => claim.id === event.id);
    if (kept === undefined || event.kind === "bare-majority") return;
    if (event.kind === "lost") {
      if (client === kept.client) this.#lost.delete(event.id);
      return void this.#stillThere(kept, client);
    }
    this.#told.add(event.id);
    void this.#inTime(kept, event);
  }

  /** The reference has done by then what led to this push. */
  async #inTime({ claim }: Kept, { token, floor }: { readonly token: number; readonly floor: number }): Promise<void> {
    const state = await stateOf(this.#modelOf(0), claim.name);
    if (state?.waiters.some(({ id }) => id === claim.id))
      this.#wrong.push(`${claim.id} is told that it holds, and waits`);
    const held = state?.holders.find(({ id }) => id === claim.id);
    if (held !== undefined && token !== this.#token(claim.name, held.token, token))
      this.#wrong.push(`${claim.id} is pushed another token`);
    if (floor > token) this.#wrong.push(`${claim.id} is pushed a floor above its token`);
  }

  /** A loss is told of what the reference has lost, too. */
  async #stillThere(kept: Kept, client: number): Promise<void> {
    if (client !== kept.client || kept.shared || this.#extent.bad > 0) return;
    if (await this.#modelHas(kept.claim)) this.#wrong.push(`${kept.claim.id} is told that it is lost, and is there`);
  }

  #expectedPush(event: EngineEvent): void {
    if (event.kind === "lost") this.#lost.add(event.id);
  }

  /** Who holds by the reference's word is told so, without asking; on an unreliable connection, or when it is told to ask, by asking. */
  async #everybodyIsTold(): Promise<void> {
    for (const kept of this.#kept) {
      const { claim, client } = kept;
      if (this.#told.has(claim.id) || kept.releasedAt !== null) continue;
      const holds = async (): Promise<boolean> =>
        (await stateOf(this.#modelOf(0), claim.name))?.holders.some(({ id }) => id === claim.id) ?? false;
      if (!(await holds())) continue;
      const asked = this.#extent.bad > 0;
      if (!asked)
        await this.#soon(
          `${claim.id} is told that it holds`,
          () => this.#told.has(claim.id) || this.#woken.has(claim.id),
        );
      if (!this.#told.has(claim.id)) await this.#renewAll(client, [kept]);
    }
    // It is watched no more, perhaps, until it asks.
    const woken = this.#kept.filter(({ claim, releasedAt }) => this.#woken.has(claim.id) && releasedAt === null);
    this.#woken.clear();
    for (const client of [0, 1]) {
      const own = woken.filter((kept) => kept.client === client);
      if (own.length > 0) await this.#renewAll(client, own);
    }
  }

  async #heardOfLosses(): Promise<void> {
    for (const kept of this.#kept) {
      const { id } = kept.claim;
      if (!this.#lost.has(id) || kept.shared || (await this.#modelHas(kept.claim))) this.#lost.delete(id);
      else await this.#soon(`${id} is told that it is lost`, () => !this.#lost.has(id) || this.#woken.has(id));
    }
    this.#lost.clear();
  }

  async #soon(what: string, holds: () => boolean): Promise<void> {
    const startedAt = performance.now();
    while (!holds()) {
      assert.ok(performance.now() - startedAt < TOLD_WITHIN_MS, `never: ${what}`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }

  // Both sides.

  async #untilAnswered<T>(call: () => Promise<T>): Promise<{ readonly answer: T; readonly tries: number }> {
    for (let tries = 1; ; tries += 1) {
      try {
        return { answer: await call(), tries };
      } catch (error) {
        if (error instanceof HoldfastError || this.#extent.bad === 0 || tries > 40) throw error;
        if (tries > 10) this.#world.wire.bad = 0;
      }
    }
  }

  #same(
    expected: ClaimAnswer | RenewAnswer | undefined,
    actual: ClaimAnswer | RenewAnswer | undefined,
    kept: Kept,
    client: number,
  ): void {
    const { name, id } = kept.claim;
    const why = actual?.kind === "unknown" ? String(actual.cause) : "";
    assert.equal(actual?.kind, expected?.kind, `what is answered to ${id}: ${why}`);
    if (actual?.kind === "gone") this.#lost.delete(id);
    if (actual?.kind !== "granted") this.#told.delete(id);
    if (expected?.kind === "granted" && actual?.kind === "granted") {
      this.#told.add(id);
      assert.equal(actual.token, this.#token(name, expected.token, actual.token), `the token of ${id}`);
      assert.equal(actual.floor, this.#token(name, expected.floor, actual.floor), `the floor of ${id}`);
      assert.equal(actual.live?.length, expected.live?.length, `how many live beside ${id}`);
      expected.live?.forEach((token, n) =>
        assert.equal(actual.live?.[n], this.#token(name, token, actual.live?.[n] ?? 0)),
      );
      const [least, most] = this.#world.leftMs(expected.leftMs, kept.leaseMs, kept.others);
      const stranger = this.#world.sessionBound && client !== kept.client;
      // A heartbeat of which the answer was lost proves nothing.
      const unproven = this.#extent.bad > 0;
      const right = stranger
        ? actual.leftMs === 0
        : actual.leftMs >= (unproven ? 0 : least - 1) && actual.leftMs <= most + 1;
      assert.ok(right, `${id} has ${actual.leftMs} ms left, and should have ${expected.leftMs}`);
    }
    if (expected?.kind === "queued" && actual?.kind === "queued") {
      assert.equal(actual.nextMs === null, expected.nextMs === null, `whether ${id} is the first to wait`);
      assert.equal(actual.token, this.#token(name, expected.token, actual.token), `the token of ${id} while it waits`);
      assert.equal(actual.holder === undefined, expected.holder === undefined, "a holder is named");
    }
    if (expected?.kind === "mismatch") assert.deepEqual(actual, expected);
    // Why it is gone is told if that could be learned.
    if (expected?.kind === "gone" && this.#extent.bad === 0) assert.deepEqual(actual, expected);
  }

  #token(name: string, expected: number, actual: number): number {
    const known = this.#tokens.get(name) ?? new Map<number, number>([[0, 0]]);
    this.#tokens.set(name, known);
    const before = known.get(expected);
    if (before !== undefined) return before;
    for (const [older, seen] of known) {
      assert.equal(actual > seen, expected > older, `token ${actual} stands in the same order to ${seen}`);
    }
    known.set(expected, actual);
    return actual;
  }

  async #modelHas({ name, id }: ClaimRequest): Promise<boolean> {
    const state = await stateOf(this.#modelOf(0), name);
    return [...(state?.holders ?? []), ...(state?.waiters ?? [])].some((one) => one.id === id);
  }

  // Small things.

  #newClaim(kind: number, wait: boolean): ClaimRequest {
    const { units } = KINDS[kind] ?? KINDS[0];
    const capacity = this.#capacities[kind] ?? 1;
    return {
      name: this.#names[kind] ?? "",
      id: this.#chance.id(),
      units: Math.min(this.#one(units), capacity),
      capacity,
      leaseMs: this.#one(LEASES_MS),
      wait,
      owner: { client: "lockstep", host: "localhost", pid: 1 },
      ...(this.#chance.chance(0.3) ? { exact: true } : {}),
      ...(this.#chance.chance(0.2) ? { chosen: true as const } : {}),
      ...(this.#chance.chance(0.25) ? { fixed: true as const } : {}),
    };
  }

  #keep(claim: ClaimRequest, client: number): Kept {
    const { leaseMs } = claim;
    const kept = {
      claim,
      client,
      leaseMs,
      clean: true,
      shared: false,
      others: 0,
      releasedAt: null,
    };
    this.#kept.push(kept);
    return kept;
  }

  /** The newer, the likelier: most of the old ones are dead. */
  #pick(): Kept | undefined {
    return this.#kept[this.#kept.length - 1 - Math.floor(this.#kept.length * this.#chance.fraction() ** 2)];
  }

  #one<T>(list: readonly T[]): T {
    return list[this.#chance.between(0, list.length - 1)] as T;
  }

  #modelOf(client: number): Engine {
    return this.#model[client] as Engine;
  }

  #testedOf(client: number): Engine {
    return this.#tested[client] as Engine;
  }

  #say(what: string): void {
    this.#log.push(`${this.#world.time.now() / 1000} s: ${what}`);
  }
}

function shown({ id, name, units, capacity, leaseMs, wait, chosen, fixed }: ClaimRequest): string {
  const more = [wait ? "waits" : "", chosen ? "chosen" : "", fixed ? "fixed" : ""].filter((word) => word !== "");
  return `${id.slice(0, 4)} on ${name.slice(0, 6)}: ${units} of ${capacity} for ${leaseMs} ${more.join(" ")}`;
}
