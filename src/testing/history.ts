import type { Guarantees } from "../core/guarantees.js";

/** What a run of several clients was seen to do. Times are of one clock. */
export type History = {
  readonly attempts: Attempt[];
  readonly holds: Held[];
  readonly writes: Write[];
  readonly pauses: Pause[];
};

/** One call to take a lock. `unknown`: the store did not answer, so it may have been taken and given back unseen. */
export type Attempt = {
  readonly client: number;
  readonly name: string;
  readonly askedAt: number;
  endedAt: number | null;
  outcome: "ok" | "fail" | "unknown" | "open";
};

export type Held = {
  readonly client: number;
  readonly name: string;
  readonly id: string;
  readonly units: number;
  readonly capacity: number;
  readonly token: number;
  readonly floor: number;
  readonly askedAt: number;
  /** When this very claim was known to stand in the queue; null when it was granted without waiting. */
  queuedAt: number | null;
  readonly grantedAt: number;
  /** Until when the holder may go on by its own clock; moved by renewals. */
  deadline: number;
  /** The release was called, or the loss was told. */
  endedAt: number | null;
  ended: "released" | "lost" | "open";
};

/** A write at a resource that is guarded by the token. */
export type Write = {
  readonly hold: Held;
  readonly at: number;
  /** `hold.throwIfLost()` passed just before. */
  readonly checked: boolean;
  readonly accepted: boolean;
};

/** A client whose process stood still. */
export type Pause = { readonly client: number; readonly from: number; to: number };

export type Violation = { readonly rule: string; readonly what: string };

export function emptyHistory(): History {
  return { attempts: [], holds: [], writes: [], pauses: [] };
}

/**
 * `lateMs`: how late a timer may be before a loss counts as told late. `ties`: shared grants that were asked for at the same
 * time may have the same token (quorum).
 */
export type CheckOptions = { readonly order: Guarantees["order"]; readonly lateMs: number; readonly ties?: boolean };

/** Every rule over one history; an empty list means that none was broken. */
export function checkHistory(history: History, options: CheckOptions): Violation[] {
  return [
    ...exclusion(history),
    ...tokenOrder(history, options.ties === true),
    ...floors(history),
    ...(options.order === "fifo" ? arrivalOrder(history) : []),
    ...toldInTime(history, options.lateMs),
    ...fencing(history),
    ...allAnswered(history),
  ];
}

/**
 * Until when a holder may have acted on its hold. A process that stood still over its deadline was told late, but ran no
 * code in between, and `throwIfLost()` compares clocks.
 */
function believedUntil(history: History, hold: Held): number {
  const endedAt = hold.endedAt ?? Infinity;
  return pausedAt(history, hold.client, hold.deadline) ? Math.min(endedAt, hold.deadline) : endedAt;
}

function pausedAt(history: History, client: number, at: number): boolean {
  return history.pauses.some((pause) => pause.client === client && pause.from <= at && at <= pause.to);
}

/** At no time do the units of those who believe to hold exceed the capacity. */
function exclusion(history: History): Violation[] {
  return byName(history.holds).flatMap(([name, holds]) => {
    const moments = holds.flatMap((hold) => [
      { at: hold.grantedAt, units: hold.units, hold },
      { at: believedUntil(history, hold), units: -hold.units, hold },
    ]);
    // At one instant those who leave go first: a hand-over is no overlap.
    moments.sort((one, two) => one.at - two.at || one.units - two.units);
    let taken = 0;
    for (const { at, units, hold } of moments) {
      taken += units;
      if (taken > hold.capacity) {
        return [
          {
            rule: "exclusion",
            what: `${taken} of ${hold.capacity} units of "${name}" held at ${at}, at last by ${text(hold)}`,
          },
        ];
      }
    }
    return [];
  });
}

/**
 * Tokens are unique, a claim sent after another was granted gets a higher one, and of two that exclude each other the one that
 * was told first has the lower one. (Two that may hold side by side are told in any order.)
 */
