import assert from "node:assert/strict";
import type { ClaimRef, ClaimRequest, Engine, RenewAnswer, RenewRequest } from "../../src/core/engine.js";
import { NotSentError, UnsupportedError } from "../../src/core/errors.js";
import type { InspectFilter, NameState } from "../../src/core/inspect.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { memoryEngine, memoryStore, type SharedMemory } from "../../src/engines/memory/index.js";
import { QuorumNotReached, quorumEngine, quorumSize } from "../../src/engines/quorum/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import type { MakeEngine } from "./quorum-world.js";

const COMMANDS = 40;
const LEASES_MS = [1_000, 5_000, 20_000];
const TOMBSTONE_MS = 60_000;
const CAPACITIES = [1, 1, 2, 3, READERS_MAX];

/** A claim that was asked for, by whom, and how often: a copy must be given back with a tombstone. */
type Asked = { readonly client: number; readonly claim: ClaimRequest; sent: number };

/**
 * Members that agree are one store: whatever a quorum of them is asked, it answers as the reference does, also while so many
 * of them are away that the rest is still a quorum. Only what it takes off a lease differs, and that exactly. Everything
 * follows from the seed.
 */
export async function compareQuorum(seed: number, make: MakeEngine = quorumEngine): Promise<void> {
  const pair = new Pair(seed, make);
  try {
    await pair.open();
    for (let n = 0; n < COMMANDS; n += 1) await pair.command();
    await pair.close();
  } catch (error) {
    throw new Error(`${String(error)}\nThis was asked:\n${pair.log.join("\n")}`, { cause: error });
  }
}

class Pair {
  readonly log: string[] = [];
  readonly #chance: SeededChance;
  readonly #clock = new FakeClock();
  readonly #make: MakeEngine;
  readonly #members: number;
  /** Members that refuse everything from the first command on. */
  readonly #away: ReadonlySet<number>;
  readonly #capacities: readonly number[];
  readonly #drift: { readonly driftRatio: number; readonly driftMs: number };
  readonly #store: SharedMemory;
  readonly #stores: readonly SharedMemory[];
  readonly #reference: readonly Engine[];
  readonly #quorums: Engine[] = [];
  readonly #asked: Asked[] = [];
  /** Claims that a client was granted, or was handed over, and has not given back. */
  readonly #known: readonly Set<string>[] = [new Set(), new Set()];
  #opened = false;

  constructor(seed: number, make: MakeEngine) {
    this.#chance = new SeededChance(seed);
    this.#make = make;
    this.#members = this.#chance.between(2, 6);
    const mayFail = this.#members - quorumSize(this.#members, 1);
    const away = this.#chance.chance(0.5) ? this.#chance.between(0, mayFail) : 0;
    const first = this.#chance.between(0, this.#members - 1);
    this.#away = new Set(Array.from({ length: away }, (_, n) => (first + n) % this.#members));
    this.#capacities = CAPACITIES.filter((capacity) => quorumSize(this.#members, capacity) <= this.#members - away);
    this.#drift = this.#chance.chance(0.5) ? { driftRatio: 0.01, driftMs: 2 } : { driftRatio: 0.25, driftMs: 10 };
    this.#note(`${this.#members} members, away: ${[...this.#away].join(" ")}`);
    this.#store = memoryStore(this.#clock);
    this.#reference = [memoryEngine(this.#store), memoryEngine(this.#store)];
    this.#stores = Array.from({ length: this.#members }, () => memoryStore(this.#clock));
  }

