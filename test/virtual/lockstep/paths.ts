import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import type { ClaimRequest, Engine, EngineEvent } from "../../../src/core/engine.js";
import type { NameState } from "../../../src/core/inspect.js";
import { READERS_MAX, TOMBSTONE_MS } from "../../../src/core/limits.js";
import { stateOf } from "../../../src/testing/conformance/kit.js";
import type { SeededChance } from "../../../src/testing/seeded-chance.js";
import type { World } from "./lockstep.js";

/** What a store keeps of a name, read past the engine. `facts`: what is written there beside the position. */
export type Stored = {
  readonly claims: readonly {
    readonly id: string;
    readonly order: number;
    readonly token: number;
    readonly facts: object;
    readonly endsAt: number | undefined;
  }[];
  readonly tombstones: readonly string[];
  /** The record of a changed capacity, if it counts. */
  readonly changed: { readonly capacity: number; readonly heldUpTo: number | null } | null;
};

export type PathsWorld = World & {
  stored(name: string): Promise<Stored>;
  stop(): Promise<void>;
};

type PathsOptions = {
  readonly commands: number;
  /**
   * The one keeps leases alive that the other does not. Then it is not compared when a lease in the store ends, the time that is
   * left of a hold is compared roughly, and no client takes over a claim of the other, which counts on the lease as it is.
   */
  readonly roughly?: boolean;
  /** In real time; only what is never told takes so long. */
  readonly toldWithinMs?: number;
};

const KINDS = [
  { capacity: 1, units: [1] },
  { capacity: 3, units: [1, 2, 3] },
  { capacity: READERS_MAX, units: [1, 1, READERS_MAX] },
] as const;
const LEASES_MS = [9_000, 21_000, 61_000] as const;
/** After each command: longer than claims are in the store before they are watched. */
const REST_MS = 250;
const PASSES_MS = [1_000, 4_000, 8_000, 16_000] as const;
const TOLD_WITHIN_MS = Number(process.env["HOLDFAST_TOLD_MS"] ?? 45_000);
/** How much of what was said before a failure shows. */
const SHOWN = 30;

type Kept = {
  readonly claim: ClaimRequest;
  client: number;
  /** The longest that was asked for: some stores keep the longest. */
  leaseMs: number;
  /** Kept alive by another client since it was claimed: which of the two is told of its end depends on who hears of it first. */
  shared: boolean;
  /** Sent once. */
  clean: boolean;
  releasedAt: number | null;
};

/** One of the two that are compared: two clients in a world of their own, and what they were told. */
class Side {
  readonly world: PathsWorld;
  readonly engines: readonly [Engine, Engine];
  /** Claims that came at once are called by the order in which they arrived here. */
  readonly calledHere = new Map<string, string>();
  readonly #called = new Map<string, string>();
  /** Since the last command. */
  pushes: { readonly client: number; readonly event: EngineEvent }[] = [];
  readonly told = new Set<string>();

  constructor(world: PathsWorld, engines: readonly [Engine, Engine]) {
    this.world = world;
    this.engines = engines;
    engines.forEach((engine, client) =>
      engine.listen((event) => {
        if (event.kind !== "warning") this.pushes.push({ client, event });
      }),
    );
  }

  call(id: string, here: string): void {
    this.calledHere.set(id, here);
    this.#called.set(here, id);
  }

  here(id: string): string {
    return this.calledHere.get(id) ?? id;
  }

  idOf(here: string): string {
    return this.#called.get(here) ?? here;
  }
}

type State = ReadonlyMap<string, NameState | undefined>;

/**
 * The same random commands of two clients to an engine as it is shipped and to one without a fast path, in virtual time: the same
 * answers, the same pushes, and the same in the store after each command. Tokens are compared by their order.
 */
