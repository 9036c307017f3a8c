// Beside the usual files: the tables that all verbs work on, and the rule of the queue, which each of them ends with.
import type { Clock } from "../../core/clock.js";
import type { ClaimRef, ClaimRequest, EngineEvent, Fence, Granted, Queued } from "../../core/engine.js";
import type { Owner } from "../../core/inspect.js";
import { LoadedRows } from "./loaded-rows.js";
import type { Machine } from "./machine.js";
import { type ClaimRow, countRemoved, fits, type HolderRow, isIdle, type NameRow, type SoleClaim } from "./rows.js";
import type { Statements } from "./statements.js";

/** Sent after the commit, to the client that made the claim. */
export type Push = {
  readonly client: string;
  readonly event: EngineEvent & ClaimRef;
  /** The client has let this claim go on already. */
  readonly known: boolean;
};

export type Loaded = { readonly name: NameRow; readonly claim: ClaimRow | undefined };

const NONE: readonly Push[] = [];

/** How many holders' processes a new claim checks: a bound on the cost of a claim that has to wait. */
const CHECK_HOLDERS = 8;

/**
 * The rows of the names that one transaction works on, and the rule of the queue. What a verb reads grows neither with the
 * number of waiters nor with the number of names.
 */
export class LockTables {
  readonly sql: Statements;
  /** Whose claims these are: the address of the mailbox to which pushes go. */
  readonly client: string;
  readonly #rows: LoadedRows;
  readonly #machine: Machine;
  readonly #clock: Clock;
  #pushes: Push[] = [];

  constructor(sql: Statements, machine: Machine, clock: Clock, client: string) {
    this.sql = sql;
    this.client = client;
    this.#rows = new LoadedRows(sql, machine);
    this.#machine = machine;
    this.#clock = clock;
  }

  /** The process with which this client's claims end. */
  get process(): string {
    return this.#machine.process;
  }

  /** The time of this transaction. */
  get now(): number {
    return this.#rows.now;
  }

  begin(): void {
    this.#rows.begin();
    this.#pushes = [];
  }

  /** Whoever is next on names that were left, and writes the names back. */
  finish(): void {
    for (const name of this.#rows.names) {
      if (name.left) this.advance(name);
      if (name.dirty) this.#rows.save(name);
    }
  }

  /** What may be sent when the transaction is committed. */
  takePushes(): readonly Push[] {
    return this.#pushes.length === 0 ? NONE : this.#pushes.splice(0);
  }

