import assert from "node:assert/strict";
import type {
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
  Tombstone,
} from "../../../src/core/engine.js";
import { READERS_MAX, TOMBSTONE_MS } from "../../../src/core/limits.js";
import { redisEngine } from "../../../src/engines/redis/index.js";
import { stateOf } from "../../../src/testing/conformance/kit.js";
import { SeededChance } from "../../../src/testing/seeded-chance.js";
import { type Build, type FastPath, type VirtualRedis, virtualRedis } from "../redis.js";
import { type StoredName, storedName } from "./state.js";

/** Short, so that keys end in a run. Suggested tokens stay within it of now: a name that was forgotten begins at the time. */
const IDLE_MS = 2_000;

const KINDS = [
  { capacity: 1, units: [1] },
  { capacity: 3, units: [1, 1, 2, 3] },
  { capacity: READERS_MAX, units: [1, 1, READERS_MAX] },
] as const;
const LEASES_MS = [500, 1_000, 1_000, 3_000, 15_000, 60_000] as const;
const PASSES_MS = [0.125, 1, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 60_000, TOMBSTONE_MS];
/** Where time stops when something ends. */
const BESIDE_MS = [-0.125, 0, 0, 0, 0.125, 1];
/** No key lives longer than the longest lease, after the longest wait, and what is kept beyond: nothing stays for ever. */
const LIVES_MAX_MS = 60_000 + 10_000 + IDLE_MS + 2_000;

/** How much of what was said before a failure shows. */
const SHOWN = 24;

type Side = { readonly prefix: string; readonly engines: readonly [Engine, Engine] };

export type PathsOptions = {
  readonly without: readonly FastPath[];
  /** For both sides, as a mutant is; a fast path's mutant counts on the side that has it. */
  readonly edit?: Build["edit"];
  readonly seed: number;
  readonly runs: number;
  readonly commands: number;
  /** Where there is a server already. */
  readonly world?: VirtualRedis;
};

/**
 * The same random commands to the scripts as they are shipped and to a build without some of their fast paths, while time
 * passes: the same answers, the same pushes, the same stored state after every command, and that state sound.
 */
export async function compareFastPaths(options: PathsOptions): Promise<number> {
  const { without, edit, seed, runs, commands } = options;
  const world = options.world ?? (await virtualRedis());
  const more = edit === undefined ? {} : { edit };
  try {
    const sides = [await side(world, "fast:", more), await side(world, "plain:", { ...more, without })] as const;
    let done = 0;
    await world.redis.del("virtual:pushed");
    for (let run = 0; run < runs; run += 1) {
      const twins = new Twins(world, sides, new SeededChance(seed + run), `${seed} ${run}`);
      try {
        for (let n = 0; n < commands; n += 1) await twins.command();
      } catch (error) {
        const { message } = error as Error;
        throw new Error(`seed ${seed + run}:\n${twins.said.slice(-SHOWN).join("\n")}\n${message}`, { cause: error });
      }
      done += twins.commands;
    }
    for (const { engines } of sides) for (const engine of engines) await engine[Symbol.asyncDispose]();
    return done;
  } finally {
    if (options.world === undefined) await world.close();
  }
}

async function side(world: VirtualRedis, prefix: string, build: Build): Promise<Side> {
  const client = await world.client(build);
  const open = (n: number): Promise<Engine> =>
    redisEngine(client, { prefix, idleMs: IDLE_MS, chance: new SeededChance(n) });
  return { prefix, engines: [await open(0), await open(1)] };
}

type Moment = {
  readonly name: string;
  readonly id: string;
  readonly holder: string | undefined;
  readonly atMs: number;
};

type Told = ClaimRef & { readonly leftMs: number };

/** One operation, as both sides are asked it. */
type Operation = {
  readonly text: string;
  readonly ask: (engines: Side["engines"]) => Promise<unknown>;
  /** The name at which it must have cleared tombstones that are over, if it was answered so. */
  readonly clears?: (answer: unknown) => string | undefined;
  /** How long each of these claims was told that it holds for. */
  readonly told?: (answer: unknown) => readonly Told[];
};

class Twins {
  readonly said: string[] = [];
  commands = 0;
  readonly #world: VirtualRedis;
  readonly #sides: readonly [Side, Side];
  readonly #chance: SeededChance;
  readonly #names: readonly string[];
  readonly #claims: ClaimRequest[] = [];
  /** When claims and tombstones end, and of which claim the last such moment was. */
  #moments: readonly Moment[] = [];
  #focus: Moment | undefined;
  #ended: ClaimRequest | undefined;
  readonly #clients = new Map<ClaimRequest, 0 | 1>();
  /** Of each name: the last one, and those of its holders. */
  #tokens: ReadonlyMap<string, readonly number[]> = new Map();
  #alone: string | undefined;
  /** The kind of name that most is asked of. */
  readonly #home: number;

