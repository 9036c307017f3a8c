import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { ClaimAnswer, ClaimRequest, Engine, EngineEvent, RenewAnswer } from "../../../src/core/engine.js";
import type { InspectFilter, NameState } from "../../../src/core/inspect.js";
import { Turns } from "./rewriting.js";

/** What a store keeps of one name, in one shape for all the ways to keep it. */
export type Stored = {
  readonly lastToken: number | null;
  readonly capacity: number | null;
  readonly holders: readonly unknown[];
  readonly waiters: readonly unknown[];
  readonly tombstones: readonly unknown[];
};

/** One way to keep claims, and a look at what it keeps; the look also checks what must be true of it by itself. */
export type Way = { readonly engine: () => Promise<Engine>; readonly stored: (name: string) => Promise<Stored> };

/**
 * An engine that is two: each call is made on both ways, one after the other, and answers, pushes and stored rows must be the
 * same. All engines made by one opener take turns, so that both stores see one order; the claims and releases of one tick are
 * made together.
 */
export function bothWays(fast: Way, plain: Way): () => Promise<Engine> {
  const turns = new Turns<Step>(([first, ...more]) => first?.by.compareAll([first, ...more]) ?? Promise.resolve());
  const state = { failed: false };
  return async () => new Both(await fast.engine(), await plain.engine(), fast, plain, turns, state);
}

type Step = {
  readonly by: Both;
  readonly names: readonly string[];
  readonly call: (engine: Engine) => Promise<unknown>;
  readonly compare: boolean;
  readonly resolve: (answer: never) => void;
  readonly reject: (error: unknown) => void;
};

class Both implements Engine {
  readonly cells: Engine["cells"];
  readonly #engines: readonly [Engine, Engine];
  readonly #ways: readonly [Way, Way];
  readonly #turns: Turns<Step>;
  /** The two stores differ from then on: nothing more can be learned from them. */
  readonly #state: { failed: boolean };
  readonly #heard: readonly [EngineEvent[], EngineEvent[]] = [[], []];

  constructor(one: Engine, two: Engine, fast: Way, plain: Way, turns: Turns<Step>, state: { failed: boolean }) {
    this.#engines = [one, two];
    this.#ways = [fast, plain];
    this.#turns = turns;
    this.#state = state;
    this.cells = one.cells;
    for (const at of [0, 1] as const) this.#engines[at].listen((event) => this.#heard[at].push(event));
  }

  get kind() {
    return this.#engines[0].kind;
  }

  get guarantees() {
    return this.#engines[0].guarantees;
  }

  get leaseMinMs() {
    return this.#engines[0].leaseMinMs;
  }

  claim(claim: ClaimRequest) {
    return this.#both([claim.name], (engine) => engine.claim(claim), { joins: true });
  }

  release(leave: Parameters<Engine["release"]>[0]) {
    return this.#both([leave.name], (engine) => engine.release(leave), { joins: true });
  }

  renew(requests: Parameters<Engine["renew"]>[0]) {
    return this.#both([...new Set(requests.map(({ name }) => name))], (engine) => engine.renew(requests));
  }

  resize(ref: Parameters<Engine["resize"]>[0], units: number) {
    return this.#both([ref.name], (engine) => engine.resize(ref, units));
  }

  setCapacity(name: string, from: number, to: number) {
    return this.#both([name], (engine) => engine.setCapacity(name, from, to));
  }

  maintenance(): Promise<unknown> {
    // How many rows go differs; what is left must not.
    return this.#both([], (engine) => (engine as Engine & { maintenance(): Promise<unknown> }).maintenance(), {
      compare: false,
    });
  }

  listen(listener: Parameters<Engine["listen"]>[0]) {
    return this.#engines[0].listen(listener);
  }

  async *inspect(filter?: InspectFilter): AsyncGenerator<NameState> {
    const all = async (engine: Engine): Promise<NameState[]> => {
      const states: NameState[] = [];
      for await (const state of engine.inspect(filter)) states.push(state);
      return states;
    };
    yield* await this.#both(filter?.name === undefined ? [] : [filter.name], all);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turns.over();
    if (this.#state.failed) return this.#close();
    // What is told last is told after all the rest: only then both have heard everything, however slow the machine is.
    const markers = await Promise.all(this.#engines.map((engine, at) => lastPush(engine, this.#heard[at] ?? [])));
    await this.#close();
    if (this.#heard.some(mayHaveMissed)) return;
    const [one, two] = this.#heard.map((events) => byName(once(events.filter((event) => !isOf(markers, event)))));
    assert.deepEqual(one, two, "the fast way pushes as the plain one does");
  }

  async #close(): Promise<void> {
    for (const engine of this.#engines) await engine[Symbol.asyncDispose]();
  }

  #both<T>(
    names: readonly string[],
    call: (engine: Engine) => Promise<T>,
    { compare = true, joins = false } = {},
  ): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      this.#turns.add({ by: this, names, call, compare, resolve, reject }, joins);
    });
  }

  /** All of them on the one way, and then on the other. */
  async compareAll(steps: readonly Step[]): Promise<void> {
    try {
      const [fast, plain] = this.#engines;
      const [ones, twos] = [
        await Promise.all(steps.map(({ call }) => call(fast))),
        await Promise.all(steps.map(({ call }) => call(plain))),
      ];
      for (const [at, { compare }] of steps.entries()) {
        if (!compare) continue;
        assert.deepEqual(comparable(ones[at]), comparable(twos[at]), "the fast way answers as the plain one does");
      }
      for (const name of new Set(steps.flatMap(({ names }) => names))) {
        const [one, two] = [await this.#ways[0].stored(name), await this.#ways[1].stored(name)];
        assert.deepEqual(one, two, "the fast way stores what the plain one does");
      }
      for (const [at, { resolve }] of steps.entries()) resolve(ones[at] as never);
    } catch (error) {
      this.#state.failed = true;
      for (const { reject } of steps) reject(error);
    }
  }
}