  async open(): Promise<void> {
    for (let client = 0; client < 2; client += 1) {
      const wires = this.#stores.map((store, n) => ({
        name: `member ${n}`,
        engine: this.#wire(memoryEngine(store), n),
      }));
      const chance = new SeededChance(this.#chance.between(0, 2 ** 32 - 1));
      this.#quorums.push(await this.#make(wires, { clock: this.#clock, chance, ...this.#drift }));
    }
    this.#opened = true;
  }

  async command(): Promise<void> {
    const draw = this.#chance.between(0, 19);
    if (draw < 7) await this.#claim();
    else if (draw < 11) await this.#renew();
    else if (draw < 14) await this.#release();
    else if (draw < 15) await this.#resize();
    else if (draw < 16) await this.#setCapacity();
    else await this.#pass();
    await this.#look();
  }

  async close(): Promise<void> {
    const closing = Promise.all(this.#quorums.map((engine) => engine[Symbol.asyncDispose]()));
    await this.#clock.advance(1_000);
    await closing;
    assert.equal(this.#clock.pending, 0, "timers are left");
  }

  async #claim(): Promise<void> {
    const again = this.#chance.chance(0.2) ? this.#some() : undefined;
    const capacity = this.#one(this.#capacities);
    const client = again?.client ?? this.#chance.between(0, 1);
    const alone = this.#chance.chance(0.3);
    const claim: ClaimRequest = again?.claim ?? {
      name: this.#one(["a", "ab", "b"]) + (capacity === READERS_MAX ? "rw" : ""),
      id: this.#chance.id(),
      units: alone ? capacity : capacity === 3 ? this.#chance.between(1, 3) : 1,
      capacity,
      leaseMs: this.#one(LEASES_MS),
      wait: false,
      owner: { client: String(client), host: "h", pid: 1 },
      ...(this.#chance.chance(0.3) ? { data: this.#chance.id() } : {}),
      ...(this.#chance.chance(0.3) ? { exact: true } : {}),
    };
    // What is being given back while a member is away stays gone.
    if (again !== undefined && this.#away.size > 0 && this.#known[client]?.has(claim.id) !== true) return;
    // What went over to another client is not claimed again here.
    if (again !== undefined && this.#known[1 - client]?.has(claim.id)) return;
    if (again === undefined) this.#asked.push({ client, claim, sent: 1 });
    else again.sent += 1;
    this.#forgetIdle();
    this.#note(`${client} claims ${claim.id} of ${claim.name}, ${claim.units} of ${claim.capacity}`);
    const answer = await this.#quorum(client).claim(claim);
    // Then the reference gives the same token, unless it knows one that is not below it.
    const suggested = answer.kind === "granted" ? { ...claim, tokenAtLeast: answer.token } : claim;
    const right = await this.#ref(client).claim(suggested);
    if (right.kind === "granted") this.#known[client]?.add(claim.id);
    if (right.kind === "granted") assert.deepEqual(answer, { ...right, leftMs: this.#told(right.leftMs) });
    else if (right.kind === "busy") {
      assert.ok(answer.kind === "busy", answer.kind);
      const { why, ...rest } = answer;
      assert.deepEqual(rest, right);
      this.#checkVotes(why?.(), `busy (held by h:1)`);
    } else assert.deepEqual(answer, right);
  }

  #checkVotes(error: Error | undefined, vote: string): void {
    assert.ok(error instanceof QuorumNotReached);
    for (const { member, ms, vote: told } of error.votes) {
      assert.equal(told, this.#away.has(Number(member.slice(-1))) ? "failed (away)" : vote);
      assert.equal(ms, 0);
    }
    assert.equal(new Set(error.votes.map(({ member }) => member)).size, this.#members);
  }

  async #renew(): Promise<void> {
    const chosen = Array.from({ length: this.#chance.between(0, 3) }, () => this.#some()).filter(
      (one) => one !== undefined,
    );
    const client = this.#chance.chance(0.8) ? (chosen[0]?.client ?? 0) : this.#chance.between(0, 1);
    const known = ({ id }: ClaimRef): boolean => this.#known[client]?.has(id) === true;
    const requests = [...new Set(chosen)].map(({ claim: { name, id } }): RenewRequest => {
      const longer = this.#chance.chance(0.3) ? { leaseMs: this.#one(LEASES_MS) * 2 } : {};
      const ahead = (this.#clock.wallMs() + 2 * 3_600_000) * 1000;
      return {
        name,
        id,
        ...longer,
        ...(known({ name, id }) && this.#chance.chance(0.1) ? { tokenAtLeast: ahead } : {}),
      };
    });
    if (this.#chance.chance(0.2)) requests.push({ name: "a", id: this.#chance.id() });
    this.#note(`${client} renews ${JSON.stringify(requests)}`);
    const answers = await this.#quorum(client).renew(requests);
    const right = await this.#ref(client).renew(requests);
    const told = (answer: RenewAnswer, n: number): RenewAnswer => {
      if (answer.kind === "granted") return { ...answer, leftMs: this.#told(answer.leftMs) };
      // Whoever knows nothing of a claim looks for it, and where nothing is there is nobody to say why.
      return known(requests[n] as ClaimRef) ? answer : { kind: answer.kind as "gone" };
    };
    assert.deepEqual(answers, right.map(told));
    for (const [n, { id }] of requests.entries()) if (right[n]?.kind === "granted") this.#known[client]?.add(id);
  }

  async #release(): Promise<void> {
    const asked = this.#some();
    if (asked === undefined) return;
    const client = this.#chance.chance(0.8) ? asked.client : 1 - asked.client;
    const { name, id } = asked.claim;
    const own = client === asked.client && this.#known[client]?.has(id) === true;
    const once = own && asked.sent === 1 && this.#chance.chance(0.5);
    const request = { name, id, ...(once ? { tombstone: "never" as const } : {}) };
    this.#note(`${client} releases ${JSON.stringify(request)}`);
    const answer = await this.#quorum(client).release(request);
    assert.equal(answer, await this.#ref(client).release(request));
    this.#known[client]?.delete(id);
  }

  async #resize(): Promise<void> {
    const asked = this.#some();
    if (asked === undefined) return;
    const units = this.#chance.between(1, 3);
    const client = this.#chance.between(0, 1);
    this.#note(`${client} resizes ${asked.claim.id} to ${units}`);
    const answer = await this.#quorum(client).resize(asked.claim, units);
    assert.equal(answer, await this.#ref(client).resize(asked.claim, units));
  }

  async #setCapacity(): Promise<void> {
    const [name, from, to] = [this.#one(["a", "ab", "b"]), this.#one(this.#capacities), this.#one(this.#capacities)];
    this.#note(`0 sets the capacity of ${name} from ${from} to ${to}`);
    const setting = this.#quorum(0).setCapacity(name, from, to);
    if (quorumSize(this.#members, to) > quorumSize(this.#members, from))
      return assert.rejects(setting, UnsupportedError);
    assert.deepEqual(await setting, await this.#ref(0).setCapacity(name, from, to));
  }

  /**
   * No name begins below the tokens of names that were forgotten. When that is depends on what else a store is asked for, and the
   * members also keep queues: all of them do it now.
   */
  #forgetIdle(): void {
    for (const { claims } of [this.#store, ...this.#stores]) for (const _ of claims.inspect(() => true));
  }

  /** A while, or to the very end of a lease. */
  async #pass(): Promise<void> {
    const ends: number[] = [TOMBSTONE_MS];
    for await (const { holders } of this.#ref(0).inspect()) ends.push(...holders.map(({ leftMs }) => leftMs));
    await this.#clock.advance(this.#chance.chance(0.5) ? this.#one(ends) : this.#chance.fraction() * 2_000);
  }

  /** What both list is the same, to the millisecond. */
  async #look(): Promise<void> {
    await this.#clock.advance(0);
    const filter = this.#one<InspectFilter>([{}, { prefix: "a" }, { name: "a" }, { prefix: "none" }]);
    const listed = async (engine: Engine): Promise<NameState[]> => {
      const states: NameState[] = [];
      for await (const state of engine.inspect(filter)) states.push(state);
      return states.toSorted((one, two) => (one.name < two.name ? -1 : 1));
    };
    const [listing, right] = [await listed(this.#quorum(this.#chance.between(0, 1))), await listed(this.#ref(0))];
    // The queue at one member mints tokens too, and a name that was idle begins above all of them.
    const lastToken = (n: number): number => Math.max(listing[n]?.lastToken ?? 0, right[n]?.lastToken ?? 0);
    assert.deepEqual(
      listing,
      right.map((state, n) => ({ ...state, lastToken: lastToken(n) })),
    );
  }

  #note(line: string): void {
    this.log.push(`${this.#clock.now()}: ${line}`);
  }

  #told(leftMs: number): number {
    return leftMs - leftMs * this.#drift.driftRatio - this.#drift.driftMs;
  }

  #some(): Asked | undefined {
    return this.#asked.length === 0 ? undefined : this.#one(this.#asked.slice(-8));
  }

  #one<T>(list: readonly T[]): T {
    return list[this.#chance.between(0, list.length - 1)] as T;
  }

  #quorum(client: number): Engine {
    return this.#quorums[client] as Engine;
  }

  #ref(client: number): Engine {
    return this.#reference[client] as Engine;
  }

  #wire(engine: Engine, member: number): Engine {
    const away = (): boolean => this.#opened && this.#away.has(member);
    const reach = <T>(call: () => Promise<T>): Promise<T> =>
      away() ? Promise.reject(this.#chance.chance(0.5) ? new NotSentError("away") : new Error("away")) : call();
    return {
      kind: engine.kind,
      guarantees: engine.guarantees,
      leaseMinMs: engine.leaseMinMs,
      cells: null,
      claim: (claim) => reach(() => engine.claim(claim)),
      release: (request) => reach(() => engine.release(request)),
      renew: (requests) => reach(() => engine.renew(requests)),
      resize: (ref, units) => reach(() => engine.resize(ref, units)),
      setCapacity: (name, from, to) => reach(() => engine.setCapacity(name, from, to)),
      listen: (listener) => engine.listen(listener),
      async *inspect(filter) {
        if (away()) throw new Error("away");
        yield* engine.inspect(filter);
      },
      // By it the clients choose who keeps the order. Were that one away, each of them might have its own for a while, and a
      // claim that both of them use (which no program does) a turn in each: `quorum-turns.ts` has what comes of two queues.
      serverInfo: async () => ({ server: `${this.#away.has(member) ? "later" : "first"} ${member}` }),
      [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose](),
    };
  }
}
