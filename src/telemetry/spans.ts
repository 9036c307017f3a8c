import {
  type Attributes,
  type Context,
  context,
  type Span,
  type SpanContext,
  SpanStatusCode,
  type Tracer,
} from "@opentelemetry/api";
import type { AcquireTrace, HoldTrace, TracedLock } from "../core/tracing.js";
import { CAPACITY, ENGINE, ERROR_TYPE, KIND, NAME, OUTCOME, REASON, TOKEN, UNITS } from "./attributes.js";

/** Of the latest holds, so that whoever waited for one can point to it. */
const KNOWN_MAX = 1_000;

/** Outcomes that are nobody's mistake: not its turn, not wanted any more. */
const FINE: ReadonlySet<string> = new Set(["granted", "busy", "aborted", "released", "handed-over"]);

/** A span, and where in the program's own trace it stands. */
export type Started = { readonly span: Span; readonly parent: Context };

/** Spans for acquires and holds, as children of what ran when the lock was asked for. */
export class LockSpans {
  readonly #tracer: Tracer;
  /** By claim. */
  readonly #holds = new Map<string, SpanContext>();

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  acquireStarted(trace: AcquireTrace): Started {
    return this.#start("holdfast acquire", attributesOf(trace), context.active());
  }

  acquireEnded({ span }: Started, { name, outcome, token, ahead }: AcquireTrace): void {
    if (token !== undefined) span.setAttribute(TOKEN, token);
    const before = ahead === undefined ? undefined : this.#holds.get(claimOf({ name, id: ahead }));
    if (before !== undefined) span.addLink({ context: before });
    end(span, outcome, outcome);
  }

  /** The grant may come in anybody's turn of the event loop: what the hold belongs to is where the lock was asked for. */
  holdStarted(trace: HoldTrace, acquire: Started | undefined): Started {
    const attributes = { ...attributesOf(trace), [TOKEN]: trace.token };
    const started = this.#start("holdfast hold", attributes, acquire?.parent ?? context.active());
    this.#remember(claimOf(trace), started.span);
    return started;
  }

  holdEnded({ span }: Started, trace: HoldTrace): void {
    const { outcome, reason } = trace;
    this.#remember(claimOf(trace), span);
    if (reason !== undefined) span.setAttribute(REASON, reason);
    // Whoever closed its client meant it.
    end(span, outcome, reason === "closed" ? "released" : outcome);
  }

  jeopardy({ span }: Started): void {
    span.addEvent("jeopardy");
  }

  #start(name: string, attributes: Attributes, parent: Context): Started {
    return { span: this.#tracer.startSpan(name, { attributes }, parent), parent };
  }

  #remember(claim: string, span: Span): void {
    this.#holds.delete(claim);
    this.#holds.set(claim, span.spanContext());
    if (this.#holds.size <= KNOWN_MAX) return;
    for (const oldest of this.#holds.keys()) {
      this.#holds.delete(oldest);
      break;
    }
  }
}

/** Chosen ids may be the same in several clients of one process. */
export function claimOf({ name, id }: Pick<HoldTrace, "name" | "id">): string {
  return `${id} ${name}`;
}

function attributesOf({ name, kind, units, capacity, engine }: TracedLock): Attributes {
  return { [NAME]: name, [KIND]: kind, [UNITS]: units, [CAPACITY]: capacity, [ENGINE]: engine };
}

function end(span: Span, outcome: string | undefined, judged: string | undefined): void {
  if (outcome !== undefined) span.setAttribute(OUTCOME, outcome);
  if (judged !== undefined && !FINE.has(judged)) {
    span.setAttribute(ERROR_TYPE, judged);
    span.setStatus({ code: SpanStatusCode.ERROR });
  }
  span.end();
}