export async function comparePaths(
  worlds: readonly [fast: PathsWorld, plain: PathsWorld],
  chance: SeededChance,
  options: PathsOptions,
): Promise<void> {
  const sides: Side[] = [];
  try {
    for (const world of worlds) sides.push(new Side(world, [await world.open(), await world.open()]));
    const [fast, plain] = sides;
    assert.ok(fast && plain);
    const run = new Paths(fast, plain, chance, options);
    try {
      await run.play();
    } catch (error) {
      throw new Error(`${error instanceof Error ? error.message : String(error)}\n${run.story}`, { cause: error });
    }
  } finally {
    for (const { engines } of sides) for (const engine of engines) await engine[Symbol.asyncDispose]();
    for (const world of worlds) await world.stop();
  }
  for (const world of worlds) {
    await world.time.advance(TOMBSTONE_MS * 3, 4_000);
    await world.assertEmpty();
  }
}

class Paths {
  readonly #fast: Side;
  readonly #plain: Side;
  readonly #chance: SeededChance;
  readonly #options: PathsOptions;
  readonly #names: readonly string[];
  readonly #kept: Kept[] = [];
  readonly #capacities: number[] = KINDS.map(({ capacity }) => capacity);
  readonly #tokens = new Map<string, Map<number, number>>();
  readonly #log: string[] = [];
  #state: State = new Map();

  constructor(fast: Side, plain: Side, chance: SeededChance, options: PathsOptions) {
    this.#fast = fast;
    this.#plain = plain;
    this.#chance = chance;
    this.#options = options;
    this.#names = KINDS.map((_, kind) => `name ${kind} ${chance.id()}`);
  }

  get story(): string {
    return this.#log.slice(-SHOWN).join("\n");
  }

  async play(): Promise<void> {
    for (let n = 0; n < this.#options.commands; n += 1) {
      await this.#command();
      await this.#rest();
    }
    for (const { claim, client } of this.#kept) {
      const { name, id } = claim;
      await this.#both(`release ${id}`, client, (engine, here) => engine.release({ name, id: here(id) }));
    }
    await this.#rest();
  }

