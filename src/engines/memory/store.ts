// Beside the usual files: the reference is easier to read, and to compare with, in one file than in one for each verb.
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
import type { ClaimState, HolderState, NameState } from "../../core/inspect.js";
import { TOMBSTONE_MS, waiterLeaseMs } from "../../core/limits.js";
import { ExpiringMap } from "./expiring-map.js";
import { LinkedList } from "./linked-list.js";

/** Where pushes for a claim go. */
export type Push = (event: EngineEvent) => void;

/** A claim in the store: it holds or waits. */
type Entry = {
  readonly key: string;
  readonly claim: ClaimRequest;
  readonly push: Push;
  units: number;
  /** Minted when it arrived. */
  token: number;
  holds: boolean;
  endsAt: number;
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
  readonly #entries = new Map<string, Entry>();
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
    const key = keyOf(claim);
    this.#advanceAbandoned(now);
    if (this.#hasTombstone(key, now)) return { kind: "gone" };
    const known = this.#find(claim, key, now);
    if (known !== undefined) return this.#answer(known, now);

    const name = this.#names.get(claim.name) ?? this.#newName(claim);
    if (name.capacity !== claim.capacity) return { kind: "mismatch", capacity: name.capacity };
    const { units, wait } = claim;
    // Nobody overtakes: with others waiting even a claim that would fit has to queue.
    const holds = name.waiters.first === null && fits(name, units);
    if (!holds && !wait) {
      return { kind: "busy", nextMs: Math.max(0, name.soonestEnd - now), ...holderOf(name) };
    }
    const ahead = name.waiters.last ?? name.holders.last;
    const token = this.#mint(name, claim);
    const endsAt = now + (holds ? claim.leaseMs : waiterLeaseMs(claim.leaseMs));
    const entry: Entry = { key, claim, push, units, token, holds: false, endsAt, before: null, after: null };
    this.#entries.set(key, entry);
    if (holds) {
      this.#grant(name, entry);
      return grantedOf(name, entry, now);
    }
    name.waiters.push(entry);
    const queued = queuedOf(name, entry, now);
    return ahead?.push === push && ahead.endsAt > now ? { ...queued, ahead: ahead.claim.id } : queued;
  }

  release({ name, id, tombstone, to }: ReleaseRequest, by: Push): ReleaseAnswer {
    const now = this.#clock.now();
    const ref = { name, id };
    const key = keyOf(ref);
    const before = this.#hasTombstone(key, now);
    if (tombstone !== "never") this.#tombstones.set(key, now + TOMBSTONE_MS, now);
    const entry = this.#find(ref, key, now);
    if (entry === undefined) return before ? "revoked" : "gone";
    this.#remove(entry, now, to);
    // Taken out by somebody else than its owner, who is told.
    if (entry.push !== by) entry.push({ kind: "lost", name, id });
    return "released";
  }

  renew(request: RenewRequest): RenewAnswer {
    const now = this.#clock.now();
    const key = keyOf(request);
    const entry = this.#find(request, key, now);
    if (entry === undefined) return this.#hasTombstone(key, now) ? { kind: "gone", revoked: true } : { kind: "gone" };
    if (entry.holds) {
      entry.endsAt = Math.max(entry.endsAt, now + (request.leaseMs ?? entry.claim.leaseMs));
      if (request.tokenAtLeast !== undefined) this.#raise(entry, request.tokenAtLeast);
    } else {
      entry.endsAt = now + waiterLeaseMs(entry.claim.leaseMs);
    }
    return this.#answer(entry, now);
  }

  resize(ref: ClaimRef, units: number): "resized" | "refused" | "gone" {
    const now = this.#clock.now();
    const entry = this.#find(ref, keyOf(ref), now);
    if (entry === undefined) return "gone";
    if (!entry.holds || units > entry.units) return "refused";
    const name = this.#nameOf(entry);
    name.taken -= entry.units - units;
    entry.units = units;
    this.#advance(name, now);
    return "resized";
  }

  setCapacity(nameText: string, from: number, to: number): CapacityAnswer {
    const now = this.#clock.now();
    this.#advanceNamed(nameText, now);
    const name = this.#names.get(nameText);
    if (name === undefined || name.capacity === to) return { kind: "set" };
    if (name.capacity !== from) return { kind: "mismatch", capacity: name.capacity };
    name.capacity = to;
    for (const entry of name.waiters) {
      if (entry.units <= to) continue;
      this.#delete(name, entry);
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
      const holders = [...name.holders].map((entry): HolderState => ({ ...stateOf(entry, now), token: entry.token }));
      const waiters = [...name.waiters].filter((entry) => entry.endsAt > now).map((entry) => stateOf(entry, now));
      if (holders.length + waiters.length === 0) continue;
      yield { name: text, capacity: name.capacity, lastToken: name.lastToken, holders, waiters };
    }
  }

  /** How much is kept, for leak tests. */
  get size(): { readonly names: number; readonly claims: number; readonly tombstones: number } {
    return { names: this.#names.size, claims: this.#entries.size, tombstones: this.#tombstones.size };
  }

  /** The claim, if its lease has not ended; the rule of the queue is applied first. */
  #find(ref: ClaimRef, key: string, now: number): Entry | undefined {
    this.#advanceNamed(ref.name, now);
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.endsAt > now) return entry;
    // A dead waiter in the middle of the queue; holders and the first waiter were checked already.
    this.#remove(entry, now);
    return undefined;
  }

  #hasTombstone(key: string, now: number): boolean {
    return (this.#tombstones.get(key, now) ?? 0) > now;
  }

  #advanceNamed(text: string, now: number): void {
    const name = this.#names.get(text);
    if (name !== undefined) this.#advance(name, now);
  }

  /** The rule of the queue: expired holders and dead waiters at the front are removed, the first waiter holds if it fits. */
  #advance(name: Name, now: number, to?: string): void {
    if (now >= name.soonestEnd) this.#expire(name, now);
    for (let entry = name.waiters.first; entry !== null; entry = name.waiters.first) {
      if (entry.endsAt <= now) {
        this.#delete(name, entry);
      } else if (fits(name, entry.units)) {
        name.waiters.remove(entry);
        // Its waiter lease stays as it is: the confirmation starts the lease proper.
        this.#grant(name, entry);
        const { id } = entry.claim;
        if (id !== to) entry.push({ kind: "granted", name: name.name, id, ...fenceOf(name, entry) });
      } else {
        break;
      }
    }
    if (name.holders.first === null && name.waiters.first === null) this.#forget(name);
  }

  #expire(name: Name, now: number): void {
    name.soonestEnd = Infinity;
    for (const entry of name.holders) {
      if (entry.endsAt <= now) this.#delete(name, entry);
      else name.soonestEnd = Math.min(name.soonestEnd, entry.endsAt);
    }
  }

  #mint(name: Name, { tokenAtLeast = 0, reserve = 0 }: ClaimRequest): number {
    const token = Math.max(name.lastToken + 1, Math.floor(this.#clock.wallMs() * 1000), tokenAtLeast);
    name.lastToken = token + reserve;
    return token;
  }

  #grant(name: Name, entry: Entry): void {
    entry.holds = true;
    name.taken += entry.units;
    name.soonestEnd = Math.min(name.soonestEnd, entry.endsAt);
    name.holders.push(entry);
  }

  #raise(entry: Entry, token: number): void {
    const name = this.#nameOf(entry);
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
    const name = this.#nameOf(entry);
    this.#delete(name, entry);
    this.#advance(name, now, to);
  }

  #delete(name: Name, entry: Entry): void {
    this.#entries.delete(entry.key);
    if (!entry.holds) return name.waiters.remove(entry);
    name.taken -= entry.units;
    name.holders.remove(entry);
  }

  #answer(entry: Entry, now: number): Granted | Queued {
    const name = this.#nameOf(entry);
    return entry.holds ? grantedOf(name, entry, now) : queuedOf(name, entry, now);
  }

  #newName(claim: ClaimRequest): Name {
    const name: Name = {
      name: claim.name,
      capacity: claim.capacity,
      taken: 0,
      lastToken: this.#tokenFloor,
      soonestEnd: Infinity,
      holders: new LinkedList(),
      waiters: new LinkedList(),
    };
    this.#names.set(claim.name, name);
    return name;
  }

  #nameOf(entry: Entry): Name {
    const name = this.#names.get(entry.claim.name);
    if (name === undefined) throw new Error(`invariant: a claim has the unknown name "${entry.claim.name}"`);
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

function grantedOf(name: Name, entry: Entry, now: number): Granted {
  const { token, floor, live } = fenceOf(name, entry);
  const leftMs = entry.endsAt - now;
  return live === undefined
    ? { kind: "granted", leftMs, token, floor }
    : { kind: "granted", leftMs, token, floor, live };
}

function queuedOf(name: Name, entry: Entry, now: number): Queued {
  const nextMs = name.waiters.first === entry ? Math.max(0, name.soonestEnd - now) : null;
  return { kind: "queued", token: entry.token, nextMs, ...holderOf(name) };
}

function fenceOf(name: Name, entry: Entry): Fence {
  const floor = name.holders.first?.token ?? entry.token;
  if (!entry.claim.exact) return { token: entry.token, floor };
  return { token: entry.token, floor, live: [...name.holders].map((holder) => holder.token) };
}

function holderOf(name: Name): Pick<Queued, "holder"> {
  const owner = name.holders.first?.claim.owner;
  return owner === undefined ? {} : { holder: owner };
}

function stateOf(entry: Entry, now: number): ClaimState {
  const { id, owner, data } = entry.claim;
  return { id, units: entry.units, leftMs: entry.endsAt - now, owner, ...(data === undefined ? {} : { data }) };
}
