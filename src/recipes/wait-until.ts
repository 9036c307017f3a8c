import { Cancellation, type NotAcquired } from "../core/cancellation.js";
import type { Client, PushTarget } from "../core/client.js";
import { isRefusal } from "../core/errors.js";
import { POLL_MAX_MS } from "../core/limits.js";
import { type AcquireOptions, checkTerms, type Terms } from "../core/options.js";

/** How to wait for something that is not a lock. */
export type WaitOptions = Pick<AcquireOptions, "waitMs" | "signal">;

/** What is waited for, and what tells that it may have come. */
export type Condition<R> = {
  readonly name: string;
  /** Null: not yet. */
  check(): Promise<R | null>;
  watch?(changed: () => void): () => void;
  /** Check again after this at the latest; asked after each check. */
  nextMs?(): number;
};

const FIRST_POLL_MS = 50;

export function checkWait(client: Client, options: WaitOptions): Pick<Terms, "waitMs" | "signal"> {
  return checkTerms(options, { leaseMs: client.settings.leaseMs, waitMs: undefined });
}

/**
 * Check now, whenever a change is told, and now and then all the same, until it is there or the caller leaves: by timeout,
 * which is a value, or by its signal or the client's end, which are errors. A store that is away may come back in time.
 */
export async function waitUntil<R>(
  client: Client,
  terms: Pick<Terms, "waitMs" | "signal">,
  condition: Condition<R>,
): Promise<R | NotAcquired> {
  const { name } = condition;
  client.assertTaking(`waiting for "${name}"`);
  terms.signal?.throwIfAborted();
  client.limits.assertRoom(name, false);
  const { clock } = client;
  const startedAt = clock.now();
  const cancellation = new Cancellation(client, terms, startedAt);
  const left = new Promise<null>((resolve) => (cancellation.target = { cancelled: () => resolve(null) }));
  let changed = false;
  let wakeUp = (): void => {};
  const wake = (): void => {
    changed = true;
    wakeUp();
  };
  const id = client.chance.id();
  const target: PushTarget = {
    claim: { name, id },
    pushed: wake,
    clockJumped: wake,
    close: async () => cancellation.cancel("closed"),
  };
  client.addPushTarget(id, target);
  let unwatch = (): void => {};
  let failure: unknown = null;
  try {
    // Before the first check: what changes in between is told.
    unwatch = condition.watch?.(wake) ?? unwatch;
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(POLL_MAX_MS, 2 * pollMs)) {
      changed = false;
      const looking = condition.check().then(
        (found) => {
          failure = null;
          return found;
        },
        (error: unknown) => {
          if (isRefusal(error)) throw error;
          failure = error;
          return null;
        },
      );
      const found = await Promise.race([looking, left]);
      if (found !== null) return found;
      const waitedMs = clock.now() - startedAt;
      if (cancellation.cancelled || terms.waitMs === 0)
        return cancellation.outcome(name, { holder: undefined, failure }, waitedMs);
      if (changed) continue;
      const restMs = Math.max(1, Math.min(pollMs, condition.nextMs?.() ?? Infinity));
      const rested = new Promise<void>((resolve) => (wakeUp = resolve));
      const timer = clock.after(restMs, wakeUp);
      await Promise.race([rested, left]);
      clock.cancel(timer);
    }
  } finally {
    unwatch();
    client.removePushTarget(id, target);
    cancellation.dispose();
  }
}