  /** The name and the claim as they are stored. */
  load(ref: ClaimRef): Loaded {
    const name = this.#rows.nameOf(ref);
    return { name, claim: this.#rows.find(name, ref) };
  }

  /** Whether the claim was released before, in an earlier transaction or in this one. */
  hasTombstone(ref: ClaimRef): boolean {
    return this.#rows.hasTombstone(ref);
  }

  /** From now on copies of this claim which arrive late are answered "gone". */
  addTombstone(ref: ClaimRef): void {
    this.#rows.addTombstone(ref);
  }

  /** The name after the rule of the queue was applied, and the claim if its lease has not ended. */
  loadCurrent(ref: ClaimRef): Loaded {
    const name = this.#rows.nameOf(ref);
    if (name.left || this.#isDue(name)) this.advance(name);
    const claim = this.#rows.find(name, ref);
    if (claim === undefined || claim.endsAt > this.now) return { name, claim };
    // A dead waiter in the middle of the queue; holders and the first waiter were checked already.
    this.#delete(name, claim);
    return { name, claim: undefined };
  }

  /**
   * The claim leaves; undefined when it was not there or its lease had ended. `to` went on already: where one holds at a time
   * nobody is let in before it is known whether it leaves too, in this transaction. Of a run of releases within one client only
   * the last lets somebody in.
   */
  take(ref: ClaimRef, to?: string): ClaimRow | undefined {
    const name = this.#rows.nameOf(ref);
    const follows = name.known?.has(ref.id) ?? false;
    if (this.#isDue(name) || (name.left && !follows)) this.advance(name);
    const own = name.sole === null && !isIdle(name);
    const claim = own ? this.sql.claimTake.get(ref.name, ref.id) : this.#rows.find(name, ref);
    if (claim === undefined) return undefined;
    if (claim === name.sole) name.sole = null;
    countRemoved(name, claim);
    if (to !== undefined) (name.known ??= new Set()).add(to);
    if (name.capacity === 1) name.left = true;
    else this.advance(name);
    return claim.endsAt > this.now ? claim : undefined;
  }

  /** A lease that decides who is next may have ended. */
  #isDue(name: NameRow): boolean {
    return this.now >= Math.min(name.soonestEnd, name.frontEnd);
  }

  /** The rule of the queue: expired holders and dead waiters at the front are removed, the first waiter holds if it fits. */
  advance(name: NameRow): void {
    name.left = false;
    if (this.now >= name.soonestEnd) this.#removeExpired(name);
    while (name.waiters > 0) {
      const first = this.sql.waiterFirst.get(name.name);
      if (first === undefined) throw new Error(`invariant: "${name.name}" counts waiters that are not there`);
      // A waiter whose process has ended would keep the lock for the rest of its lease.
      if (first.endsAt <= this.now || this.#machine.hasEnded(first.process, false)) this.#delete(name, first);
      else if (fits(name, first.units)) this.#handOver(name, first);
      else return this.#setFront(name, first.token, first.endsAt);
    }
    this.#setFront(name, 0, Infinity);
  }

  /** Its waiter lease stays as it is: the confirmation starts the lease proper. */
  #handOver(name: NameRow, first: ClaimRow): void {
    const { id, client, units, endsAt } = first;
    this.sql.claimGrant.run(this.now, name.name, id);
    name.waiters -= 1;
    this.#countHolder(name, units, endsAt);
    this.push(client, { kind: "granted", name: name.name, id, ...this.#fenceOf(name, first) }, name.known?.has(id));
  }

  #setFront(name: NameRow, token: number, end: number): void {
    if (name.frontToken === token && name.frontEnd === end) return;
    name.frontToken = token;
    name.frontEnd = end;
    name.dirty = true;
  }

  #removeExpired(name: NameRow): void {
    const { sole } = name;
    if (sole !== null) {
      if (sole.endsAt <= this.now) this.#delete(name, sole);
      name.soonestEnd = name.sole === null ? Infinity : sole.endsAt;
      name.dirty = true;
      return;
    }
    for (const { units } of this.sql.holdersExpired.all(name.name, this.now)) countRemoved(name, { holds: 1, units });
    name.soonestEnd = name.holders === 0 ? Infinity : (this.sql.holdersSoonest.get(name.name)?.endsAt ?? Infinity);
    name.dirty = true;
  }

  /** Removes claims of processes that have ended, among those that are ahead of a new claim: once in a transaction. */
  removeEnded(name: NameRow): void {
    if (name.checked) return;
    name.checked = true;
    if (name.sole !== null) {
      if (this.#machine.hasEnded(name.sole.process, false)) this.#delete(name, name.sole);
      return;
    }
    const first = name.waiters > 0 ? this.sql.waiterFirst.get(name.name) : undefined;
    for (const process of new Set([...this.#holdersAhead(name), ...(first ? [first] : [])].map((one) => one.process))) {
      if (this.#machine.hasEnded(process, false)) this.removeProcess(name, process);
    }
  }

  #holdersAhead(name: NameRow): readonly HolderRow[] {
    if (name.holders > 1) return this.sql.holdersFront.all(name.name, CHECK_HOLDERS);
    const holder = this.#firstHolder(name);
    return holder === undefined ? [] : [holder];
  }

  /** By the lowest token. */
  #firstHolder(name: NameRow): HolderRow | undefined {
    return (name.firstHolder ??= this.sql.holdersFront.get(name.name, 1));
  }

  removeProcess(name: NameRow, process: string): void {
    if (name.sole?.process === process) this.#delete(name, name.sole);
    for (const removed of this.sql.processDelete.all(name.name, process)) countRemoved(name, removed);
    this.advance(name);
  }

  /** A new claim holds at once, or joins the queue. */
  add(name: NameRow, request: ClaimRequest, leaseMs: number, enters: boolean): ClaimRow {
    const { id, units, owner, data = null } = request;
    const { client } = this;
    const process = request.leaseOnly ? "" : this.process;
    const sole = isIdle(name);
    if (name.sole !== null) this.#moveToOwnRow(name, name.sole);
    const claim: SoleClaim = {
      id,
      units,
      token: this.#mint(name, request),
      holds: enters ? 1 : 0,
      endsAt: this.now + leaseMs,
      spanMs: leaseMs,
      leaseMs: request.leaseMs,
      exact: request.exact ? 1 : 0,
      client,
      process,
      owner,
      data,
      since: this.now,
    };
    if (sole) name.sole = claim;
    else this.#insert(name, claim);
    name.last = claim;
    if (enters) {
      this.#countHolder(name, units, claim.endsAt);
    } else {
      name.waiters += 1;
      if (name.waiters === 1) this.#setFront(name, claim.token, claim.endsAt);
    }
    return claim;
  }

  #moveToOwnRow(name: NameRow, sole: SoleClaim): void {
    name.sole = null;
    this.#insert(name, sole);
  }

  #insert({ name }: NameRow, claim: SoleClaim): void {
    const { id, units, token, holds, endsAt, spanMs, leaseMs, exact, client, process, data, since = null } = claim;
    const numbers = [units, token, holds, endsAt, spanMs, leaseMs, exact] as const;
    this.sql.claimPut.run(name, id, ...numbers, client, process, JSON.stringify(claim.owner), data, since);
  }

  /** A heartbeat. From now on the claim ends with the process that sent it: the hold may have been handed over to it. */
  extend(name: NameRow, claim: ClaimRow, endsAt: number): void {
    const { process } = this;
    const spanMs = endsAt - this.now;
    if (claim === name.sole) {
      Object.assign(name.sole, { endsAt, spanMs, process });
      name.dirty = true;
    } else {
      claim.endsAt = endsAt;
      this.sql.claimExtend.run(endsAt, spanMs, process, name.name, claim.id);
    }
  }

  /** A quorum raises the token of a holder. Not while somebody waits, whose token is minted and would be below this one. */
  raiseToken(name: NameRow, claim: ClaimRow, token: number): void {
    if (token <= claim.token || name.waiters > 0) return;
    claim.token = token;
    name.firstHolder = undefined;
    if (claim !== name.sole) this.sql.claimToken.run(token, name.name, claim.id);
    name.lastToken = Math.max(name.lastToken, token);
    name.dirty = true;
  }

  shrink(name: NameRow, claim: ClaimRow, units: number): void {
    if (claim !== name.sole) this.sql.claimUnits.run(units, name.name, claim.id);
    name.taken -= claim.units - units;
    claim.units = units;
    name.dirty = true;
    this.advance(name);
  }

  /** From now on only the lease ends it. */
  detach({ name: text, id }: ClaimRef): void {
    const { name, claim } = this.load({ name: text, id });
    if (claim?.process !== this.process) return;
    claim.process = "";
    if (claim === name.sole) name.dirty = true;
    else this.sql.claimDetach.run(text, id);
  }

  #mint(name: NameRow, { tokenAtLeast = 0, reserve = 0 }: ClaimRequest): number {
    const token = Math.max(name.lastToken + 1, Math.floor(this.#clock.wallMs() * 1000), tokenAtLeast);
    name.lastToken = token + reserve;
    name.dirty = true;
    return token;
  }

  #countHolder(name: NameRow, units: number, endsAt: number): void {
    name.taken += units;
    name.holders += 1;
    name.soonestEnd = Math.min(name.soonestEnd, endsAt);
    name.dirty = true;
  }

  #delete(name: NameRow, claim: ClaimRow): void {
    if (claim === name.sole) name.sole = null;
    else this.sql.claimDelete.run(name.name, claim.id);
    countRemoved(name, claim);
  }

  push(client: string, event: Push["event"], known = false): void {
    this.#pushes.push({ client, event, known });
  }

  answer(name: NameRow, claim: ClaimRow): Granted | Queued {
    return claim.holds === 1 ? this.granted(name, claim) : this.queued(name, claim);
  }

  granted(name: NameRow, claim: ClaimRow): Granted {
    return { kind: "granted", leftMs: claim.endsAt - this.now, ...this.#fenceOf(name, claim) };
  }

  queued(name: NameRow, { token }: ClaimRow): Queued {
    const nextMs = name.frontToken === token ? Math.max(0, name.soonestEnd - this.now) : null;
    return { kind: "queued", token, nextMs, ...this.holderOf(name) };
  }

  /** The claim behind which a new one will stand, if it is alive and of the same client. */
  aheadOf(name: NameRow): Pick<Queued, "ahead"> {
    const last = name.sole ?? name.last ?? this.sql.claimLast.get(name.name);
    return last?.client === this.client && last.endsAt > this.now ? { ahead: last.id } : {};
  }

  #fenceOf(name: NameRow, { token, exact }: ClaimRow): Fence {
    if (exact !== 0) {
      const live = name.sole ? [token] : this.sql.holderTokens.all(name.name).map((row) => row.token);
      return { token, floor: live[0] ?? token, live };
    }
    const floor = name.holders === 1 ? token : this.#firstHolder(name)?.token;
    return { token, floor: floor ?? token };
  }

  /** Who holds it. */
  holderOf(name: NameRow): Pick<Queued, "holder"> {
    if (name.sole !== null) return { holder: name.sole.owner };
    const first = this.#firstHolder(name);
    return first === undefined ? {} : { holder: JSON.parse(first.owner) as Owner };
  }
}
