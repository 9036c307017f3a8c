import type { ClaimRef, ClaimRequest, EngineEvent, RenewRequest } from "../../core/engine.js";
import type { Owner } from "../../core/inspect.js";
import { READERS_MAX, TOMBSTONE_MS, waiterLeaseMs } from "../../core/limits.js";
import { Judge } from "./judge.js";
import { askEngine, type Outcome, Reference, type Request } from "./reference.js";
import type { Session } from "./session.js";

/** The kinds of names, and the units that claims on them ask for. */
const KINDS = [
  { capacity: 1, units: [1] },
  { capacity: 3, units: [1, 2, 3] },
  { capacity: READERS_MAX, units: [1, READERS_MAX] },
  { capacity: 2, units: [1, 2] },
] as const;
export const KIND_COUNT = KINDS.length;

/** Waiters' leases end at 10 s and marks at 60 s: some leases are below, between and above. */
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

export type Ask = {
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
};

export type SignAsk = {
  readonly pick: number;
  readonly lease: number | null;
  readonly atLeast: Suggestion | null;
};

type End = { readonly name: string; readonly at: number };

/** The engine under test and the reference, side by side, by one clock. */
export class Pair {
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
  /** Until when an id is marked. */
  readonly #marks = new Map<string, number>();
  /** When leases end and marks, as far as they are known. */
  #ends: End[] = [];
  readonly #touchedAt = new Map<string, number>();
  #made = 0;
  #touches = 0;
  /** Of the requests under way: a push that says what the answer says may be left out, and so one for what is over already. */
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

