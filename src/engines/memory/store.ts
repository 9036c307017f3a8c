// Beside the usual files: the reference is easier to read, and to compare with, in one file than in one for each verb.
import type { Writable } from "../../core/claim-request.js";
import type { Clock } from "../../core/clock.js";
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  EngineEvent,
  Fence,
  Granted,
  Queued,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import type { ClaimState, HolderState, NameState, WaiterState } from "../../core/inspect.js";
import { TOMBSTONE_MS, waiterLeaseMs } from "../../core/limits.js";
import { Register } from "../../core/register.js";
import { LinkedList } from "../../engine-kit/linked-list.js";
import { ExpiringMap } from "./expiring-map.js";

/** Where pushes for a claim go. */
export type Push = (event: EngineEvent) => void;

/** A claim in the store: it holds or waits. */
type Entry = {
  readonly name: Name;
  readonly claim: ClaimRequest;
  readonly push: Push;
  units: number;
  /** Minted when it arrived. */
  token: number;
  holds: boolean;
  endsAt: number;
  /** When it was asked for; from the grant on, when that was. */
  since: number;
  before: Entry | null;
  after: Entry | null;
};

/** One busy name. Holders and waiters are ordered by their tokens, and every waiter's is above every holder's. */
type Name = {
  readonly name: string;
  capacity: number;
  taken: number;
  lastToken: number;
  /** No holder's lease ends before this: until then none has to be searched for. */
  soonestEnd: number;
  /** By id. */
  readonly claims: Register<Entry>;
  readonly holders: LinkedList<Entry>;
  readonly waiters: LinkedList<Entry>;
};

/**
 * The reference: the whole algorithm of the contract in one place, as plainly as it can be written. Every other engine does
 * the same in its store's way, and random tests compare it with this one.
 */
export class MemoryStore {
  readonly #clock: Clock;
  readonly #names = new Map<string, Name>();
  /** By claim: until when its late copies are gone. */
  readonly #tombstones = new ExpiringMap<number>(TOMBSTONE_MS);
  /** The highest token of any name that was forgotten: no name starts below it again. */
  #tokenFloor = 0;
  #abandoned = this.#names.values();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  claim(claim: ClaimRequest, push: Push): ClaimAnswer {
    const now = this.#clock.now();
    this.#advanceAbandoned(now);
    if (this.#hasTombstone(claim, now)) return { kind: "gone" };
    const known = this.#find(claim, now);
    if (known !== undefined) return answerOf(known, now);

    const name = this.#names.get(claim.name) ?? this.#newName(claim);
    if (name.capacity !== claim.capacity) return { kind: "mismatch", capacity: name.capacity };
    const { units, wait } = claim;
    // Nobody overtakes: with others waiting even a claim that would fit has to queue.
    const holds = name.waiters.first === null && fits(name, units);
    if (!holds && !wait) {
      const holder = name.holders.first?.claim.owner;
      return { kind: "busy", nextMs: Math.max(0, name.soonestEnd - now), ...(holder === undefined ? {} : { holder }) };
    }
    const ahead = name.waiters.last ?? name.holders.last;
    const token = this.#mint(name, claim);
    const endsAt = now + (holds ? claim.leaseMs : waiterLeaseMs(claim.leaseMs));
    const entry: Entry = { name, claim, push, units, token, holds, endsAt, since: now, before: null, after: null };
    name.claims.add(claim.id, entry);
    if (holds) {
      this.#grant(entry, now);
      return grantedOf(entry, now);
    }
    name.waiters.push(entry);
    const queued = queuedOf(entry, now);
    if (ahead?.push === push && ahead.endsAt > now) queued.ahead = ahead.claim.id;
    return queued;
  }

  release({ name, id, tombstone, to }: ReleaseRequest, by: Push): ReleaseAnswer {
    const now = this.#clock.now();
    const ref = { name, id };
    const before = this.#hasTombstone(ref, now);
    if (tombstone !== "never") this.#tombstones.set(keyOf(ref), now + TOMBSTONE_MS, now);
    const entry = this.#find(ref, now);
    if (entry === undefined) return before ? "revoked" : "gone";
    this.#remove(entry, now, to);
    // Taken out by somebody else than its owner, who is told.
    if (entry.push !== by) entry.push({ kind: "lost", name, id });
    return "released";
  }

