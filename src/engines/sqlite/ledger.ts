import type { Clock } from "../../core/clock.js";
import type { ClaimRef, ClaimRequest, EngineEvent, Fence, Queued } from "../../core/engine.js";
import { EngineRefusedError } from "../../core/errors.js";
import type { Owner } from "../../core/inspect.js";
import type { Machine } from "./machine.js";
import type { Statements } from "./prepared.js";
import type { Scripts } from "./scripts.generated.js";

/** To be told after the commit, to the client that made the claim. */
export type Push = { readonly client: string; readonly event: EngineEvent & ClaimRef };

/** A claim's row: it holds (`token` > 0) or waits. */
export type Entry = Scripts["claimGet"]["out"];

/** A claim that has never had company stands, whole, in its name's row. */
type Sole = Entry & { spanMs: number; readonly owner: Owner; readonly data: string | null };

/** A name while a step works on it; written back once, at the end of the step. */
export type Name = {
  readonly name: string;
  capacity: number;
  taken: number;
  holders: number;
  waiters: number;
  lastToken: number;
  lastSeq: number;
  /** No holder's lease ends before this. */
  soonestEnd: number;
  /** The first waiter, and a time before which its lease does not end. */
  frontSeq: number;
  frontEnd: number;
  /** The only claim, when it has no row of its own. */
  sole: Sole | null;
  dirty: boolean;
};

export type Seen = { readonly name: Name; readonly entry: Entry | undefined; readonly marked: boolean };

/** How many holders are looked at when it is asked whether they live: a bound on the cost of a claim that has to wait. */
const LOOK_AT_HOLDERS = 8;

/**
 * The rows of the names that one transaction works on, and the rule that keeps them right: who leaves, who enters. What
 * it reads grows neither with the number of waiters nor with the number of names.
 */
export class Ledger {
  readonly sql: Statements;
  /** Whose claims these are: the mailbox that is told. */
  readonly client: string;
  now = 0;
  readonly #machine: Machine;
  readonly #clock: Clock;
  readonly #names = new Map<string, Name>();
  #pushes: Push[] = [];

  constructor(sql: Statements, machine: Machine, clock: Clock, client: string) {
    this.sql = sql;
    this.client = client;
    this.#machine = machine;
    this.#clock = clock;
  }

  /** The process that guards what this client signs. */
  get guard(): string {
    return this.#machine.guard;
  }

  /** The time is read inside the transaction that uses it (`pitfalls.md` 36). */
  begin(): void {
    this.#names.clear();
    this.#pushes = [];
    this.now = this.#machine.now();
  }

  /** Writes the names back. The pushes may go out when the transaction is committed. */
  finish(): readonly Push[] {
    for (const name of this.#names.values()) if (name.dirty) this.#save(name);
    return this.#pushes;
  }

  #save(n: Name): void {
    const { capacity, taken, holders, waiters, lastToken, lastSeq } = n;
    const { soonestEnd, frontSeq, frontEnd } = n;
    const sole = n.sole === null ? "" : JSON.stringify(n.sole);
    const counts = [capacity, taken, holders, waiters, lastToken, lastSeq] as const;
    this.sql.namePut.run(n.name, ...counts, soonestEnd, frontSeq, frontEnd, sole);
  }

