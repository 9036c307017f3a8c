import type { Answer, CapacityAnswer, Claim, ClaimRef, Leave, Released, Renewal, Sign } from "../../core/engine.js";
import type { ClaimState, NameState, Owner } from "../../core/inspect.js";
import { MARK_MS, waiterLeaseMs } from "../../core/limits.js";
import { type Entry, fits, isIdle, type Ledger, type Name } from "./ledger.js";

/** Rows that a sweep looks at in one transaction. */
const SWEEP_ROWS = 64;

/** The verbs of the memory engine over rows; each runs inside one immediate transaction. */
export class SqliteStore {
  readonly #ledger: Ledger;
  /** Where the sweep has come to, in order of names. */
  #sweptTo = "";

  constructor(ledger: Ledger) {
    this.#ledger = ledger;
  }

  claim(claim: Claim): Answer {
    const { name, entry, marked } = this.#ledger.live(claim);
    if (marked) return { kind: "gone" };
    if (entry !== undefined) return this.#answer(name, entry);
    // Nobody overtakes: with others waiting even a claim that would fit has to queue.
    const enters = (): boolean => name.waiters === 0 && fits(name, claim.units);
    const blocked = !isIdle(name) && (name.capacity !== claim.capacity || !enters());
    if (blocked) this.#ledger.clearDead(name);
    if (isIdle(name)) start(name, claim.capacity);
    if (name.capacity !== claim.capacity) return { kind: "mismatch", capacity: name.capacity };
    if (enters()) return this.#answer(name, this.#ledger.put(name, claim, claim.leaseMs, true));
    if (!claim.wait) return { kind: "busy", ...this.#ledger.holderOf(name) };
    return this.#answer(name, this.#ledger.put(name, claim, waiterLeaseMs(claim.leaseMs), false));
  }

  release({ name: text, id, settled = false }: Leave): Released {
    const { sql, now, client } = this.#ledger;
    // Before this release leaves its own mark: one that is there already is somebody else's.
    const { name, entry, marked } = this.#ledger.live({ name: text, id });
    if (!settled) sql.markPut.run(id, text, now + MARK_MS);
    if (entry === undefined) return marked ? "revoked" : "gone";
    this.#ledger.remove(name, entry);
    // Taken out by somebody else than its owner, who is told.
    if (entry.client !== client) this.#ledger.push(entry.client, { kind: "lost", name: text, id });
    return "released";
  }

  renew(sign: Sign): Renewal {
    const { now } = this.#ledger;
    const { name, entry, marked } = this.#ledger.live(sign);
    if (entry === undefined) return marked ? { kind: "gone", revoked: true } : { kind: "gone" };
    const { token, leaseMs } = entry;
    if (token === 0) {
      this.#ledger.sign(name, entry, now + waiterLeaseMs(leaseMs));
    } else {
      this.#ledger.sign(name, entry, Math.max(entry.endsAt, now + (sign.leaseMs ?? leaseMs)));
      if (sign.tokenAtLeast !== undefined && sign.tokenAtLeast > token) {
        this.#ledger.raise(name, entry, sign.tokenAtLeast);
      }
    }
    return this.#answer(name, entry);
  }

  resize(ref: ClaimRef, units: number): "resized" | "refused" | "gone" {
    const { name, entry } = this.#ledger.live(ref);
    if (entry === undefined) return "gone";
    if (entry.token === 0 || units > entry.units) return "refused";
    this.#ledger.shrink(name, entry, units);
    return "resized";
  }

  setCapacity(text: string, from: number, to: number): CapacityAnswer {
    const { name } = this.#ledger.live({ name: text, id: "" });
    if (isIdle(name) || name.capacity === to) return { kind: "set" };
    if (name.capacity !== from) return { kind: "mismatch", capacity: name.capacity };
    name.capacity = to;
    name.dirty = true;
    for (const { id, client, endsAt } of this.#ledger.sql.waitersTooLarge.all(text, to)) {
      name.waiters -= 1;
      // A dead one was no waiter any more: it lost nothing.
      if (endsAt > this.#ledger.now) this.#ledger.push(client, { kind: "lost", name: text, id });
    }
    this.#ledger.settle(name);
    return { kind: "set" };
  }

  /** Undefined for an idle name. */
  inspect(text: string): NameState | undefined {
    const { now } = this.#ledger;
    const { name } = this.#ledger.live({ name: text, id: "" });
    const claims = this.#claimsOf(name).map(({ id, units, token, endsAt, owner, data }) => {
      const state: ClaimState = { id, units, leftMs: endsAt - now, owner, ...(data === null ? {} : { data }) };
      return { token, state };
    });
    if (claims.length === 0) return undefined;
    const holders = claims.filter(({ token }) => token > 0).map(({ token, state }) => ({ ...state, token }));
    const waiters = claims.filter(({ token }) => token === 0).map(({ state }) => state);
    return { name: text, capacity: name.capacity, lastToken: name.lastToken, holders, waiters };
  }

  #claimsOf(name: Name) {
    if (isIdle(name)) return [];
    if (name.sole !== null) return [name.sole];
    const rows = this.#ledger.sql.claimsOf.all(name.name, this.#ledger.now);
    return rows.map((row) => ({ ...row, owner: JSON.parse(row.owner) as Owner }));
  }

  /** The process is certainly gone: its claims on this name leave, and who fits enters. */
  clear(text: string, guard: string): void {
    this.#ledger.clearGuard(this.#ledger.look({ name: text, id: "" }).name, guard);
  }

  /** The holds are to live on after this process has ended in peace. */
  unguard(refs: Iterable<ClaimRef>): void {
    for (const ref of refs) this.#ledger.unguard(ref);
  }

  /**
   * A batch of what nobody looks at any more: idle names, ended leases, old marks. True when the end of the names was
   * reached. Only names behind the cursor leave, so nothing that this transaction works on.
   */
  sweep(): boolean {
    const { sql, now } = this.#ledger;
    const names = sql.namesAfter.all(this.#sweptTo, SWEEP_ROWS);
    const last = names.at(-1)?.name;
    if (last !== undefined) {
      for (const { name } of sql.namesDue.all(this.#sweptTo, last, now)) this.#ledger.live({ name, id: "" });
      const tokens = sql.namesIdle.all(this.#sweptTo, last).map((row) => row.lastToken);
      if (tokens.length > 0) sql.floorRaise.run(Math.max(...tokens));
    }
    sql.marksEnded.run(now, SWEEP_ROWS);
    sql.operationsEnded.run(now, SWEEP_ROWS);
    const done = names.length < SWEEP_ROWS;
    this.#sweptTo = done ? "" : (last ?? "");
    return done;
  }

  #answer(name: Name, entry: Entry): Extract<Answer, { kind: "granted" | "queued" }> {
    const { now } = this.#ledger;
    if (entry.token > 0) return { kind: "granted", leftMs: entry.endsAt - now, ...this.#ledger.fenceOf(name, entry) };
    const nextMs = name.frontSeq === entry.seq ? Math.max(0, name.soonestEnd - now) : null;
    return { kind: "queued", lastToken: name.lastToken, nextMs, ...this.#ledger.holderOf(name) };
  }
}

/** An idle name takes the capacity of its first claim. */
function start(name: Name, capacity: number): void {
  Object.assign(name, { capacity, taken: 0, soonestEnd: Infinity, frontSeq: 0, frontEnd: Infinity, dirty: true });
}
