import type { HolderState, NameState, Owner, WaiterState } from "../core/inspect.js";
import { stakeOf } from "../recipes/deadlock-graph.js";
import { deadlocksOf } from "./deadlocks.js";
import { CLAIMS_SHOWN } from "./limits.js";
import type { ClaimView, Deadlocks, LeaseView, NameView, WaiterView } from "./wire.js";

/** The end of a lease is computed from two clocks: it has moved when it moved by more than this. */
const JITTER_MS = 100;

export type Change = {
  readonly set: readonly NameView[];
  readonly gone: readonly string[];
  readonly leases: readonly LeaseView[];
};

type Shown = { readonly view: NameView; readonly signature: string };

/** The names as they were read last, and what has changed since the reading before. */
export class Picture {
  readonly #numbers = new Numbers();
  #shown = new Map<string, Shown>();
  #claims = new Map<number, ClaimView>();
  #deadlocks: Deadlocks = [];

  get views(): readonly NameView[] {
    return Array.from(this.#shown.values(), ({ view }) => view);
  }

  get deadlocks(): Deadlocks {
    return this.#deadlocks;
  }

  update(states: readonly NameState[], at: number): Change {
    const [before, claimsBefore] = [this.#shown, this.#claims];
    this.#shown = new Map();
    this.#claims = new Map();
    const set: NameView[] = [];
    const leases: LeaseView[] = [];
    for (const state of states) {
      const view = this.#viewOf(state, at, claimsBefore);
      const signature = signatureOf(view);
      if (before.get(state.name)?.signature !== signature) set.push(view);
      else leases.push(...renewed(view, claimsBefore));
      this.#shown.set(state.name, { view, signature });
    }
    this.#deadlocks = deadlocksOf(states)?.map((ids) => ids.map((id) => this.#numbers.of(waiterId(id)))) ?? null;
    this.#numbers.forgetOthers();
    return { set, gone: [...before.keys()].filter((name) => !this.#shown.has(name)), leases };
  }

  #viewOf(state: NameState, at: number, before: ReadonlyMap<number, ClaimView>): NameView {
    const holders = state.holders.slice(0, CLAIMS_SHOWN).map((holder) => {
      return { ...this.#claim(holderId(holder.id), holder, at, before), token: holder.token };
    });
    const waiters = state.waiters.slice(0, CLAIMS_SHOWN).map((waiter) => {
      return { ...this.#claim(waiterId(waiter.id), waiter, at, before), ...this.#stake(waiter) };
    });
    return {
      name: state.name,
      capacity: state.capacity,
      used: state.holders.reduce((sum, { units }) => sum + units, 0),
      lastToken: state.lastToken,
      holders,
      waiters,
      holderCount: state.holders.length,
      waiterCount: state.waiters.length,
      waitingSince: waiters.length === 0 ? null : Math.min(...waiters.map(({ since }) => since)),
    };
  }

  #claim(id: string, claim: HolderState | WaiterState, at: number, before: ReadonlyMap<number, ClaimView>): ClaimView {
    const { units, leftMs } = claim;
    // Others wrote it: any program that claims may say anything of itself.
    const { client, host, pid, label } = (claim.owner ?? {}) as Partial<Record<keyof Owner, unknown>>;
    const key = this.#numbers.of(id);
    const known = before.get(key);
    const ageMs = ageMsOf(claim);
    const view: ClaimView = {
      key,
      client: this.#numbers.of(`client ${textOf(client)}`),
      host: textOf(host),
      pid: typeof pid === "number" ? pid : 0,
      ...(label === undefined ? {} : { label: textOf(label) }),
      units,
      since: known?.since ?? Math.round(at - (ageMs ?? 0)),
      ...(ageMs === undefined ? { atLeast: true } : {}),
      ...leaseOf(leftMs, at, known),
    };
    this.#claims.set(key, view);
    return view;
  }

  #stake(waiter: WaiterState): Pick<WaiterView, "flow" | "holds"> {
    const stake = stakeOf(waiter);
    if (stake === null) return {};
    const holds = stake.holds.slice(0, CLAIMS_SHOWN).map(({ id }) => this.#numbers.of(holderId(id)));
    return { flow: this.#numbers.of(`flow ${stake.flow}`), holds };
  }
}

/** A claim that waited and now holds is another one: since when, and until when, begin anew. */
const holderId = (id: string): string => `holds ${id}`;
const waiterId = (id: string): string => `waits ${id}`;

const textOf = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

function leaseOf(leftMs: number, at: number, known: ClaimView | undefined): Pick<ClaimView, "until" | "leaseMs"> {
  if (!Number.isFinite(leftMs)) return { until: null, leaseMs: null };
  const until = Math.round(at + leftMs);
  const kept = known?.until ?? Number.NaN;
  return {
    until: Math.abs(until - kept) <= JITTER_MS ? kept : until,
    leaseMs: Math.max(Math.round(leftMs), known?.leaseMs ?? 0),
  };
}

/** All but the leases: they are told apart from the rest. */
function signatureOf({ capacity, used, lastToken, holderCount, waiterCount, holders, waiters }: NameView): string {
  const claims = [...holders, ...waiters].map(({ key, units }) => `${key}:${units}`);
  return [capacity, used, lastToken, holderCount, waiterCount, ...claims].join();
}

function renewed({ holders, waiters }: NameView, before: ReadonlyMap<number, ClaimView>): LeaseView[] {
  return [...holders, ...waiters]
    .filter(({ key, until }) => before.get(key)?.until !== until)
    .map(({ key, until, leaseMs }) => [key, until, leaseMs]);
}

/** Small numbers instead of ids: the same one for as long as the id is seen. */
class Numbers {
  #now = new Map<string, number>();
  #before = new Map<string, number>();
  #last = 0;

  of(id: string): number {
    const known = this.#now.get(id) ?? this.#before.get(id);
    const number = known ?? (this.#last += 1);
    this.#now.set(id, number);
    return number;
  }

  forgetOthers(): void {
    this.#before = this.#now;
    this.#now = new Map();
  }
}

/** How long it has held or waited, by the store; undefined where that does not say. */
function ageMsOf(claim: HolderState | WaiterState): number | undefined {
  return "token" in claim ? claim.heldMs : claim.waitingMs;
}
