import type { Attributes, Meter } from "@opentelemetry/api";
import type { LossReason } from "../core/errors.js";
import type { LockEvents } from "../core/events.js";
import type { AcquireOutcome, AcquireTrace, HoldTrace, RenewTrace, TracedLock } from "../core/tracing.js";
import { ENGINE, KIND, NAME, OUTCOME, REASON } from "./attributes.js";
import { Labels, type NameOf } from "./labels.js";

/** Seconds. From one round trip in memory or nearby, to waits that somebody should look at. */
const WAIT_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
] satisfies readonly number[];
const HOLD_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600] satisfies readonly number[];
const RENEWAL_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

const REASONS = ["deadline", "gone", "revoked", "max-hold", "closed"] as const satisfies readonly LossReason[];
/** What a call to the store was for: the first word of `doing`, which goes on with a name. */
const CALLS = [
  "acquiring",
  "renewing",
  "releasing",
  "extending",
  "downgrading",
  "adopting",
  "inspecting",
  "resizing",
  "other",
] as const;

/** The attributes of one kind of lock on one engine, made once: most of what a record costs would be making them. */
type Series = {
  readonly lock: Attributes;
  readonly outcomes: Map<AcquireOutcome | NonNullable<HoldTrace["outcome"]>, Attributes>;
  readonly reasons: ReadonlyMap<LossReason, Attributes>;
};

/** Counts and durations. Their attributes come from short lists, never from a name, unless `nameOf` says so. */
export class LockMetrics {
  readonly #labels: Labels;
  readonly #series = new Map<string, Series>();
  readonly #engines = new Map<string, ReadonlyMap<string, Attributes>>();
  readonly #wait;
  readonly #hold;
  readonly #bareMajority;
  readonly #renewal;
  readonly #held;
  readonly #waiting;
  readonly #lost;
  readonly #jeopardy;
  readonly #timeouts;
  readonly #limited;
  readonly #unavailable;

  constructor(meter: Meter, nameOf: NameOf | undefined) {
    this.#labels = new Labels(nameOf);
    const seconds = (name: string, description: string, buckets: readonly number[]) =>
      meter.createHistogram(name, { description, unit: "s", advice: { explicitBucketBoundaries: [...buckets] } });
    const count = (name: string, description: string, unit: string) =>
      meter.createCounter(name, { description, unit: `{${unit}}` });
    const upDown = (name: string, description: string, unit: string) =>
      meter.createUpDownCounter(name, { description, unit: `{${unit}}` });
    this.#wait = seconds(
      "holdfast.lock.wait.duration",
      "From asking for a lock to the grant or the end.",
      WAIT_BUCKETS,
    );
    this.#hold = seconds("holdfast.lock.hold.duration", "From the grant to the release or the loss.", HOLD_BUCKETS);
    const bare = "How long holds of a quorum stood on as few members as may grant them.";
    this.#bareMajority = seconds("holdfast.lock.bare_majority.duration", bare, HOLD_BUCKETS);
    this.#renewal = seconds("holdfast.renewal.duration", "Calls that carry heartbeats.", RENEWAL_BUCKETS);
    this.#held = upDown("holdfast.lock.held", "Locks held now.", "hold");
    this.#waiting = upDown("holdfast.lock.waiting", "Calls that wait for a lock now.", "call");
    this.#lost = count("holdfast.lock.lost", "Holds that ended before they were released.", "hold");
    this.#jeopardy = count("holdfast.lock.jeopardy", "Holds that heard nothing for two thirds of a lease.", "hold");
    this.#timeouts = count("holdfast.lock.timeouts", "Waits whose time was over.", "call");
    this.#limited = count("holdfast.lock.limited", "Calls that maxWaiters or maxClaims refused.", "call");
    this.#unavailable = count("holdfast.lock.unavailable", "Calls that the store did not answer.", "call");
  }

  /** What the end of this acquire or hold is recorded with: kept by the caller, so that what goes up goes down. */
  seriesOf(lock: TracedLock): Series {
    const { engine, kind } = lock;
    const name = this.#labels.of(lock);
    const key = `${engine} ${kind} ${name ?? ""}`;
    const known = this.#series.get(key);
    if (known !== undefined) return known;
    const attributes = { [ENGINE]: engine, [KIND]: kind, ...(name === undefined ? {} : { [NAME]: name }) };
    const reasons = new Map(REASONS.map((reason) => [reason, { ...attributes, [REASON]: reason }]));
    const series = { lock: attributes, outcomes: new Map(), reasons };
    this.#series.set(key, series);
    // A series that begins with its first count has not grown: no rule over a rate would see that count.
    for (const lost of reasons.values()) this.#lost.add(0, lost);
    this.#jeopardy.add(0, attributes);
    this.#timeouts.add(0, attributes);
    this.#limited.add(0, attributes);
    this.#callsOf(engine);
    return series;
  }

  acquireStarted({ lock }: Series): void {
    this.#waiting.add(1, lock);
  }

  acquireEnded(series: Series, { outcome = "failed", waitedMs = 0 }: AcquireTrace): void {
    this.#waiting.add(-1, series.lock);
    this.#wait.record(waitedMs / 1000, withOutcome(series, outcome));
    if (outcome === "timed-out") this.#timeouts.add(1, series.lock);
    if (outcome === "limited") this.#limited.add(1, series.lock);
  }

  holdStarted({ lock }: Series): void {
    this.#held.add(1, lock);
  }

  holdEnded(series: Series, { outcome = "released", reason, heldMs = 0 }: HoldTrace): void {
    this.#held.add(-1, series.lock);
    this.#hold.record(heldMs / 1000, withOutcome(series, outcome));
    if (reason !== undefined) this.#lost.add(1, series.reasons.get(reason));
  }

  jeopardy({ lock }: Series): void {
    this.#jeopardy.add(1, lock);
  }

  bareMajority({ lock }: Series, { forMs, over }: LockEvents["bareMajority"]): void {
    if (over) this.#bareMajority.record(forMs / 1000, lock);
  }

  renewed({ engine, outcome = "unavailable", tookMs = 0 }: RenewTrace): void {
    this.#renewal.record(tookMs / 1000, { [ENGINE]: engine, [OUTCOME]: outcome });
  }

  unavailable({ engine, doing }: LockEvents["unavailable"]): void {
    const calls = this.#callsOf(engine);
    const [word = ""] = doing.split(" ", 1);
    this.#unavailable.add(1, calls.get(word) ?? calls.get("other"));
  }

  #callsOf(engine: string): ReadonlyMap<string, Attributes> {
    const known = this.#engines.get(engine);
    if (known !== undefined) return known;
    const calls = new Map(CALLS.map((call) => [call, { [ENGINE]: engine, [REASON]: call }]));
    this.#engines.set(engine, calls);
    for (const attributes of calls.values()) this.#unavailable.add(0, attributes);
    return calls;
  }
}

function withOutcome(
  { lock, outcomes }: Series,
  outcome: AcquireOutcome | NonNullable<HoldTrace["outcome"]>,
): Attributes {
  let attributes = outcomes.get(outcome);
  if (attributes === undefined) outcomes.set(outcome, (attributes = { ...lock, [OUTCOME]: outcome }));
  return attributes;
}