  look({ name: text, id }: ClaimRef): Seen {
    const row = this.sql.look.get(text, id, this.now);
    if (row === undefined) throw new Error("invariant: the store has its row");
    if (row.boot !== this.#machine.boot) throw otherMachine();
    let name = this.#names.get(text);
    if (name === undefined) this.#names.set(text, (name = nameOf(text, row)));
    return { name, entry: this.#find(name, id), marked: row.marked !== 0 };
  }

  #find(name: Name, id: string): Entry | undefined {
    if (name.sole !== null) return name.sole.id === id ? name.sole : undefined;
    return isIdle(name) ? undefined : this.sql.claimGet.get(name.name, id);
  }

  /** The name, settled, and the claim if its lease has not ended. */
  live(ref: ClaimRef): Seen {
    const { name, entry: seen, marked } = this.look(ref);
    let entry = seen;
    if (this.now >= Math.min(name.soonestEnd, name.frontEnd)) {
      this.settle(name);
      entry = this.#find(name, ref.id);
    }
    if (entry === undefined || entry.endsAt > this.now) return { name, entry, marked };
    // A dead waiter in the middle of the queue; holders and the first waiter were looked at already.
    this.remove(name, entry);
    return { name, entry: undefined, marked };
  }

  /** What the rule demands now: expired holders leave, dead waiters at the front leave, the first waiter enters if it fits. */
  settle(name: Name): void {
    if (this.now >= name.soonestEnd) this.expire(name);
    while (name.waiters > 0) {
      const first = this.sql.waiterFirst.get(name.name);
      if (first === undefined) throw new Error(`invariant: "${name.name}" counts waiters that are not there`);
      // A waiter whose process is gone would keep the lock for the rest of its lease.
      if (first.endsAt <= this.now || this.#machine.gone(first.guard, false)) this.#drop(name, first);
      else if (fits(name, first.units)) this.#handOver(name, first);
      else return this.#front(name, first.seq, first.endsAt);
    }
    this.#front(name, 0, Infinity);
  }

  /** Its waiter lease stays as it is: the confirmation starts the lease proper. */
  #handOver(name: Name, first: Entry): void {
    first.token = this.#mint(name, first.tokenAtLeast);
    this.sql.claimToken.run(first.token, name.name, first.id);
    name.waiters -= 1;
    this.#enter(name, first.units, first.endsAt);
    this.push(first.client, { kind: "granted", name: name.name, id: first.id, ...this.fenceOf(name, first) });
  }

  #front(name: Name, seq: number, end: number): void {
    if (name.frontSeq === seq && name.frontEnd === end) return;
    name.frontSeq = seq;
    name.frontEnd = end;
    name.dirty = true;
  }

  expire(name: Name): void {
    const { sole } = name;
    if (sole !== null) {
      if (sole.endsAt <= this.now) this.#drop(name, sole);
      name.soonestEnd = name.sole === null ? Infinity : sole.endsAt;
      name.dirty = true;
      return;
    }
    for (const { units } of this.sql.holdersExpired.all(name.name, this.now)) {
      name.holders -= 1;
      name.taken -= units;
    }
    name.soonestEnd = name.holders === 0 ? Infinity : (this.sql.holdersSoonest.get(name.name)?.endsAt ?? Infinity);
    name.dirty = true;
  }

  /** Claims of processes that are gone leave, among those that stand in the way. */
  clearDead(name: Name): void {
    if (name.sole !== null) {
      if (this.#machine.gone(name.sole.guard, false)) this.#drop(name, name.sole);
      return;
    }
    const first = name.waiters > 0 ? this.sql.waiterFirst.get(name.name) : undefined;
    const ahead = [...this.sql.holdersFront.all(name.name, LOOK_AT_HOLDERS), ...(first ? [first] : [])];
    for (const guard of new Set(ahead.map((entry) => entry.guard))) {
      if (this.#machine.gone(guard, false)) this.clearGuard(name, guard);
    }
  }

  clearGuard(name: Name, guard: string): void {
    if (name.sole?.guard === guard) this.#drop(name, name.sole);
    for (const { token, units } of this.sql.guardClear.all(name.name, guard)) discount(name, token, units);
    this.settle(name);
  }

  /** A new claim enters, or joins the queue. */
  put(name: Name, claim: ClaimRequest, leaseMs: number, enters: boolean): Entry {
    const { id, units, tokenAtLeast = 0, owner, data = null } = claim;
    const { client } = this;
    const guard = claim.leaseOnly ? "" : this.guard;
    const sole = isIdle(name);
    if (name.sole !== null) this.#spill(name, name.sole);
    name.lastSeq += 1;
    name.dirty = true;
    const entry: Sole = {
      id,
      seq: name.lastSeq,
      units,
      token: enters ? this.#mint(name, tokenAtLeast) : 0,
      endsAt: this.now + leaseMs,
      spanMs: leaseMs,
      leaseMs: claim.leaseMs,
      tokenAtLeast,
      exact: claim.exact ? 1 : 0,
      client,
      guard,
      owner,
      data,
    };
    if (sole) name.sole = entry;
    else this.#insert(name, entry);
    if (enters) {
      this.#enter(name, units, entry.endsAt);
    } else {
      name.waiters += 1;
      if (name.waiters === 1) this.#front(name, entry.seq, entry.endsAt);
    }
    return entry;
  }

  #spill(name: Name, sole: Sole): void {
    name.sole = null;
    this.#insert(name, sole);
  }

  #insert({ name }: Name, entry: Sole): void {
    const { id, seq, units, token, endsAt, spanMs, leaseMs, tokenAtLeast, exact, client, guard, data } = entry;
    const numbers = [seq, units, token, endsAt, spanMs, leaseMs, tokenAtLeast, exact] as const;
    this.sql.claimPut.run(name, id, ...numbers, client, guard, JSON.stringify(entry.owner), data);
  }

