import assert from "node:assert/strict";
import type { ClaimRequest, Engine } from "../../../src/core/engine.js";
import { TOMBSTONE_MS } from "../../../src/core/limits.js";
import { redisEngine } from "../../../src/engines/redis/index.js";
import { stateOf } from "../../../src/testing/conformance/kit.js";
import { SeededChance } from "../../../src/testing/seeded-chance.js";
import { type Build, type VirtualRedis, virtualRedis } from "../redis.js";

export type PlainOptions = Pick<Build, "edit"> & {
  readonly layout?: SharedLayout;
  readonly seed: number;
  readonly runs: number;
  readonly commands: number;
};

type SharedLayout = "plain" | "redisson" | "redisson-fenced";

const LEASES_MS = [500, 1_000, 3_000, 60_000];
const PASSES_MS = [0.125, 1, 250, 500, 500.125, 1_000, 3_000, 59_999, 60_000];

/**
 * A layout that other programs share against its own rules, in virtual time: random commands of two clients, and of a program that knows
 * nothing of us, each answered as the rules say.
 */
export async function compareSharedLayout({
  layout = "plain",
  seed,
  runs,
  commands,
  ...build
}: PlainOptions): Promise<number> {
  const world = await virtualRedis();
  try {
    const client = await world.client(build);
    const open = (): Promise<Engine> => redisEngine(client, { layout });
    const engines = [await open(), await open()] as const;
    for (let run = 0; run < runs; run += 1) {
      const mutex = new Mutex(world, layout, engines, new SeededChance(seed + run), `${layout} ${seed} ${run}`);
      try {
        for (let n = 0; n < commands; n += 1) await mutex.command();
      } catch (error) {
        const { message } = error as Error;
        throw new Error(`seed ${seed + run}:\n${mutex.said.join("\n")}\n${message}`, { cause: error });
      }
    }
    for (const engine of engines) await engine[Symbol.asyncDispose]();
    return runs * commands;
  } finally {
    await world.close();
  }
}

/** A key is there until the millisecond after its end, so that its last answer has 0 ms left. */
type Held = { readonly id: string; readonly token: number; readonly endsMs: number };

class Mutex {
  readonly said: string[] = [];
  readonly #world: VirtualRedis;
  readonly #layout: SharedLayout;
  readonly #engines: readonly [Engine, Engine];
  readonly #chance: SeededChance;
  readonly #name: string;
  readonly #ids: string[] = [];
  #held: Held | null = null;
  /** What RFencedLock counts in. */
  #lastToken = 0;
  readonly #tombstones = new Map<string, number>();

  constructor(
    world: VirtualRedis,
    layout: SharedLayout,
    engines: readonly [Engine, Engine],
    chance: SeededChance,
    name: string,
  ) {
    this.#world = world;
    this.#layout = layout;
    this.#engines = engines;
    this.#chance = chance;
    this.#name = name;
  }

  async command(): Promise<void> {
    const chance = this.#chance;
    const engine = this.#engines[chance.between(0, 1) as 0 | 1];
    const draw = chance.fraction();
    if (draw < 0.25) return this.#pass(pick(chance, PASSES_MS));
    if (draw < 0.5 || this.#ids.length === 0) return this.#claim(engine);
    if (draw < 0.7) return this.#release(engine);
    if (draw < 0.85) return this.#renew(engine);
    if (draw < 0.92) return this.#inspect(engine);
    if (draw < 0.96) return this.#stranger();
    const units = chance.between(1, 2);
    const expected = this.#held?.id === this.#id() ? (units === 1 ? "resized" : "refused") : "gone";
    await this.#same(`resize to ${units}`, engine.resize({ name: this.#name, id: this.#id() }, units), expected);
  }

  get #nowMs(): number {
    return Math.floor(this.#world.clock.wallMs());
  }

  /** The one that holds it, or one of the last that were asked with. */
  #id(): string {
    return this.#held !== null && this.#ids.includes(this.#held.id) ? this.#held.id : (this.#ids.at(-1) ?? "");
  }