/** Longer than any machine needs: what has not come by then does not come. */
const HEARD_WITHIN_MS = 60_000;

/** A hand-over under a name of its own, and its push: the name. */
async function lastPush(engine: Engine, heard: readonly EngineEvent[]): Promise<string> {
  const name = `last push ${randomUUID()}`;
  const [holder, waiter] = [1, 2].map((n): ClaimRequest => {
    const owner = { client: name, host: "", pid: n };
    return { name, id: `${name} ${n}`, units: 1, capacity: 1, leaseMs: 60_000, wait: true, owner };
  }) as [ClaimRequest, ClaimRequest];
  await engine.claim(holder);
  await engine.claim(waiter);
  await engine.release({ ...holder, tombstone: "never" });
  const end = performance.now() + HEARD_WITHIN_MS;
  while (!heard.some((event) => isOf([name], event)) && !mayHaveMissed(heard)) {
    if (performance.now() > end) throw new Error("the last push did not come");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await engine.release({ ...waiter, tombstone: "never" });
  return name;
}

/** The connection that listens was replaced, and everybody was told to ask: on a busy machine that happens. */
function mayHaveMissed(events: readonly EngineEvent[]): boolean {
  return events.some((event) => event.kind === "wake" && event.name === undefined);
}

/** MariaDB tells again what it could not take out of the mailbox: a loss is told at least once. */
function once(events: readonly EngineEvent[]): EngineEvent[] {
  const told = new Set<string>();
  return events.filter((event) => {
    if (event.kind !== "lost") return true;
    const key = JSON.stringify(event);
    return !told.has(key) && told.add(key);
  });
}

function isOf(names: readonly string[], event: EngineEvent): boolean {
  return "name" in event && event.name !== undefined && names.includes(event.name);
}

/**
 * Requests of one tick have an order among those of their name; batches serve the names in an order of their own. Those who lose
 * their places at the same time learn it in any order.
 */
function byName(events: readonly EngineEvent[]): EngineEvent[] {
  const placeOf = (event: EngineEvent): string => {
    const name = "name" in event ? (event.name ?? "") : "";
    return `${name} ${event.kind} ${event.kind === "lost" ? (event.id ?? "") : ""}`;
  };
  return events.toSorted((one, two) => (placeOf(one) < placeOf(two) ? -1 : Number(placeOf(one) > placeOf(two))));
}

/** `nextMs` is a time to look again: the fast ways may say it too early, and whether they do is compared elsewhere. */
function comparable(answer: unknown): unknown {
  if (Array.isArray(answer)) return answer.map(comparable);
  const { kind, nextMs } = (answer ?? {}) as Partial<Extract<ClaimAnswer | RenewAnswer, { kind: "queued" }>>;
  return kind === "queued" ? { ...(answer as object), nextMs: nextMs === null ? null : "a time" } : answer;
}

/** The rules that a row of a name keeps with its claims, whatever happened before. Times in microseconds, null for never. */
export type NameRow = {
  readonly capacity: number;
  readonly taken: number;
  readonly holders: number;
  readonly waiters: number;
  readonly lastToken: number;
  readonly lowToken: number;
  readonly soonestEnd: number;
  readonly frontToken: number;
  readonly frontEnd: number;
  readonly tombstonesEnd: number;
};
export type ClaimRow = {
  readonly id: string;
  readonly units: number;
  readonly token: number;
  readonly holds: boolean;
  readonly endsAt: number;
  readonly rest: readonly unknown[];
};

export function storedOf(
  row: NameRow | undefined,
  claims: readonly ClaimRow[],
  tombstones: readonly { readonly id: string; readonly endsAt: number }[],
  now: number,
): Stored {
  const inOrder = claims.toSorted((one, two) => one.token - two.token);
  const holders = inOrder.filter(({ holds }) => holds);
  const waiters = inOrder.filter(({ holds }) => !holds);
  assert.deepEqual(inOrder, [...holders, ...waiters], "whoever holds arrived before all who wait");
  if (row === undefined) assert.equal(claims.length + tombstones.filter(({ endsAt }) => endsAt > now).length, 0);
  else {
    assert.equal(row.holders, holders.length, "holders are counted");
    assert.equal(row.waiters, waiters.length, "waiters are counted");
    const sum = holders.reduce((units, claim) => units + claim.units, 0);
    assert.equal(row.taken, sum, "units are counted");
    for (const { token } of claims) assert.ok(row.lastToken >= token, "no token is above the newest");
    for (const { token, endsAt } of holders) {
      assert.ok(row.lowToken <= token, "no live token is below the lowest");
      assert.ok(row.soonestEnd <= endsAt, "no lease ends before the soonest");
    }
    const [first] = waiters;
    if (first !== undefined) {
      assert.ok(row.frontToken <= first.token, "nobody waits before the first");
      assert.ok(row.frontEnd <= first.endsAt, "the first waiter does not end before its time");
    }
    for (const { endsAt } of tombstones)
      assert.ok(endsAt <= row.tombstonesEnd, "no tombstone ends later than the last");
  }
  const live = ({ endsAt }: ClaimRow): boolean => endsAt > now;
  const busy = claims.some(live);
  return {
    lastToken: busy ? (row?.lastToken ?? null) : null,
    capacity: busy ? (row?.capacity ?? null) : null,
    holders: holders.filter(live),
    waiters: waiters.filter(live),
    tombstones: tombstones.filter(({ endsAt }) => endsAt > now).toSorted((one, two) => (one.id < two.id ? -1 : 1)),
  };
}