  /** A heartbeat. Whoever gives it guards the claim from now on: it may have been handed over to another process. */
  sign(name: Name, entry: Entry, endsAt: number): void {
    const { guard } = this;
    const spanMs = endsAt - this.now;
    if (entry === name.sole) {
      Object.assign(name.sole, { endsAt, spanMs, guard });
      name.dirty = true;
    } else {
      entry.endsAt = endsAt;
      this.sql.claimSign.run(endsAt, spanMs, guard, name.name, entry.id);
    }
  }

  /** A quorum raises the token of a holder. */
  raise(name: Name, entry: Entry, token: number): void {
    entry.token = token;
    if (entry !== name.sole) this.sql.claimToken.run(token, name.name, entry.id);
    name.lastToken = Math.max(name.lastToken, token);
    name.dirty = true;
  }

  shrink(name: Name, entry: Entry, units: number): void {
    if (entry !== name.sole) this.sql.claimUnits.run(units, name.name, entry.id);
    name.taken -= entry.units - units;
    entry.units = units;
    name.dirty = true;
    this.settle(name);
  }

  /** From now on only the lease decides. */
  unguard({ name: text, id }: ClaimRef): void {
    const { name, entry } = this.look({ name: text, id });
    if (entry?.guard !== this.guard) return;
    entry.guard = "";
    if (entry === name.sole) name.dirty = true;
    else this.sql.claimUnguard.run(text, id);
  }

  #mint(name: Name, suggestion: number): number {
    name.lastToken = Math.max(name.lastToken + 1, Math.floor(this.#clock.wallMs() * 1000), suggestion);
    return name.lastToken;
  }

  #enter(name: Name, units: number, endsAt: number): void {
    name.taken += units;
    name.holders += 1;
    name.soonestEnd = Math.min(name.soonestEnd, endsAt);
    name.dirty = true;
  }

  remove(name: Name, entry: Entry): void {
    this.#drop(name, entry);
    this.settle(name);
  }

  #drop(name: Name, entry: Entry): void {
    if (entry === name.sole) name.sole = null;
    else this.sql.claimDelete.run(name.name, entry.id);
    discount(name, entry.token, entry.units);
  }

  push(client: string, event: Push["event"]): void {
    this.#pushes.push({ client, event });
  }

  fenceOf(name: Name, { token, exact }: Entry): Fence {
    if (exact !== 0) {
      const live = name.sole ? [token] : this.sql.holderTokens.all(name.name).map((row) => row.token);
      return { token, floor: live[0] ?? token, live };
    }
    const floor = name.holders === 1 ? token : this.sql.holdersFront.get(name.name, 1)?.token;
    return { token, floor: floor ?? token };
  }

  /** Who holds it, by the lowest token. */
  holderOf(name: Name): Pick<Queued, "holder"> {
    if (name.sole !== null) return { holder: name.sole.owner };
    const first = this.sql.holdersFront.get(name.name, 1);
    return first === undefined ? {} : { holder: JSON.parse(first.owner) as Owner };
  }
}

/** The floor is for a name that was forgotten; one with a row goes on from its own newest token. */
function nameOf(name: string, row: Scripts["look"]["out"]): Name {
  return {
    name,
    capacity: row.capacity ?? 0,
    taken: row.taken ?? 0,
    holders: row.holders ?? 0,
    waiters: row.waiters ?? 0,
    lastToken: row.lastToken ?? row.tokenFloor,
    lastSeq: row.lastSeq ?? 0,
    soonestEnd: row.soonestEnd ?? Infinity,
    frontSeq: row.frontSeq ?? 0,
    frontEnd: row.frontEnd ?? Infinity,
    sole: row.sole ? (JSON.parse(row.sole) as Sole) : null,
    dirty: false,
  };
}

function discount(name: Name, token: number, units: number): void {
  name.dirty = true;
  if (token === 0) {
    name.waiters -= 1;
  } else {
    name.holders -= 1;
    name.taken -= units;
  }
}

export function isIdle(name: Name): boolean {
  return name.holders + name.waiters === 0;
}

export function fits(name: Name, units: number): boolean {
  return name.taken + units <= name.capacity;
}

function otherMachine(): EngineRefusedError {
  const cause = new Error("another machine, virtual machine or time namespace has opened this file since we did");
  const advice = "Their clocks cannot be compared. Give each machine a file of its own, or use a store with a server.";
  return new EngineRefusedError("sqlite", advice, cause);
}
