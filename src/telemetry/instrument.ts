import { subscribe, tracingChannel, unsubscribe } from "node:diagnostics_channel";
import { type Meter, metrics, type Tracer, trace as traces } from "@opentelemetry/api";
import { checkFunction, checkKnown, shown } from "../core/checks.js";
import { InvalidOptionError } from "../core/errors.js";
import type { LockEvents } from "../core/events.js";
import type { AcquireTrace, HoldTrace, RenewTrace } from "../core/tracing.js";
import { type Subscription, subscription } from "../core/unlisten.js";
import type { Locks } from "../locks.js";
import type { NameOf } from "./labels.js";
import { LockMetrics } from "./metrics.js";
import { claimOf, LockSpans, type Started } from "./spans.js";

export interface InstrumentOptions {
  /** Where metrics go: the global meter provider's unless said otherwise; null: nowhere. */
  readonly meter?: Meter | null;
  /** Where spans go: the global tracer provider's unless said otherwise; null: nowhere. */
  readonly tracer?: Tracer | null;
  /**
   * What metrics say of a lock's name: nothing unless this is given. Answer with few different texts, such as what stands before
   * the first colon; from the hundredth on all others become one.
   */
  readonly nameOf?: NameOf;
}

const SCOPE = "holdfast";

/** What is kept of an acquire or a hold that is under way. */
type UnderWay = {
  readonly series: ReturnType<LockMetrics["seriesOf"]> | undefined;
  readonly span: Started | undefined;
};

/**
 * Make OpenTelemetry's spans and metrics of what happens to locks, until the result is called or disposed of: to those of one
 * `connect`, or with `"holdfast"`, the name of the channels, to all of this process.
 */
export function instrument(source: Locks | "holdfast", options: InstrumentOptions = {}): Subscription {
  checkKnown(options, ["meter", "tracer", "nameOf"]);
  const { meter = metrics.getMeter(SCOPE), tracer = traces.getTracer(SCOPE), nameOf } = options;
  if (nameOf !== undefined) checkFunction("nameOf", nameOf);
  if (source !== "holdfast" && typeof source?.owner?.client !== "string") {
    throw new InvalidOptionError("source", shown(source), 'locks made by connect, or "holdfast" for all of them');
  }
  const counts = meter === null ? undefined : new LockMetrics(meter, nameOf);
  const spans = tracer === null ? undefined : new LockSpans(tracer);
  const ends = [
    ...listeners(source, counts, spans),
    counts === undefined ? () => {} : onEvent(source, "unavailable", (event) => counts.unavailable(event)),
  ];
  return subscription(() => {
    for (const end of ends) end();
  });
}

function listeners(
  source: Locks | "holdfast",
  counts: LockMetrics | undefined,
  spans: LockSpans | undefined,
): (() => void)[] {
  const isMine = ({ owner }: Pick<AcquireTrace, "owner">): boolean =>
    source === "holdfast" || owner.client === source.owner.client;
  const acquires = new WeakMap<AcquireTrace, UnderWay>();
  const holds = new WeakMap<HoldTrace, UnderWay>();
  /** By claim: an event names that. */
  const claims = new Map<string, UnderWay>();
  return [
    onTrace<AcquireTrace>("acquire", {
      start(trace) {
        if (!isMine(trace)) return;
        const series = counts?.seriesOf(trace);
        if (series !== undefined) counts?.acquireStarted(series);
        acquires.set(trace, { series, span: spans?.acquireStarted(trace) });
      },
      asyncEnd(trace) {
        const { series, span } = acquires.get(trace) ?? {};
        if (series !== undefined) counts?.acquireEnded(series, trace);
        if (span !== undefined) spans?.acquireEnded(span, trace);
      },
    }),
    onTrace<HoldTrace>("hold", {
      start(trace) {
        if (!isMine(trace)) return;
        const series = counts?.seriesOf(trace);
        if (series !== undefined) counts?.holdStarted(series);
        const acquire = trace.acquire && acquires.get(trace.acquire)?.span;
        const hold = { series, span: spans?.holdStarted(trace, acquire) };
        holds.set(trace, hold);
        claims.set(claimOf(trace), hold);
      },
      asyncEnd(trace) {
        const { series, span } = holds.get(trace) ?? {};
        if (series !== undefined) counts?.holdEnded(series, trace);
        if (span !== undefined) spans?.holdEnded(span, trace);
        claims.delete(claimOf(trace));
      },
    }),
    onTrace<RenewTrace>("renew", {
      asyncEnd: (trace) => void (isMine(trace) && counts?.renewed(trace)),
    }),
    onEvent(source, "jeopardy", (held) => {
      const { series, span } = claims.get(claimOf(held)) ?? {};
      if (series !== undefined) counts?.jeopardy(series);
      if (span !== undefined) spans?.jeopardy(span);
    }),
    onEvent(source, "bareMajority", (standing) => {
      const { series } = claims.get(claimOf(standing)) ?? {};
      if (series !== undefined) counts?.bareMajority(series, standing);
    }),
  ];
}

type Phases<Trace> = { readonly start?: (trace: Trace) => void; readonly asyncEnd: (trace: Trace) => void };

function onTrace<Trace>(verb: string, { start, asyncEnd }: Phases<Trace>): () => void {
  const channel = tracingChannel(`holdfast:${verb}`);
  const [started, ended] = [start as (trace: unknown) => void, asyncEnd as (trace: unknown) => void];
  if (start !== undefined) channel.start.subscribe(started);
  channel.asyncEnd.subscribe(ended);
  return () => {
    if (start !== undefined) channel.start.unsubscribe(started);
    channel.asyncEnd.unsubscribe(ended);
  };
}

function onEvent<Type extends "jeopardy" | "unavailable" | "bareMajority">(
  source: Locks | "holdfast",
  type: Type,
  listener: (event: LockEvents[Type]) => void,
): () => void {
  if (source !== "holdfast") return source.on(type, listener);
  const told = (event: unknown): void => listener(event as LockEvents[Type]);
  subscribe(`holdfast:${type}`, told);
  return () => void unsubscribe(`holdfast:${type}`, told);
}
