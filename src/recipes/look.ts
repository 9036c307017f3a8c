import { Cancellation, type NotAcquired } from "../core/cancellation.js";
import type { Client, PushTarget } from "../core/client.js";
import { isRefusal } from "../core/errors.js";
import { POLL_MAX_MS } from "../core/limits.js";
import { type AcquireOptions, checkTerms, type Terms } from "../core/options.js";

/** How to wait for something that is not a lock. */
export type WaitOptions = Pick<AcquireOptions, "waitMs" | "signal">;

/** What is waited for, and what tells that it may have come. */
export type Lookout<R> = {
  readonly name: string;
  /** Null: not yet. */
  look(): Promise<R | null>;
  watch?(changed: () => void): () => void;
  /** Look again after this at the latest; asked after each look. */
  nextMs?(): number;
};

const FIRST_POLL_MS = 50;

export function checkWait(client: Client, options: WaitOptions): Pick<Terms, "waitMs" | "signal"> {
  return checkTerms(options, { leaseMs: client.settings.leaseMs, waitMs: undefined });
}

/**
 * Look now, whenever a change is told, and now and then all the same, until it is there or the caller leaves: by timeout,
 * which is a value, or by its signal or the client's end, which are errors. A store that is away may come back in time.
 */
export async function lookUntil<R>(
  client: Client,
  terms: Pick<Terms, "waitMs" | "signal">,
  lookout: Lookout<R>,
): Promise<R | NotAcquired> {
  const { name } = lookout;
  client.assertOpen(`waiting for "${name}"`);
  terms.signal?.throwIfAborted();
  const { clock } = client;
  const startedAt = clock.now();
  const exit = new Cancellation(client, terms);
  const left = new Promise<null>((resolve) => (exit.onCancel = () => resolve(null)));
  let changed = false;
  let rouse = (): void => {};
  const wake = (): void => {
    changed = true;
    rouse();
  };
  const id = client.chance.id();
  const listening: PushTarget = {
    claim: { name, id },
    pushed: wake,
    clockJumped: wake,
    close: async () => exit.cancel("closed"),
  };
  client.addPushTarget(id, listening);
  let unwatch = (): void => {};
  let failure: unknown = null;
  try {
    // Before the first look: what changes in between is told.
    unwatch = lookout.watch?.(wake) ?? unwatch;
    for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(POLL_MAX_MS, 2 * pollMs)) {
      changed = false;
      const looking = lookout.look().then(
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
      if (exit.cancelled || terms.waitMs === 0) return exit.outcome(name, { holder: undefined, failure }, waitedMs);
      if (changed) continue;
      const restMs = Math.max(1, Math.min(pollMs, lookout.nextMs?.() ?? Infinity));
      const rested = new Promise<void>((resolve) => (rouse = resolve));
      const timer = clock.after(restMs, rouse);
      await Promise.race([rested, left]);
      clock.cancel(timer);
    }
  } finally {
    unwatch();
    client.removePushTarget(id, listening);
    exit.dispose();
  }
}