  constructor(world: VirtualRedis, sides: readonly [Side, Side], chance: SeededChance, stem: string) {
    this.#world = world;
    this.#sides = sides;
    this.#chance = chance;
    this.#names = KINDS.map((_, kind) => `${stem} ${kind}`);
    this.#home = chance.between(0, 2);
  }

  /** Several operations in one turn of the event loop, or time passes. */
  async command(): Promise<void> {
    const chance = this.#chance;
    if (chance.chance(0.25)) return this.#pass();
    const count = chance.chance(0.6) ? 1 : chance.between(2, 6);
    // Mostly one client and one name: what is asked together then depends on its order.
    const by = chance.chance(0.7) ? (chance.between(0, 1) as 0 | 1) : undefined;
    const operations = Array.from({ length: count }, () => this.#operation(by ?? (chance.between(0, 1) as 0 | 1)));
    this.commands += count;
    this.said.push(operations.map(({ text }) => text).join("  +  "));
    const asked = ({ engines }: Side): Promise<unknown[]> => Promise.all(operations.map(({ ask }) => ask(engines)));
    const [fast, plain] = await Promise.all([asked(this.#sides[0]), asked(this.#sides[1])]);
    this.said.push(`  ${JSON.stringify(fast)}`);
    assert.deepEqual(fast, plain, "the same answers");
    this.#alone = operations.length === 1 ? operations[0]?.clears?.(fast[0]) : undefined;
    const [pushed, ...stored] = await Promise.all([this.#pushes(), ...this.#sides.map((one) => this.#stored(one))]);
    assert.deepEqual(...pushed, "the same pushes");
    assert.deepEqual(stored[0], stored[1], "the same stored state");
    if (operations.length === 1) this.#notLonger(stored[0] ?? [], operations[0]?.told?.(fast[0]) ?? []);
    this.#tokens = new Map((stored[0] ?? []).map((state, n) => [this.#names[n] ?? "", tokensOf(state)]));
    this.#moments = (stored[0] ?? []).flatMap((state, n) => momentsOf(state, this.#names[n] ?? ""));
  }

  /** Nobody is told that it holds for longer than the server keeps it, not even by a part of a millisecond. */
  #notLonger(stored: readonly (StoredName | null)[], told: readonly Told[]): void {
    const nowUs = this.#world.clock.wallMs() * 1000;
    for (const { name, id, leftMs } of told) {
      const holder = stored[this.#names.indexOf(name)]?.holders.find((one) => one.id === id);
      const left = holder === undefined ? 0 : holder.ends - nowUs;
      assert.ok(leftMs * 1000 <= left, `${short(id)} holds for ${left / 1000} ms, and was told ${leftMs}`);
    }
  }

  /** By some time, or to a moment when something ends: just before it, exactly then, or just after it. */
  async #pass(): Promise<void> {
    const chance = this.#chance;
    const nowMs = this.#world.clock.wallMs();
    const moments = this.#moments.filter(({ atMs }) => atMs > nowMs);
    const moment = chance.chance(0.6) ? moments[chance.between(0, moments.length - 1)] : undefined;
    this.#focus = moment;
    // Or of the holder: whoever waited and is dead must not be handed the name.
    const whose = chance.chance(0.5) ? moment?.id : moment?.holder;
    this.#ended = moment && this.#claims.find(({ name, id }) => name === moment.name && id === whose);
    const some = PASSES_MS[chance.between(0, PASSES_MS.length - 1)] ?? 1;
    const ms = moment === undefined ? some : moment.atMs - nowMs + (BESIDE_MS[chance.between(0, 5)] ?? 0);
    this.said.push(`pass ${ms} ms`);
    await this.#world.clock.advance(ms);
  }

  #operation(by: 0 | 1): Operation {
    const chance = this.#chance;
    const ended = this.#ended;
    this.#ended = undefined;
    if (ended !== undefined && chance.chance(0.6)) return this.#after(ended);
    const draw = chance.fraction();
    const picked = this.#pick();
    if (draw < 0.3 || picked === undefined) return this.#claim(by, this.#newClaim(), "claim");
    if (draw < 0.4) return this.#claim(by, picked, "again");
    if (draw < 0.65) return this.#release(by, picked);
    if (draw < 0.85) return this.#renew(by);
    const { name, id } = picked;
    if (draw < 0.9) {
      const units = chance.between(1, 3);
      return { text: `resize ${short(id)} to ${units}`, ask: (engines) => engines[by].resize({ name, id }, units) };
    }
    if (draw < 0.95) {
      const [from, to] = [chance.between(1, 4), chance.between(1, 4)];
      const at = this.#names[1] ?? "";
      return { text: `capacity ${from} to ${to}`, ask: (engines) => engines[by].setCapacity(at, from, to) };
    }
    return { text: `inspect ${name}`, ask: (engines) => stateOf(engines[by], name) };
  }

  /** What its own client asks of a claim right when it ends, or its tombstone: that depends on who looks at the time. */
  #after(claim: ClaimRequest): Operation {
    const by = this.#clients.get(claim) ?? 0;
    const draw = this.#chance.fraction();
    if (draw < 0.2) return this.#claim(by, { ...this.#newClaim(), ...nameAndCapacityOf(claim), wait: false }, "claim");
    if (draw < 0.5) return this.#release(by, claim);
    return draw < 0.75 ? this.#claim(by, claim, "again") : this.#renew(by, claim);
  }

  #claim(by: 0 | 1, claim: ClaimRequest, what: string): Operation {
    if (!this.#clients.has(claim)) this.#clients.set(claim, by);
    const clears = (answer: unknown): string | undefined => (isIn(answer as ClaimAnswer) ? claim.name : undefined);
    const told = (answer: unknown): readonly Told[] => toldOf([claim], [answer as ClaimAnswer]);
    return { text: `${what} by ${by} ${text(claim)}`, ask: (engines) => engines[by].claim(claim), clears, told };
  }

  /** Often as most releases are: by the claim's own client, and nothing of it can arrive later. */
  #release(by: 0 | 1, claim: ClaimRequest): Operation {
    if (this.#chance.chance(0.4)) return this.#leave(this.#clients.get(claim) ?? by, claim, "never");
    return this.#leave(by, claim, (["always", "never", "if-missing"] as const)[this.#chance.between(0, 2)] ?? "always");
  }

  #leave(by: 0 | 1, { name, id }: ClaimRequest, tombstone: Tombstone): Operation {
    const to = this.#chance.chance(0.3) ? this.#pick()?.id : undefined;
    const leave: ReleaseRequest = { name, id, tombstone, ...(to === undefined ? {} : { to }) };
    return { text: `release by ${by} ${text(leave)}`, ask: (engines) => engines[by].release(leave) };
  }

  #renew(by: 0 | 1, first?: ClaimRequest): Operation {
    const chance = this.#chance;
    const requests: RenewRequest[] = [];
    for (let n = chance.between(1, 5); n > 0; n -= 1) {
      const picked = requests.length === 0 && first !== undefined ? first : this.#pick();
      if (picked === undefined) continue;
      const leaseMs = chance.chance(0.3) ? { leaseMs: this.#lease() } : {};
      const tokenAtLeast = chance.chance(0.2) ? { tokenAtLeast: this.#suggestion(picked.name) } : {};
      requests.push({ name: picked.name, id: picked.id, ...leaseMs, ...tokenAtLeast });
    }
    const clears = (answers: unknown): string | undefined =>
      requests.find((_, n) => isIn((answers as readonly RenewAnswer[])[n]))?.name;
    return {
      text: `renew by ${by} ${requests.map(text).join(" ")}`,
      ask: (engines) => engines[by].renew(requests),
      clears,
      told: (answers) => toldOf(requests, answers as readonly RenewAnswer[]),
    };
  }

  #newClaim(): ClaimRequest {
    const chance = this.#chance;
    const kind = chance.chance(0.7) ? this.#home : chance.between(0, 2);
    const { capacity, units } = KINDS[kind] ?? KINDS[0];
    const lowered = kind === 1 && chance.chance(0.2) ? chance.between(1, 4) : capacity;
    const name = this.#names[kind] ?? "";
    const claim: ClaimRequest = {
      name,
      // Sometimes one that another name knows.
      id: (chance.chance(0.05) ? this.#pick()?.id : undefined) ?? chance.id(),
      capacity: lowered,
      units: Math.min(units[chance.between(0, units.length - 1)] ?? 1, lowered),
      leaseMs: this.#lease(),
      wait: chance.chance(0.6),
      owner: { client: `c${chance.between(0, 2)}`, host: "here", pid: 1 },
      ...(chance.chance(0.3) ? { exact: true } : {}),
      ...(chance.chance(0.3) ? { tokenAtLeast: this.#suggestion(name) } : {}),
      ...(chance.chance(0.2) ? { reserve: chance.between(1, 3) } : {}),
      ...(chance.chance(0.2) ? { data: "two\nlines" } : {}),
    };
    this.#claims.push(claim);
    return claim;
  }

  /** Mostly the one that something just happened to, or one of the last. */
  #pick(): ClaimRequest | undefined {
    const focus = this.#focus;
    if (focus !== undefined && this.#chance.chance(0.5)) {
      const found = this.#claims.find(({ name, id }) => name === focus.name && id === focus.id);
      if (found !== undefined) return found;
    }
    const { length } = this.#claims;
    return this.#claims[this.#chance.between(this.#chance.chance(0.8) ? Math.max(0, length - 6) : 0, length - 1)];
  }

  #lease(): number {
    return LEASES_MS[this.#chance.between(0, LEASES_MS.length - 1)] ?? 1_000;
  }

  /** Around a token that is known, so that a holder is raised past some others, around the time, or ahead of both. */
  #suggestion(name: string): number {
    const chance = this.#chance;
    const nowUs = this.#world.clock.wallMs() * 1000;
    const tokens = this.#tokens.get(name) ?? [];
    const token = tokens[chance.between(0, tokens.length - 1)] ?? nowUs;
    const draw = chance.fraction();
    return draw < 0.7 ? (draw < 0.4 ? token : nowUs) + chance.between(-1, 1) : nowUs + chance.between(0, IDLE_MS * 500);
  }

  /** What was pushed by each side, by name: those of different names may come in another order. */
  async #pushes(): Promise<readonly [unknown, unknown]> {
    const { redis } = this.#world;
    const [pushed] = await Promise.all([redis.lrange("virtual:pushed", 0, -1), redis.del("virtual:pushed")]);
    const of = ({ prefix }: Side): unknown =>
      pushed
        .filter((push) => push.startsWith(prefix))
        .map((push) => push.replaceAll(prefix, ""))
        .toSorted((one, two) => order(nameOf(one), nameOf(two)));
    return [of(this.#sides[0]), of(this.#sides[1])];
  }

  async #stored({ prefix }: Side): Promise<readonly (StoredName | null)[]> {
    const { redis, clock } = this.#world;
    const nowUs = clock.wallMs() * 1000;
    const names = await Promise.all(
      this.#names.map((name) => storedName(redis, `${prefix}lock:${name}`, nowUs, IDLE_MS, LIVES_MAX_MS)),
    );
    names.forEach((name, n) => {
      if (this.#names[n] === this.#alone)
        assert.ok(!name?.unclear, "who takes, queues or renews clears tombstones that are over");
    });
    const written = JSON.stringify(names.map((name) => (name === null ? null : withoutTheForgotten(name, nowUs))));
    return JSON.parse(written.replaceAll(prefix, "")) as (StoredName | null)[];
  }
}

/** With all its claims over, whether the key is still there makes no difference, unless it has tombstones or a token ahead of time. */
function withoutTheForgotten(stored: StoredName, nowUs: number): Omit<StoredName, "unclear"> | null {
  const { unclear: _unclear, ...name } = stored;
  if ([...name.holders, ...name.waiters].some(({ ends }) => ends > nowUs)) return name;
  if (Object.keys(name.tombstones).length === 0 && name.token < nowUs) return null;
  return { ...name, capacity: null, holders: [], waiters: [], token: name.token < nowUs ? 0 : name.token };
}

function tokensOf(state: StoredName | null): readonly number[] {
  if (state === null || state.token === 0) return [];
  return [state.token, ...state.holders.map(({ token }) => token)];
}

function momentsOf(state: StoredName | null, name: string): readonly Moment[] {
  if (state === null) return [];
  const holder = state.holders[0]?.id;
  const ends = [...state.holders, ...state.waiters].map(({ id, ends: us }) => ({ name, id, holder, atMs: us / 1000 }));
  return [...ends, ...Object.entries(state.tombstones).map(([id, us]) => ({ name, id, holder, atMs: us / 1000 }))];
}

const isIn = (answer: ClaimAnswer | RenewAnswer | undefined): boolean =>
  answer?.kind === "granted" || answer?.kind === "queued";

function toldOf(refs: readonly ClaimRef[], answers: readonly (ClaimAnswer | RenewAnswer)[]): readonly Told[] {
  return refs.flatMap(({ name, id }, n) => {
    const answer = answers[n];
    return answer?.kind === "granted" ? [{ name, id, leftMs: answer.leftMs }] : [];
  });
}

function nameAndCapacityOf({ name, capacity, units }: ClaimRequest): Pick<ClaimRequest, "name" | "capacity" | "units"> {
  return { name, capacity, units };
}

const order = (one: string, two: string): number => (one < two ? -1 : one > two ? 1 : 0);
const nameOf = (push: string): string => push.split("\n")[3] ?? "";
const short = (id: string): string => id.slice(0, 4);

function text(claim: Partial<ClaimRequest>): string {
  return JSON.stringify({ ...claim, id: short(claim.id ?? ""), owner: claim.owner?.client });
}