  newClaim(client: number, ask: Ask): ClaimRequest {
    const kind = ask.kind % KIND_COUNT;
    const { units: choices } = KINDS[kind] ?? KINDS[0];
    const capacity = (this.#capacities[kind] ?? 1) + (ask.strange ? 1 : 0);
    const [data, atLeast] = [DATA[ask.data], this.#suggested(this.name(kind), ask.atLeast)];
    const claim: ClaimRequest = {
      name: this.name(kind),
      id: this.#newId(this.name(kind), ask.sameId),
      capacity,
      units: Math.min(choices[ask.units % choices.length] ?? 1, capacity),
      leaseMs: LEASES_MS[ask.lease] ?? 1,
      wait: ask.wait,
      owner: OWNERS[client] ?? { client: "", host: "", pid: 0 },
      ...(data === undefined ? {} : { data }),
      ...(ask.exact ? { exact: true } : {}),
      ...(ask.chosen ? { chosen: true } : {}),
      ...(ask.leaseOnly ? { leaseOnly: true } : {}),
      ...(ask.fixed ? { fixed: true } : {}),
      ...(atLeast === undefined ? {} : { tokenAtLeast: atLeast }),
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

  /** An id that is released as settled, or as sent once and found, is not heard of again: that is what the words promise. */
  forget(claim: ClaimRef): void {
    this.#claims = this.#claims.filter((one) => keyOf(one) !== keyOf(claim));
  }

  sign({ pick, lease, atLeast }: SignAsk): RenewRequest | undefined {
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

  capacity(kind: number, to: number, strange: boolean): Request {
    const from = (this.#capacities[kind % KIND_COUNT] ?? 1) + (strange ? 1 : 0);
    return { verb: "setCapacity", name: this.name(kind), from, to };
  }

  /** One client asks all of this without waiting for answers; the store is asked in this order, and so is the reference. */
  async ask(client: number, requests: readonly Request[]): Promise<readonly Outcome[]> {
    const unsettled = new Set<string>();
    const outcomes = await this.#ask(client, requests, unsettled);
    for (const name of unsettled) await this.#touch(name);
    if (this.#session.hears) await this.#session.pushes.arrived();
    return outcomes;
  }

  /** Adds the names that the store did not have to settle. */
  async #ask(client: number, requests: readonly Request[], unsettled: Set<string>): Promise<readonly Outcome[]> {
    const session = this.#session;
    const engine = session.engine(client);
    for (const request of requests) this.log.push(`${this.now} ms, client ${client}: ${JSON.stringify(request)}`);
    const outcomes = await Promise.all(requests.map((request) => askEngine(engine, request)));
    for (const outcome of outcomes) this.log.push(`  => ${JSON.stringify(outcome)}`);
    this.#asking = client;
    this.#asked = new Set(requests.flatMap(refsOf).map(keyOf));
    this.#released = new Set(
      requests
        .filter(({ verb }) => verb === "release")
        .flatMap(refsOf)
        .map(keyOf),
    );
    for (const [n, request] of requests.entries()) {
      const actual = outcomes[n];
      if (actual === undefined) continue;
      session.compared += 1;
      session.told(actual);
      // The mark of a claim keeps copies away for so long at least; a store may keep it for longer.
      const mayBeGone = actual.verb === "claim" && actual.answer.kind === "gone" && this.#markIsOver(request);
      if (!mayBeGone) {
        this.#judge.compare(request, this.#reference.ask(client, request), actual);
      }
      this.#note(request, actual);
      // Told that it is gone by its mark: nobody had to look at the name.
      if (actual.verb === "claim" && actual.answer.kind === "gone")
        for (const name of namesOf(request)) unsettled.add(name);
    }
    this.#asked.clear();
    this.#released.clear();
    return outcomes;
  }

  /** What the store keeps only for itself goes, where it can be told so: no answer may change by that. */
  async maintain(client: number): Promise<void> {
    this.log.push(`${this.now} ms, client ${client}: maintenance`);
    await (this.#session.engine(client) as { maintenance?(): Promise<unknown> }).maintenance?.();
  }

  /** Time passes. Before that everything that was due is done in both: who settles a name, and when, is left to the store. */
  async pass(ms: number): Promise<void> {
    await this.#settleAll();
    await this.#session.clock.advance(ms);
  }

  /** The time until one of the next ends of a lease or a mark. */
  untilEnd(index: number): number {
    const { now } = this;
    const ahead = [...new Set(this.#ends.map(({ at }) => at))].filter((at) => at > now).toSorted((a, b) => a - b);
    const at = ahead[index % Math.max(1, Math.min(ahead.length, 8))];
    return at === undefined ? 1 : at - now;
  }

  async end(): Promise<void> {
    await this.#settleAll();
    await this.#session.barrier();
    this.#session.pushes.checkNoMore();
  }

  get now(): number {
    return this.#session.clock.now();
  }

  async #settleAll(): Promise<void> {
    for (const name of this.#names) {
      const since = this.#touchedAt.get(name) ?? 0;
      if (this.#ends.some((end) => end.name === name && end.at > since && end.at <= this.now)) await this.#touch(name);
    }
    this.#ends = this.#ends.filter(({ at }) => at > this.now);
    if (this.#session.hears) await this.#session.pushes.arrived();
    this.#session.pushes.checkNoMore();
  }

  /** In turn by each of the verbs that create nothing. */
  async #touch(name: string): Promise<void> {
    this.#touches += 1;
    const ref = { name, id: "nobody" };
    const requests: readonly Request[] = [
      { verb: "release", leave: { ...ref, tombstone: "never" } },
      { verb: "inspect", name },
      { verb: "renew", signs: [ref] },
      { verb: "resize", ref, units: 1 },
    ];
    const request = requests[this.#touches % requests.length];
    if (request !== undefined) await this.#ask(this.#touches % 2, [request], new Set());
  }

  #suggested(name: string, suggestion: Suggestion | null): number | undefined {
    if (suggestion === null) return undefined;
    const { from, more } = suggestion;
    const base = from === "time" ? this.#session.clock.wallMs() * 1000 : (this.#lastTokens.get(name) ?? 1);
    return Math.max(1, base + more);
  }

  #pushed(client: number, event: EngineEvent): void {
    if (event.kind === "granted") {
      this.#judge.seen(event.name, event.token);
      this.#lastTokens.set(event.name, Math.max(this.#lastTokens.get(event.name) ?? 0, event.token));
    }
    const ref = event.kind === "granted" || event.kind === "lost" ? keyOf(event) : "";
    const optional = this.#released.has(ref) || (client === this.#asking && this.#asked.has(ref));
    this.#session.pushes.expect(client, event, optional);
  }

  #markIsOver(request: Request): boolean {
    const until = request.verb === "claim" ? this.#marks.get(keyOf(request.claim)) : undefined;
    return until !== undefined && until <= this.now;
  }

  /** What is known from now on: when something ends, which tokens there are. */
  #note(request: Request, outcome: Outcome): void {
    const { now } = this;
    for (const name of namesOf(request)) this.#touchedAt.set(name, now);
    if (request.verb === "release" && request.leave.tombstone !== "never") {
      this.#marks.set(keyOf(request.leave), now + TOMBSTONE_MS);
      this.#ends.push({ name: request.leave.name, at: now + TOMBSTONE_MS });
    }
    if (request.verb === "setCapacity" && outcome.verb === "setCapacity" && outcome.answer.kind === "set")
      this.#capacities[this.#names.indexOf(request.name)] = request.to;
    const asked = request.verb === "claim" ? [request.claim] : request.verb === "renew" ? request.signs : [];
    const answers = outcome.verb === "claim" ? [outcome.answer] : outcome.verb === "renew" ? outcome.answers : [];
    for (const [n, ref] of asked.entries()) {
      const [{ name }, answer] = [ref, answers[n]];
      if (answer?.kind === "granted") {
        this.#lastTokens.set(name, Math.max(this.#lastTokens.get(name) ?? 0, answer.token));
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

function refsOf(request: Request): readonly ClaimRef[] {
  if (request.verb === "claim") return [request.claim];
  if (request.verb === "release") return [request.leave];
  return request.verb === "renew" ? request.signs : [];
}

export function namesOf(request: Request): string[] {
  if (request.verb === "claim") return [request.claim.name];
  if (request.verb === "release") return [request.leave.name];
  if (request.verb === "renew") return request.signs.map(({ name }) => name);
  return [request.verb === "resize" ? request.ref.name : request.name];
}