  renew(request: RenewRequest): RenewAnswer {
    const now = this.#clock.now();
    const entry = this.#find(request, now);
    if (entry === undefined)
      return this.#hasTombstone(request, now) ? { kind: "gone", revoked: true } : { kind: "gone" };
    if (entry.holds) {
      entry.endsAt = Math.max(entry.endsAt, now + (request.leaseMs ?? entry.claim.leaseMs));
      if (request.tokenAtLeast !== undefined) this.#raise(entry, request.tokenAtLeast);
    } else {
      entry.endsAt = now + waiterLeaseMs(entry.claim.leaseMs);
    }
    return answerOf(entry, now);
  }

  resize(ref: ClaimRef, units: number): "resized" | "refused" | "gone" {
    const now = this.#clock.now();
    const entry = this.#find(ref, now);
    if (entry === undefined) return "gone";
    if (!entry.holds || units > entry.units) return "refused";
    const { name } = entry;
    name.taken -= entry.units - units;
    entry.units = units;
    this.#advance(name, now);
    return "resized";
  }

  setCapacity(nameText: string, from: number, to: number): CapacityAnswer {
    const now = this.#clock.now();
    const name = this.#names.get(nameText);
    if (name !== undefined) this.#advance(name, now);
    if (name === undefined || isIdle(name) || name.capacity === to) return { kind: "set" };
    if (name.capacity !== from) return { kind: "mismatch", capacity: name.capacity };
    name.capacity = to;
    for (const entry of name.waiters) {
      if (entry.units <= to) continue;
      this.#delete(entry);
      // A dead one was no waiter any more: it lost nothing.
      if (entry.endsAt > now) entry.push({ kind: "lost", name: nameText, id: entry.claim.id });
    }
    this.#advance(name, now);
    return { kind: "set" };
  }

  *inspect(matches: (name: string) => boolean): Generator<NameState> {
    for (const text of [...this.#names.keys()].filter(matches)) {
      const now = this.#clock.now();
      const name = this.#names.get(text);
      if (name === undefined) continue;
      this.#advance(name, now);
      const holders = [...name.holders].map((entry) => holderStateOf(entry, now));
      const waiters = [...name.waiters].filter((entry) => entry.endsAt > now).map((entry) => waiterStateOf(entry, now));
      if (holders.length + waiters.length === 0) continue;
      yield { name: text, capacity: name.capacity, lastToken: name.lastToken, holders, waiters };
    }
  }

  /** How much is kept, for leak tests. */
  get size(): { readonly names: number; readonly claims: number; readonly tombstones: number } {
    const claims = [...this.#names.values()].reduce((sum, name) => sum + name.claims.size, 0);
    return { names: this.#names.size, claims, tombstones: this.#tombstones.size };
  }

  /** The claim, if its lease has not ended; the rule of the queue is applied first. */
  #find(ref: ClaimRef, now: number): Entry | undefined {
    const name = this.#names.get(ref.name);
    if (name === undefined) return undefined;
    this.#advance(name, now);
    const entry = name.claims.get(ref.id);
    if (entry === undefined || entry.endsAt > now) return entry;
    // A dead waiter in the middle of the queue; holders and the first waiter were checked already.
    this.#remove(entry, now);
    return undefined;
  }

  #hasTombstone(ref: ClaimRef, now: number): boolean {
    return this.#tombstones.size > 0 && (this.#tombstones.get(keyOf(ref), now) ?? 0) > now;
  }

  /** The rule of the queue: expired holders and dead waiters at the front are removed, the first waiter holds if it fits. */
  #advance(name: Name, now: number, to?: string): void {
    if (now >= name.soonestEnd) this.#expire(name, now);
    for (let entry = name.waiters.first; entry !== null; entry = name.waiters.first) {
      if (entry.endsAt <= now) {
        this.#delete(entry);
      } else if (fits(name, entry.units)) {
        name.waiters.remove(entry);
        // Its waiter lease stays as it is: the confirmation starts the lease proper.
        this.#grant(entry, now);
        const { id } = entry.claim;
        if (id !== to) entry.push({ kind: "granted", name: name.name, id, ...fenceOf(entry) });
      } else {
        break;
      }
    }
    if (isIdle(name)) this.#forget(name);
  }