  #someId(): string {
    const chance = this.#chance;
    return chance.chance(0.6) ? this.#id() : (this.#ids[chance.between(0, this.#ids.length - 1)] ?? "");
  }

  async #pass(ms: number): Promise<void> {
    this.said.push(`pass ${ms} ms`);
    await this.#world.clock.advance(ms);
    if (this.#held !== null && this.#held.endsMs < this.#nowMs) this.#held = null;
    for (const [id, until] of this.#tombstones) if (until < this.#nowMs) this.#tombstones.delete(id);
  }

  async #claim(engine: Engine): Promise<void> {
    const chance = this.#chance;
    const id = this.#ids.length > 0 && chance.chance(0.4) ? this.#someId() : chance.id();
    if (!this.#ids.includes(id)) this.#ids.push(id);
    const leaseMs = pick(chance, LEASES_MS);
    const nowUs = this.#world.clock.wallMs() * 1000;
    const tokenAtLeast = chance.chance(0.3) ? nowUs + chance.between(-1000, 1000) : 0;
    const exact = chance.chance(0.3);
    const owner = { client: "test", host: "here", pid: 1 };
    const claim: ClaimRequest = {
      name: this.#name,
      id,
      units: 1,
      capacity: 1,
      leaseMs,
      wait: true,
      owner,
      exact,
      tokenAtLeast,
    };
    if (!this.#tombstones.has(id)) {
      const least = this.#layout === "redisson-fenced" ? this.#lastToken + 1 : 0;
      this.#held ??= { id, token: Math.max(nowUs, tokenAtLeast, least), endsMs: this.#nowMs + leaseMs };
      this.#lastToken = Math.max(this.#lastToken, this.#held.token);
    }
    const expected = this.#tombstones.has(id)
      ? { kind: "gone" }
      : this.#held?.id === id
        ? this.#granted()
        : { kind: "busy" };
    const live = exact && expected.kind === "granted" ? { live: [this.#held?.token] } : {};
    await this.#same(`claim ${id} for ${leaseMs} ms`, engine.claim(claim), { ...expected, ...live });
  }

  #granted() {
    const { token = 0, endsMs = 0 } = this.#held ?? {};
    return { kind: "granted", leftMs: endsMs - this.#nowMs, token, floor: token };
  }

  async #release(engine: Engine): Promise<void> {
    const id = this.#someId();
    const answered = this.#chance.chance(0.5);
    const ours = this.#held?.id === id;
    const expected = ours ? "released" : this.#tombstones.has(id) ? "revoked" : "gone";
    if (ours) this.#held = null;
    if (!answered) this.#tombstones.set(id, this.#nowMs + TOMBSTONE_MS);
    await this.#same(
      `release ${id}, answered ${answered}`,
      engine.release({ name: this.#name, id, tombstone: answered ? "never" : "always" }),
      expected,
    );
    const { redis } = this.#world;
    const [pushed] = await Promise.all([redis.lrange("virtual:pushed", 0, -1), redis.del("virtual:pushed")]);
    const push =
      this.#layout === "plain" ? `holdfast:plain\n${this.#name}` : `redisson_lock__channel:{${this.#name}}\n0`;
    assert.deepEqual(pushed, ours ? [push] : [], "who waits is woken");
  }

  async #renew(engine: Engine): Promise<void> {
    const id = this.#someId();
    const leaseMs = this.#chance.chance(0.7) ? { leaseMs: pick(this.#chance, LEASES_MS) } : {};
    const held = this.#held;
    if (held?.id === id) {
      this.#held = { ...held, endsMs: Math.max(held.endsMs, this.#nowMs + (leaseMs.leaseMs ?? 0)) };
    }
    const gone = this.#tombstones.has(id) ? { kind: "gone", revoked: true } : { kind: "gone" };
    const expected = held?.id === id ? this.#granted() : gone;
    await this.#same(`renew ${id} ${leaseMs.leaseMs}`, engine.renew([{ name: this.#name, id, ...leaseMs }]), [
      expected,
    ]);
  }

  async #inspect(engine: Engine): Promise<void> {
    const held = this.#held;
    const holder = held && {
      id: held.id,
      units: 1,
      leftMs: held.endsMs - this.#nowMs,
      owner: { client: this.#shown(held), host: "unknown", pid: 0 },
      token: held.token,
    };
    const expected = held && { name: this.#name, capacity: 1, lastToken: held.token, holders: [holder], waiters: [] };
    await this.#same("inspect", stateOf(engine, this.#name), expected ?? undefined);
  }

  #shown({ id, token }: Held): string {
    if (token === 0) return id;
    return this.#layout === "plain" ? `${id}:${token}` : `holdfast:${id}:${token}`;
  }

  /** Another program takes it for ever, or gives back what it took. */
  async #stranger(): Promise<void> {
    const { redis } = this.#world;
    this.said.push("another program takes it or gives it back");
    if (this.#held === null) {
      if (this.#layout === "plain") await redis.set(this.#name, "stranger");
      else await redis.hset(this.#name, "stranger", 1);
      this.#held = { id: "stranger", token: 0, endsMs: Number.POSITIVE_INFINITY };
    } else if (this.#held.id === "stranger") {
      await redis.del(this.#name);
      this.#held = null;
    }
  }

  async #same(what: string, answer: Promise<unknown>, expected: unknown): Promise<void> {
    this.said.push(what);
    assert.deepEqual(await answer, expected);
  }
}

function pick(chance: SeededChance, list: readonly number[]): number {
  return list[chance.between(0, list.length - 1)] ?? 0;
}
