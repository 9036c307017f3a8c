import type { Guarantees } from "../src/core/guarantees.js";
import { checkHistory, type Held, type History, type Violation } from "../src/testing/history.js";
import type { Child } from "./child.js";
import type { Outcome } from "./fault.js";

/** The answers that a run's history gives. Times in milliseconds; negative: before. */
export type Findings = {
  readonly outcome: Outcome | "none";
  /** When the holder was told, relative to the end of its lease by its own clock. */
  readonly toldAfterDeadlineMs: number | null;
  /** … and to the next grant. */
  readonly toldAfterNextGrantMs: number | null;
  /** From the fault to the next grant; null where that waited for the holder. */
  readonly othersWentOnMs: number | null;
  /** Writes at the unfenced resource by somebody whose successor had written already. */
  readonly unfencedStale: number;
  /** Tries of the same at the fenced one, and how many of them were refused. */
  readonly fencedStale: number;
  readonly fencedRefused: number;
  /** What the kit's checkers say, without what the outcome implies. */
  readonly violations: readonly Violation[];
};

/** A write with its place in the order of the resource. */
type Placed = {
  readonly hold: Held;
  readonly at: number;
  readonly place: number;
  readonly checked: boolean;
  readonly fenced: boolean;
};

export type Recorded = { readonly history: History; readonly writes: readonly Placed[] };

/** The kit's history, out of what the contenders told. */
export function record(children: readonly Child[]): Recorded {
  const history: History = { attempts: [], holds: [], writes: [], pauses: [] };
  const writes: Placed[] = [];
  children.forEach((child, client) => {
    const name = "the lock";
    const granted = child.all("granted");
    child.all("asked").forEach(({ at: askedAt }, n) => {
      const end = granted[n]?.at ?? null;
      // Whoever died asks no more.
      const outcome = end !== null ? "ok" : child.ended ? "fail" : "open";
      history.attempts.push({ client, name, askedAt, endedAt: end, outcome });
    });
    for (const { from, to } of child.all("stood still")) history.pauses.push({ client, from, to });
    for (const { id, token, floor, askedAt, queuedAt, at, deadline } of granted) {
      const renewed = child.all("renewed").filter((one) => one.id === id);
      const lost = child.all("lost").find((one) => one.id === id);
      const released = child.all("releasing").find((one) => one.id === id);
      const diedAt = child.ended && lost === undefined && released === undefined ? child.endedAt : null;
      const ended = lost !== undefined && (released === undefined || lost.at <= released.at) ? lost : released;
      const hold: Held = {
        ...{ client, name, id, token, floor, askedAt, queuedAt, units: 1, capacity: 1, grantedAt: at },
        deadline: renewed.at(-1)?.deadline ?? deadline,
        endedAt: ended?.at ?? diedAt,
        ended: ended === undefined ? (diedAt === null ? "open" : "released") : ended === lost ? "lost" : "released",
      };
      history.holds.push(hold);
      for (const { at, place, checked, fenced } of child.all("wrote").filter((one) => one.id === id)) {
        writes.push({ hold, at, place, checked, fenced });
      }
    }
  });
  history.holds.sort((one, two) => one.grantedAt - two.grantedAt);
  writes.sort((one, two) => one.place - two.place);
  for (const { hold, at, checked, fenced } of writes) history.writes.push({ hold, at, checked, accepted: fenced });
  return { history, writes };
}

/** Those that come after a write of somebody who was granted the lock later. */
function stale(writes: readonly Placed[]): Placed[] {
  let newest = -Infinity;
  return writes.filter(({ hold: { grantedAt } }) => {
    const late = grantedAt < newest;
    newest = Math.max(newest, grantedAt);
    return late;
  });
}

/** What each break cannot but show; anything else that a checker finds counts against the cell. */
const IMPLIED: Partial<Record<Outcome, (violation: Violation) => boolean>> = {
  "late write": ({ rule, what }) => rule === "fencing" && what.startsWith("live"),
  "two holders": ({ rule, what }) =>
    rule === "exclusion" || rule === "floor" || (rule === "fencing" && what.startsWith("live")),
};

/** `lateMs`: how late a timer may be. */
export function judge(
  { history, writes }: Recorded,
  faultAt: number,
  { killed, restarted }: { readonly killed: boolean; readonly restarted: boolean },
  order: Guarantees["order"],
): Findings {
  const violations = checkHistory(history, { order, lateMs: 250 });
  const first = history.holds.find(({ client }) => client === 0);
  const next = history.holds.find(({ client, grantedAt }) => client !== 0 && grantedAt > faultAt);
  const late = stale(writes);
  const unfenced = late.filter(({ checked }) => checked);
  const refused = late.filter(({ fenced }) => !fenced);
  const told = first?.ended === "lost" ? first.endedAt : null;
  const overlap = violations.some(({ rule }) => rule === "exclusion");
  const outcome = ((): Outcome | "none" => {
    if (overlap) return "two holders";
    if (unfenced.length > 0) return "late write";
    if (killed) return next === undefined ? "none" : "freed";
    if (first === undefined || (next !== undefined && next.grantedAt < first.grantedAt)) {
      return next === undefined ? "none" : "not taken";
    }
    if (first.ended !== "lost") return "kept";
    if (next === undefined) return "none";
    return restarted ? "refused" : "passed on";
  })();
  const implied = outcome === "none" ? undefined : IMPLIED[outcome];
  return {
    outcome,
    toldAfterDeadlineMs: told === null || first === undefined ? null : told - first.deadline,
    toldAfterNextGrantMs: told === null || next === undefined ? null : told - next.grantedAt,
    othersWentOnMs: next === undefined || outcome === "kept" ? null : next.grantedAt - faultAt,
    unfencedStale: unfenced.length,
    fencedStale: late.length,
    fencedRefused: refused.length,
    violations: violations.filter((violation) => implied?.(violation) !== true),
  };
}