  #expire(name: Name, now: number): void {
    name.soonestEnd = Infinity;
    for (const entry of name.holders) {
      if (entry.endsAt <= now) this.#delete(entry);
      else name.soonestEnd = Math.min(name.soonestEnd, entry.endsAt);
    }
  }

  #mint(name: Name, { tokenAtLeast = 0, reserve = 0 }: ClaimRequest): number {
    const token = Math.max(name.lastToken + 1, Math.floor(this.#clock.wallMs() * 1000), tokenAtLeast);
    name.lastToken = token + reserve;
    return token;
  }

  #grant(entry: Entry, now: number): void {
    const { name } = entry;
    entry.holds = true;
    entry.since = now;
    name.taken += entry.units;
    name.soonestEnd = Math.min(name.soonestEnd, entry.endsAt);
    name.holders.push(entry);
  }

  #raise(entry: Entry, token: number): void {
    const { name } = entry;
    // Whoever waits has a token already, which would be below this one.
    if (token <= entry.token || name.waiters.first !== null) return;
    entry.token = token;
    name.lastToken = Math.max(name.lastToken, token);
    name.holders.remove(entry);
    let before = name.holders.last;
    while (before !== null && before.token > token) before = before.before;
    name.holders.insertAfter(before, entry);
  }

  #remove(entry: Entry, now: number, to?: string): void {
    this.#delete(entry);
    this.#advance(entry.name, now, to);
  }

  #delete(entry: Entry): void {
    const { name } = entry;
    name.claims.delete(entry.claim.id, entry);
    if (!entry.holds) return name.waiters.remove(entry);
    name.taken -= entry.units;
    name.holders.remove(entry);
  }

  #newName(claim: ClaimRequest): Name {
    const name: Name = {
      name: claim.name,
      capacity: claim.capacity,
      taken: 0,
      lastToken: this.#tokenFloor,
      soonestEnd: Infinity,
      claims: new Register(),
      holders: new LinkedList(),
      waiters: new LinkedList(),
    };
    this.#names.set(claim.name, name);
    return name;
  }

  #forget(name: Name): void {
    this.#tokenFloor = Math.max(this.#tokenFloor, name.lastToken);
    this.#names.delete(name.name);
  }

  /** Names whose claims were abandoned are removed although nobody asks for them: each claim checks two more. */
  #advanceAbandoned(now: number): void {
    if (this.#names.size === 0) return;
    for (let count = 0; count < 2; count += 1) {
      const next = this.#abandoned.next();
      if (next.done) {
        this.#abandoned = this.#names.values();
        return;
      }
      this.#advance(next.value, now);
    }
  }
}

function keyOf(ref: ClaimRef): string {
  return `${ref.id} ${ref.name}`;
}

function fits(name: Name, units: number): boolean {
  return name.taken + units <= name.capacity;
}

function isIdle(name: Name): boolean {
  return name.holders.first === null && name.waiters.first === null;
}

function answerOf(entry: Entry, now: number): Granted | Queued {
  return entry.holds ? grantedOf(entry, now) : queuedOf(entry, now);
}

function grantedOf(entry: Entry, now: number): Granted {
  const { token, floor, live } = fenceOf(entry);
  const leftMs = entry.endsAt - now;
  return live === undefined
    ? { kind: "granted", leftMs, token, floor }
    : { kind: "granted", leftMs, token, floor, live };
}

function queuedOf(entry: Entry, now: number): Writable<Queued> {
  const { name, token } = entry;
  const nextMs = name.waiters.first === entry ? Math.max(0, name.soonestEnd - now) : null;
  const queued: Writable<Queued> = { kind: "queued", token, nextMs };
  const holder = name.holders.first;
  if (holder !== null) queued.holder = holder.claim.owner;
  return queued;
}

function fenceOf({ name, token, claim }: Entry): Fence {
  const floor = name.holders.first?.token ?? token;
  return claim.exact ? { token, floor, live: [...name.holders].map((holder) => holder.token) } : { token, floor };
}

function stateOf(entry: Entry, now: number): ClaimState {
  const { id, owner, data } = entry.claim;
  return { id, units: entry.units, leftMs: entry.endsAt - now, owner, ...(data === undefined ? {} : { data }) };
}

function holderStateOf(entry: Entry, now: number): HolderState {
  return { ...stateOf(entry, now), token: entry.token, heldMs: now - entry.since };
}

function waiterStateOf(entry: Entry, now: number): WaiterState {
  return { ...stateOf(entry, now), waitingMs: now - entry.since };
}
