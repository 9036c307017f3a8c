import type { ClaimRef, ClaimRequest, EngineEvent, RenewRequest } from "../../core/engine.js";
import type { Owner } from "../../core/inspect.js";
import { READERS_MAX, TOMBSTONE_MS, waiterLeaseMs } from "../../core/limits.js";
import { Judge } from "./judge.js";
import { type Call, callEngine, type Outcome, Reference } from "./reference.js";
import type { Session } from "./session.js";

/** The kinds of names, and the units that claims on them ask for. */
const KINDS = [
  { capacity: 1, units: [1] },
  { capacity: 3, units: [1, 2, 3] },
  { capacity: READERS_MAX, units: [1, READERS_MAX] },
  { capacity: 2, units: [1, 2] },
] as const;
export const KIND_COUNT = KINDS.length;

/** Waiters' leases end at 10 s and tombstones at 60 s: some leases are below, between and above. */
const LEASES_MS = [1, 900, 4_000, 9_999, 15_000, 45_000, 60_000, 120_000, 120_000] as const;
export const LEASE_COUNT = LEASES_MS.length;

const DATA = [undefined, "data", 'a "quoted" ü', "two\nlines"] as const;
export const DATA_COUNT = DATA.length;

const OWNERS: readonly Owner[] = [
  { client: "client 0", host: "here", pid: 1 },
  { client: "client 1", host: "there", pid: 22, label: 'ü "label"' },
];

/** A number to mint no token below: so much more or less than the time in µs, or than the last token. */
export type Suggestion = { readonly from: "time" | "token"; readonly more: number };

export type ClaimChoice = {
  readonly kind: number;
  readonly units: number;
  readonly lease: number;
  readonly data: number;
  readonly wait: boolean;
  readonly exact: boolean;
  readonly chosen: boolean;
  readonly leaseOnly: boolean;
  readonly fixed: boolean;
  /** Another capacity than the name has. */
  readonly strange: boolean;
  /** The id of a claim under another name: a program may choose one for several. */
  readonly sameId: number | null;
  readonly atLeast: Suggestion | null;
  readonly reserve: number;
};

export type HeartbeatChoice = {
  readonly pick: number;
  readonly lease: number | null;
  readonly atLeast: Suggestion | null;
};

type End = { readonly name: string; readonly at: number };

/** The engine under test and the reference, side by side, by one clock. */
export class VirtualPair {
  readonly #session: Session;
  readonly #reference: Reference;
  readonly #judge: Judge;
  readonly #stem: number;
  readonly #names: readonly string[];
  readonly #capacities = KINDS.map((kind): number => kind.capacity);
  #claims: ClaimRequest[] = [];
  /** Who claimed it first. */
  readonly #clients = new Map<string, number>();
  readonly #lastTokens = new Map<string, number>();
  /** Until when an id has a tombstone. */
  readonly #tombstones = new Map<string, number>();
  /** When leases and tombstones end, as far as it is known. */
  #ends: End[] = [];
  readonly #touchedAt = new Map<string, number>();
  #made = 0;
  #touches = 0;
  /** The claims of the calls under way: a push that says what the answer says may be left out, and so may one for a claim that was released or went on already. */
  #asked = new Set<string>();
  #released = new Set<string>();
  #asking = 0;
  /** What was asked and answered, and when, for whoever has to understand a difference. */
  readonly log: string[] = [];