function tokenOrder(history: History, ties: boolean): Violation[] {
  // Of what was asked for and granted at one instant nobody can say that one came after the other.
  const mayTie = (one: Held, two: Held): boolean =>
    ties && isShared(one) && isShared(two) && one.askedAt <= two.grantedAt && two.askedAt <= one.grantedAt;
  return pairs(history.holds).flatMap(([one, two]) => {
    if (mayTie(one, two) || one.id === two.id) return [];
    if (one.token === two.token) return [{ rule: "token order", what: `one token for ${text(one)} and ${text(two)}` }];
    const excluding = one.units + two.units > one.capacity;
    const wrong = one.grantedAt < (excluding ? two.grantedAt : two.askedAt) && one.token > two.token;
    return wrong ? [{ rule: "token order", what: `${text(one)} was granted before ${text(two)}` }] : [];
  });
}

function isShared(hold: Held): boolean {
  return hold.units < hold.capacity;
}

/** A floor is not above the token, is the token for an exclusive grant, and fences nobody who lives. */
function floors(history: History): Violation[] {
  const own = history.holds.flatMap((hold) => {
    const wrong = hold.units === hold.capacity ? hold.floor !== hold.token : hold.floor > hold.token;
    return wrong ? [{ rule: "floor", what: `floor ${hold.floor} of ${text(hold)}` }] : [];
  });
  const others = pairs(history.holds).flatMap(([one, two]) => {
    const lives = one.grantedAt < two.grantedAt && two.grantedAt < believedUntil(history, one);
    const wrong = lives && one.token < two.floor;
    return wrong ? [{ rule: "floor", what: `${text(two)} has floor ${two.floor}, above the live ${text(one)}` }] : [];
  });
  return [...own, ...others];
}

/** Who was known to wait before another asked is granted before it. */
function arrivalOrder(history: History): Violation[] {
  return pairs(history.holds).flatMap(([one, two]) => {
    const wrong = one.queuedAt !== null && one.queuedAt < two.askedAt && one.token > two.token;
    return wrong ? [{ rule: "arrival order", what: `${text(two)} overtook ${text(one)}` }] : [];
  });
}

/** A process that runs learns of a loss no later than its deadline. */
function toldInTime(history: History, lateMs: number): Violation[] {
  return history.holds.flatMap((hold) => {
    if (hold.ended !== "lost" || hold.endedAt === null || pausedAt(history, hold.client, hold.deadline)) return [];
    const lateBy = hold.endedAt - hold.deadline;
    return lateBy > lateMs
      ? [{ rule: "told in time", what: `${text(hold)} was told ${lateBy} ms after its deadline` }]
      : [];
  });
}

/** The guard refuses nobody who lives; and the highest floor it has accepted never goes down. */
function fencing(history: History): Violation[] {
  const alive = history.writes.filter((write) => write.checked && !write.accepted);
  const refused = alive.map(({ hold, at }) => ({
    rule: "fencing",
    what: `live ${text(hold)} was refused at ${at}`,
  }));
  const highest = new Map<string, number>();
  const stale = history.writes.flatMap(({ hold, accepted, at }) => {
    if (!accepted) return [];
    const seen = highest.get(hold.name) ?? 0;
    highest.set(hold.name, Math.max(seen, hold.floor));
    return hold.token < seen ? [{ rule: "fencing", what: `stale ${text(hold)} was accepted at ${at}` }] : [];
  });
  return [...refused, ...stale];
}

/** Once the faults are over every call comes to an end. */
function allAnswered(history: History): Violation[] {
  return history.attempts
    .filter((attempt) => attempt.outcome === "open")
    .map(({ client, name, askedAt }) => ({
      rule: "liveness",
      what: `client ${client} still waits for "${name}" since ${askedAt}`,
    }));
}

function byName(holds: readonly Held[]): [string, Held[]][] {
  const names = new Map<string, Held[]>();
  for (const hold of holds) names.set(hold.name, [...(names.get(hold.name) ?? []), hold]);
  return [...names];
}

/** All ordered pairs of two holds of one name. */
function pairs(holds: readonly Held[]): [Held, Held][] {
  return byName(holds).flatMap(([, same]) =>
    same.flatMap((one) => same.filter((two) => two !== one).map((two): [Held, Held] => [one, two])),
  );
}

function text(hold: Held): string {
  return `${hold.units} of "${hold.name}" by client ${hold.client} (token ${hold.token}, from ${hold.grantedAt})`;
}