  async #command(): Promise<void> {
    const dice = this.#chance.between(0, 99);
    if (dice < 26) await this.#claimNew();
    else if (dice < 31) await this.#again();
    else if (dice < 48) await this.#release();
    else if (dice < 64) await this.#renew();
    else if (dice < 69) await this.#resize();
    else if (dice < 74) await this.#setCapacity();
    else if (dice < 84) await this.#burst();
    else if (dice < 93) await this.#live();
    else await this.#pass(this.#one(PASSES_MS));
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
    const client = this.#chance.between(0, 1);
    await this.#claim(kept, kept.claim.chosen && !this.#options.roughly ? client : kept.client);
  }

  async #claim(kept: Kept, client: number): Promise<void> {
    const { claim } = kept;
    if (!this.#isThere(claim)) [kept.client, kept.shared, kept.leaseMs] = [client, false, claim.leaseMs];
    else if (client !== kept.client) kept.shared = true;
    await this.#both(
      `claim by ${client}: ${JSON.stringify(claim)}`,
      client,
      (engine, here) => engine.claim({ ...claim, id: here(claim.id) }),
      [kept],
    );
  }

  /** Mostly of somebody who holds: then others get their turn. */
  async #release(): Promise<void> {
    const holders = this.#state.get(this.#one(this.#names))?.holders ?? [];
    const holder = this.#chance.chance(0.8) && holders.length > 0 ? this.#one(holders) : undefined;
    const kept = this.#kept.find(({ claim }) => claim.id === holder?.id) ?? this.#pick();
    if (kept === undefined) return;
    const client = this.#chance.chance(0.75) ? kept.client : 1 - kept.client;
    const { name, id } = kept.claim;
    const settled = kept.clean && kept.releasedAt === null && client === kept.client && this.#chance.chance(0.5);
    const tombstone = settled ? "never" : "always";
    await this.#both(`release by ${client}, tombstone ${tombstone}: ${id}`, client, (engine, here) =>
      engine.release({ name, id: here(id), tombstone }),
    );
    kept.releasedAt ??= this.#fast.world.time.now();
    if (settled) this.#kept.splice(this.#kept.indexOf(kept), 1);
  }

  async #renew(): Promise<void> {
    const client = this.#chance.between(0, 1);
    const picks = new Set(Array.from({ length: this.#chance.between(1, 9) }, () => this.#pick()));
    const some = [...picks]
      .filter((kept) => kept !== undefined)
      .filter((kept) => kept.client === client || !this.#options.roughly);
    const extended = this.#chance.chance(0.3);
    for (const kept of some) {
      if (extended) kept.leaseMs = Math.max(kept.leaseMs, this.#one(LEASES_MS));
      if (kept.client === client || this.#fast.world.sessionBound) continue;
      // It is this client's from now on.
      [kept.client, kept.shared] = [client, true];
    }
    await this.#renewAll(client, some);
  }

  async #renewAll(client: number, some: readonly Kept[]): Promise<void> {
    if (some.length === 0) return;
    await this.#both(
      `renew by ${client}: ${some.map(({ claim, leaseMs }) => `${claim.id} for ${leaseMs}`).join(", ")}`,
      client,
      (engine, here) => engine.renew(some.map(({ claim: { name, id }, leaseMs }) => ({ name, id: here(id), leaseMs }))),
      some,
    );
  }

  async #resize(): Promise<void> {
    const kept = this.#pick();
    if (kept === undefined) return;
    const units = this.#chance.between(1, 3);
    const { name, id } = kept.claim;
    await this.#both(`resize to ${units}: ${id}`, kept.client, (engine, here) =>
      engine.resize({ name, id: here(id) }, units),
    );
  }

  async #setCapacity(): Promise<void> {
    const client = this.#chance.between(0, 1);
    const [name = "", from = 1, to] = [this.#names[1], this.#capacities[1], this.#chance.between(1, 5)];
    await this.#both(`set the capacity by ${client} from ${from} to ${to}`, client, (engine) =>
      engine.setCapacity(name, from, to),
    );
    this.#capacities[1] = to;
  }

  /** At once, and all the same: whichever arrived first is called the first. */
  async #burst(): Promise<void> {
    const client = this.#chance.between(0, 1);
    const { exact: _, chosen: __, ...claim } = this.#newClaim(this.#chance.between(0, 2), true);
    const all = Array.from({ length: this.#chance.between(2, 7) }, () =>
      this.#keep({ ...claim, id: this.#chance.id() }, client),
    );
    const ids = all.map((kept) => kept.claim.id);
    this.#say(`burst by ${client}: ${JSON.stringify(claim)} ${ids.join(" ")}`);
    const answers = await Promise.all(
      [this.#fast, this.#plain].map(async (side) => {
        const engine = this.#engine(side, client);
        const given = await Promise.all(ids.map((id) => engine.claim({ ...claim, id })));
        const state = await stateOf(engine, claim.name);
        const order = [...(state?.holders ?? []), ...(state?.waiters ?? [])].map(({ id }) => id);
        const arrived = ids.toSorted((one, two) => order.indexOf(one) - order.indexOf(two));
        for (const [n, id] of ids.entries()) side.call(id, arrived[n] ?? "");
        // Who came behind it may be seen by then.
        return arrived.map((id) => ({ ...calledSo(side, given[ids.indexOf(id)]), lastToken: undefined }));
      }),
    );
    this.#same(claim.name, answers[0], answers[1], "the answers");
    for (const [n, kept] of all.entries()) this.#answered(kept, answers[0]?.[n]);
  }

  /** Everybody sends a heartbeat, by its own client. */
  async #live(): Promise<void> {
    for (const client of [0, 1]) {
      const own = this.#kept.filter((kept) => kept.client === client && kept.releasedAt === null);
      await this.#renewAll(client, own);
    }
  }

  async #pass(ms: number): Promise<void> {
    this.#say(`${ms} ms pass`);
    await this.#advance(ms);
    const now = this.#fast.world.time.now();
    // Tombstones end about now, on one side perhaps a moment later.
    const old = this.#kept.filter(({ releasedAt }) => releasedAt !== null && now - releasedAt > TOMBSTONE_MS / 2);
    for (const kept of old) this.#kept.splice(this.#kept.indexOf(kept), 1);
  }

  async #advance(ms: number): Promise<void> {
    await Promise.all([this.#fast, this.#plain].map(({ world }) => world.time.advance(ms, REST_MS)));
  }

  // Both sides.

  async #both<T>(
    what: string,
    client: number,
    call: (engine: Engine, here: (id: string) => string) => Promise<T>,
    asked: readonly Kept[] = [],
  ): Promise<void> {
    this.#say(what);
    const [fast, plain] = await Promise.all(
      [this.#fast, this.#plain].map(async (side) =>
        calledSo(side, await call(this.#engine(side, client), (id) => side.here(id))),
      ),
    );
    const pairs = Array.isArray(fast) && Array.isArray(plain) ? fast.map((one, n) => [one, plain[n]]) : [[fast, plain]];
    for (const [n, [one, two]] of pairs.entries()) {
      this.#same(asked[n]?.claim.name ?? "", one, two, `what is answered${asked[n] ? ` to ${asked[n].claim.id}` : ""}`);
      if (asked[n] !== undefined) this.#answered(asked[n], one);
    }
  }

  #answered({ claim }: Kept, answer: unknown): void {
    const { kind } = answer as { readonly kind?: string };
    for (const { told } of [this.#fast, this.#plain]) {
      if (kind === "granted") told.add(claim.id);
      else told.delete(claim.id);
    }
  }

  /** Until everybody who holds was told so, and both sides were told the same. Then both stores contain the same. */
  async #rest(): Promise<void> {
    await this.#advance(REST_MS);
    const [state, other] = [await this.#inspect(this.#fast), await this.#inspect(this.#plain)];
    for (const name of this.#names) this.#same(name, state.get(name), other.get(name), `what is shown of ${name}`);
    this.#state = state;
    const startedAt = performance.now();
    for (;;) {
      const [fast, plain] = [this.#told(this.#fast), this.#told(this.#plain)];
      if (fast.untold.length + plain.untold.length === 0 && isDeepStrictEqual(fast.short, plain.short)) {
        fast.pushes.forEach((one, n) => this.#same(one.name, one, plain.pushes[n], "what is pushed"));
        break;
      }
      const late = performance.now() - startedAt >= (this.#options.toldWithinMs ?? TOLD_WITHIN_MS);
      assert.ok(!late, `not told alike: ${JSON.stringify([fast.short, fast.untold, plain.short, plain.untold])}`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    for (const side of [this.#fast, this.#plain]) {
      for (const { id } of this.#told(side).pushes) side.told.add(id);
      side.pushes = [];
    }
    for (const name of this.#names) {
      const [fast, plain] = [await this.#stored(this.#fast, name), await this.#stored(this.#plain, name)];
      this.#same(name, fast, plain, `what is stored of ${name}`);
    }
  }

  async #inspect(side: Side): Promise<State> {
    const states = new Map<string, NameState | undefined>();
    for (const name of this.#names) {
      const state = await stateOf(this.#engine(side, 0), name);
      const named = <T extends { readonly id: string; readonly leftMs: number }>(entries: readonly T[]): T[] =>
        entries.map((entry) => ({
          ...entry,
          id: side.idOf(entry.id),
          leftMs: this.#options.roughly ? 0 : entry.leftMs,
        }));
      states.set(name, state && { ...state, holders: named(state.holders), waiters: named(state.waiters) });
    }
    return states;
  }

  /** The grants and losses that a side was told since the last command, and who holds without having been told. */
  #told(side: Side) {
    const held = new Set([...this.#state.values()].flatMap((state) => state?.holders ?? []).map(({ id }) => id));
    const pushes = side.pushes.flatMap(({ client, event }) => {
      if (event.kind !== "granted" && event.kind !== "lost") return [];
      const id = side.idOf(event.id);
      const kept = this.#kept.find(({ claim }) => claim.id === id);
      if (kept === undefined || kept.client !== client) return [];
      // Whoever was granted and has ended at the same time may have been told, or not.
      const counts = event.kind === "granted" ? held.has(id) : !kept.shared && !this.#isThere(kept.claim);
      return counts ? [{ ...event, id, client }] : [];
    });
    const sorted = pushes.toSorted((one, two) => (one.id < two.id ? -1 : 1));
    const granted = new Set(pushes.map(({ id }) => id));
    const untold = this.#kept.filter(
      ({ claim: { id }, releasedAt }) => releasedAt === null && held.has(id) && !side.told.has(id) && !granted.has(id),
    );
    return {
      pushes: sorted,
      short: sorted.map(({ kind, id, client }) => `${kind} ${id} to ${client}`),
      untold: untold.map(({ claim }) => claim.id),
    };
  }

  async #stored(side: Side, name: string) {
    const { claims, tombstones, changed } = await side.world.stored(name);
    const inOrder = claims.toSorted((one, two) => one.order - two.order);
    return {
      claims: inOrder.map(({ id, token, facts, endsAt }) => ({ id: side.idOf(id), token, facts, endsAt })),
      tombstones: tombstones.map((id) => side.idOf(id)).toSorted(),
      changed: changed && {
        capacity: changed.capacity,
        held: claims.filter(({ order }) => order <= (changed.heldUpTo ?? -Infinity)).length,
      },
    };
  }

  /** All the same; tokens by their order, and the time that is left as it may be. */
  #same(name: string, fast: unknown, plain: unknown, what: string): void {
    assert.deepEqual(this.#comparable(name, plain, fast), fast, what);
  }

  /** `plain` with the tokens that `fast` has for them. */
  #comparable(name: string, plain: unknown, fast: unknown, key = ""): unknown {
    if (typeof plain === "number" && typeof fast === "number") {
      if (["token", "floor", "lastToken", "live"].includes(key)) return this.#token(name, fast, plain);
      if (this.#options.roughly && key === "endsAt") return fast;
      if (this.#options.roughly && key === "leftMs") {
        const [least, most] = this.#fast.world.leftMs(fast, fast, 0);
        return plain >= least - 1 && plain <= most + 1 ? fast : plain;
      }
      return plain;
    }
    if (Array.isArray(plain) && Array.isArray(fast)) {
      return plain.map((one, n) => this.#comparable(name, one, fast[n], key));
    }
    if (typeof plain !== "object" || plain === null || typeof fast !== "object" || fast === null) return plain;
    if (plain instanceof Error) return plain;
    const waits = this.#options.roughly && "kind" in plain && plain.kind === "queued";
    return Object.fromEntries(
      Object.entries(waits ? withPlaceOf(fast, plain) : plain).map(([one, value]) => [
        one,
        this.#comparable(name, value, (fast as Record<string, unknown>)[one], one),
      ]),
    );
  }

  #token(name: string, fast: number, plain: number): number {
    const known = this.#tokens.get(name) ?? new Map<number, number>([[0, 0]]);
    this.#tokens.set(name, known);
    const before = known.get(plain);
    if (before !== undefined) return before;
    for (const [older, seen] of known) {
      if (fast > seen !== plain > older || fast === seen) return plain;
    }
    known.set(plain, fast);
    return fast;
  }

  // Small things.

  #isThere({ name, id }: ClaimRequest): boolean {
    const { holders = [], waiters = [] } = this.#state.get(name) ?? {};
    return [...holders, ...waiters].some((one) => one.id === id);
  }

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
      owner: { client: "paths", host: "localhost", pid: 1 },
      ...(this.#chance.chance(0.3) ? { exact: true } : {}),
      ...(this.#chance.chance(0.2) ? { chosen: true as const } : {}),
      ...(this.#chance.chance(0.25) ? { fixed: true as const } : {}),
    };
  }

  #keep(claim: ClaimRequest, client: number): Kept {
    const kept: Kept = { claim, client, leaseMs: claim.leaseMs, shared: false, clean: true, releasedAt: null };
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

  #engine({ engines }: Side, client: number): Engine {
    return engines[client] as Engine;
  }

  #say(what: string): void {
    this.#log.push(`${this.#fast.world.time.now() / 1000} s: ${what}`);
  }
}

/** Where leases are kept alive at other times, a place is sure for longer or shorter: as `fast` says it. */
function withPlaceOf(fast: object, plain: object): object {
  const { leftMs: _, ...rest } = plain as { readonly leftMs?: unknown };
  return "leftMs" in fast ? { ...rest, leftMs: fast.leftMs } : rest;
}

/** The claim that is named in an answer, by what it is called on both sides. */
function calledSo<T>(side: Side, answer: T): T {
  const { ahead } = (answer ?? {}) as { readonly ahead?: string };
  return ahead === undefined ? answer : { ...answer, ahead: side.idOf(ahead) };
}