  constructor(session: Session) {
    this.#session = session;
    this.#stem = session.stem();
    this.#names = KINDS.map((_, kind) => `compare ${this.#stem} ${kind}`);
    session.pushes.begin(this.#names);
    this.#reference = new Reference(session.clock, (client, event) => this.#pushed(client, event));
    this.#judge = new Judge(this.#reference, () => session.highest());
  }

  name(kind: number): string {
    return this.#names[kind % KIND_COUNT] ?? "";
  }

  newClaim(client: number, choice: ClaimChoice): ClaimRequest {
    const kind = choice.kind % KIND_COUNT;
    const { units: choices } = KINDS[kind] ?? KINDS[0];
    const capacity = (this.#capacities[kind] ?? 1) + (choice.strange ? 1 : 0);
    const [data, atLeast] = [DATA[choice.data], this.#suggested(this.name(kind), choice.atLeast)];
    const claim: ClaimRequest = {
      name: this.name(kind),
      id: this.#newId(this.name(kind), choice.sameId),
      capacity,
      units: Math.min(choices[choice.units % choices.length] ?? 1, capacity),
      leaseMs: LEASES_MS[choice.lease] ?? 1,
      wait: choice.wait,
      owner: OWNERS[client] ?? { client: "", host: "", pid: 0 },
      ...(data === undefined ? {} : { data }),
      ...(choice.exact ? { exact: true } : {}),
      ...(choice.chosen ? { chosen: true } : {}),
      ...(choice.leaseOnly ? { leaseOnly: true } : {}),
      ...(choice.fixed ? { fixed: true } : {}),
      ...(atLeast === undefined ? {} : { tokenAtLeast: atLeast }),
      ...(choice.reserve === 0 ? {} : { reserve: choice.reserve }),
    };
    this.#claims.push(claim);
    this.#clients.set(keyOf(claim), client);
    return claim;
  }

  #newId(name: string, sameId: number | null): string {
    this.#made += 1;
    const other = sameId === null ? undefined : this.pick(sameId, (claim) => claim.name !== name);
    // Whether a claim of it was made or forgotten: no id comes again under its name.
    if (other !== undefined && !this.#clients.has(keyOf({ name, id: other.id }))) return other.id;
    return `id-${this.#stem}-${this.#made}`;
  }

  /** Mostly one of the latest claims. */
  pick(index: number, suits: (claim: ClaimRequest) => boolean = () => true): ClaimRequest | undefined {
    const claims = this.#claims.filter(suits);
    const among = index < 900 ? Math.min(claims.length, 10) : claims.length;
    return among === 0 ? undefined : claims[claims.length - 1 - (index % among)];
  }

  /** A copy of a claim comes from whoever sent it; of one whose id the program chose, from anybody. */
  clientOf(claim: ClaimRequest, client: number): number {
    return claim.chosen ? client : (this.#clients.get(keyOf(claim)) ?? client);
  }

  /** A claim that is released without a tombstone is not sent again: that is what its program says by it. */
  forget(claim: ClaimRef): void {
    this.#claims = this.#claims.filter((one) => keyOf(one) !== keyOf(claim));
  }

  heartbeat({ pick, lease, atLeast }: HeartbeatChoice): RenewRequest | undefined {
    const claim = this.pick(pick);
    if (claim === undefined) return undefined;
    const { name, id } = claim;
    const wanted = this.#suggested(name, atLeast);
    return {
      name,
      id,
      ...(lease === null ? {} : { leaseMs: LEASES_MS[lease] ?? 1 }),
      ...(wanted === undefined ? {} : { tokenAtLeast: this.#judge.unused(name, wanted) }),
    };
  }

  capacity(kind: number, to: number, strange: boolean): Call {
    const from = (this.#capacities[kind % KIND_COUNT] ?? 1) + (strange ? 1 : 0);
    return { verb: "setCapacity", name: this.name(kind), from, to };
  }

  /** One client makes all of these calls without waiting for answers; the store gets them in this order, and so does the reference. */
  async call(client: number, calls: readonly Call[]): Promise<readonly Outcome[]> {
    const unread = new Set<string>();
    const outcomes = await this.#call(client, calls, unread);
    for (const name of unread) await this.#touch(name);
    if (this.#session.pushesGrants) await this.#session.pushes.arrived();
    return outcomes;
  }

  /** Adds the names to which the store did not have to apply the rule of the queue. */
  async #call(client: number, calls: readonly Call[], unread: Set<string>): Promise<readonly Outcome[]> {
    const session = this.#session;
    const engine = session.engine(client);
    for (const call of calls) this.log.push(`${this.now} ms, client ${client}: ${JSON.stringify(call)}`);
    const outcomes = await Promise.all(calls.map((call) => callEngine(engine, call)));
    for (const outcome of outcomes) this.log.push(`  => ${JSON.stringify(outcome)}`);
    this.#asking = client;
    this.#asked = new Set(calls.flatMap(refsOf).map(keyOf));
    this.#released = new Set(
      calls
        .filter(({ verb }) => verb === "release")
        .flatMap(refsOf)
        .map(keyOf),
    );
    // Who went on already needs no push, whichever of several releases lets it in.
    if (calls.length > 1) for (const ref of calls.flatMap(servedOf)) this.#released.add(keyOf(ref));
    for (const [n, call] of calls.entries()) {
      const actual = outcomes[n];
      if (actual === undefined) continue;
      session.compared += 1;
      // The tombstone of a claim lasts for so long at least; a store may keep it for longer.
      const mayBeGone = actual.verb === "claim" && actual.answer.kind === "gone" && this.#tombstoneIsOver(call);
      if (!mayBeGone) {
        this.#judge.compare(call, this.#reference.call(client, this.#judge.asked(call, actual)), actual);
      }
      session.record(actual, call.verb === "claim" ? (call.request.reserve ?? 0) : 0);
      this.#record(call, actual);
      // Answered from its tombstone alone: the store did not have to read the name.
      if (actual.verb === "claim" && actual.answer.kind === "gone") for (const name of namesOf(call)) unread.add(name);
    }
    this.#asked.clear();
    this.#released.clear();
    return outcomes;
  }

  /** The store removes what it does not need any more, where it has a call for that: no answer may change by it. */
  async maintain(client: number): Promise<void> {
    this.log.push(`${this.now} ms, client ${client}: maintenance`);
    await (this.#session.engine(client) as { maintenance?(): Promise<unknown> }).maintenance?.();
  }

  /** Time passes. Before that everything that was due is done in both: when a store applies the rule of the queue is its own choice. */
  async pass(ms: number): Promise<void> {
    await this.#finishDue();
    await this.#session.clock.advance(ms);
  }

  /** The time until one of the next ends of a lease or a tombstone. */
  untilEnd(index: number): number {
    const { now } = this;
    const ahead = [...new Set(this.#ends.map(({ at }) => at))].filter((at) => at > now).toSorted((a, b) => a - b);
    const at = ahead[index % Math.max(1, Math.min(ahead.length, 8))];
    return at === undefined ? 1 : at - now;
  }

  /** Virtual time stands still with the machine. */
  readonly stalled = false;

  /** After a run without a difference: nothing may be left over. */
  async end(): Promise<void> {
    await this.#finishDue();
    await this.#session.barrier();
    this.#session.pushes.checkNoMore();
  }

  /** The engines belong to the session. */
  async close(): Promise<void> {}

  get now(): number {
    return this.#session.clock.now();
  }

  async #finishDue(): Promise<void> {
    for (const name of this.#names) {
      const since = this.#touchedAt.get(name) ?? 0;
      if (this.#ends.some((end) => end.name === name && end.at > since && end.at <= this.now)) await this.#touch(name);
    }
    this.#ends = this.#ends.filter(({ at }) => at > this.now);
    if (this.#session.pushesGrants) await this.#session.pushes.arrived();
    this.#session.pushes.checkNoMore();
  }

  /** In turn by each of the verbs that create nothing. */
  async #touch(name: string): Promise<void> {
    this.#touches += 1;
    const ref = { name, id: "nobody" };
    const calls: readonly Call[] = [
      { verb: "release", request: { ...ref, tombstone: "never" } },
      { verb: "inspect", name },
      { verb: "renew", requests: [ref] },
      { verb: "resize", ref, units: 1 },
    ];
    const call = calls[this.#touches % calls.length];
    if (call !== undefined) await this.#call(this.#touches % 2, [call], new Set());
  }

  #suggested(name: string, suggestion: Suggestion | null): number | undefined {
    if (suggestion === null) return undefined;
    const { from, more } = suggestion;
    const base = from === "time" ? this.#session.clock.wallMs() * 1000 : (this.#lastTokens.get(name) ?? 1);
    return Math.max(1, base + more);
  }

  #pushed(client: number, event: EngineEvent): void {
    if (event.kind === "granted") this.#judge.seen(event.name, event.token);
    const ref = event.kind === "granted" || event.kind === "lost" ? keyOf(event) : "";
    const optional = this.#released.has(ref) || (client === this.#asking && this.#asked.has(ref));
    this.#session.pushes.expect(client, event, optional);
  }

  #tombstoneIsOver(call: Call): boolean {
    const until = call.verb === "claim" ? this.#tombstones.get(keyOf(call.request)) : undefined;
    return until !== undefined && until <= this.now;
  }

  /** What is known from now on: when something ends, which tokens there are. */
  #record(call: Call, outcome: Outcome): void {
    const { now } = this;
    for (const name of namesOf(call)) this.#touchedAt.set(name, now);
    if (call.verb === "release" && call.request.tombstone !== "never") {
      this.#tombstones.set(keyOf(call.request), now + TOMBSTONE_MS);
      this.#ends.push({ name: call.request.name, at: now + TOMBSTONE_MS });
    }
    if (call.verb === "setCapacity" && outcome.verb === "setCapacity" && outcome.answer.kind === "set")
      this.#capacities[this.#names.indexOf(call.name)] = call.to;
    const asked = call.verb === "claim" ? [call.request] : call.verb === "renew" ? call.requests : [];
    const answers = outcome.verb === "claim" ? [outcome.answer] : outcome.verb === "renew" ? outcome.answers : [];
    for (const [n, ref] of asked.entries()) {
      const [{ name }, answer] = [ref, answers[n]];
      if (answer?.kind === "granted" || answer?.kind === "queued")
        this.#lastTokens.set(name, Math.max(this.#lastTokens.get(name) ?? 0, answer.token));
      if (answer?.kind === "granted") {
        this.#ends.push({ name, at: now + answer.leftMs });
      } else if (answer?.kind === "queued") {
        const leaseMs = this.#claims.find((claim) => keyOf(claim) === keyOf(ref))?.leaseMs ?? 1;
        this.#ends.push({ name, at: now + waiterLeaseMs(leaseMs) });
      }
    }
  }
}

function keyOf({ name, id }: ClaimRef): string {
  return `${id} ${name}`;
}

function refsOf(call: Call): readonly ClaimRef[] {
  if (call.verb === "claim" || call.verb === "release") return [call.request];
  return call.verb === "renew" ? call.requests : [];
}

/** Whom a release says to have gone on already. */
function servedOf(call: Call): readonly ClaimRef[] {
  if (call.verb !== "release" || call.request.to === undefined) return [];
  return [{ name: call.request.name, id: call.request.to }];
}

export function namesOf(call: Call): string[] {
  if (call.verb === "claim" || call.verb === "release") return [call.request.name];
  if (call.verb === "renew") return call.requests.map(({ name }) => name);
  return [call.verb === "resize" ? call.ref.name : call.name];
}
