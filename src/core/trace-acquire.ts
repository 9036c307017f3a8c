import { type LastWord, NotAcquired } from "./cancellation.js";
import type { Client } from "./client.js";
import type { Grant } from "./grant.js";
import type { Ask, Terms } from "./options.js";
import { AcquireTracing, HoldTracing, wantsHolds } from "./tracing.js";

type Resolve = (taken: Grant | NotAcquired) => void;
type Reject = (error: unknown) => void;
/** What is known on the way, where anything is. */
type Waiting = { readonly lastWord: LastWord };

/**
 * Acquire with a trace around it. The caller is told first: what a subscriber does, and how long it takes, is like anything else
 * that happens to a program right after a grant.
 */
export function traceAcquire<W extends Waiting | void>(
  client: Client,
  ask: Ask,
  terms: Terms,
  resolve: Resolve,
  reject: Reject,
  start: (resolve: Resolve, reject: Reject) => W,
): W {
  const tracing = new AcquireTracing(client, ask);
  let waiting: Waiting | void;
  const resolved = (taken: Grant | NotAcquired): void => {
    resolve(taken);
    if (taken instanceof NotAcquired) return tracing.ended(terms.waitMs === 0 ? "busy" : "timed-out");
    tracing.granted(taken.claim.id, taken.token, waiting?.lastWord.ahead);
    if (wantsHolds()) HoldTracing.start(taken, ask.kind, tracing.trace);
  };
  const rejected = (error: unknown): void => {
    reject(error);
    tracing.failed(error, terms.signal);
  };
  try {
    const started = tracing.run(() => start(resolved, rejected));
    waiting = started;
    return started;
  } catch (error) {
    tracing.failed(error, terms.signal);
    throw error;
  }
}
