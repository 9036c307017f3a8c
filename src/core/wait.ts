import { Attempt } from "./attempt.js";
import { Cancellation, NotAcquired } from "./cancellation.js";
import type { Client } from "./client.js";
import { LockLostError } from "./errors.js";
import { Grant } from "./grant.js";
import type { Ask, Terms } from "./options.js";

/**
 * The only wait loop: ask until granted, until told that it is not our turn (`waitMs: 0`), or until the caller leaves.
 * Each round is a new claim with a new id: an id that ended is never used again.
 */
export async function acquire(client: Client, ask: Ask, terms: Terms): Promise<Grant | NotAcquired> {
  client.assertOpen(`acquiring "${ask.name}"`);
  terms.signal?.throwIfAborted();
  if (terms.id !== undefined) client.assertUnused(ask.name, terms.id);
  const startedAt = client.clock.now();
  const cancellation = new Cancellation(client, terms);
  try {
    let attempt: Attempt | null = null;
    for (let round = 1; ; round += 1) {
      if (client.closed) cancellation.cancel("closed");
      attempt = new Attempt(client, ask, terms, cancellation, round, attempt);
      const outcome = await attempt.run();
      const waitedMs = client.clock.now() - startedAt;
      if (outcome instanceof Grant) {
        const { name, id } = outcome.claim;
        client.events.emit("granted", () => ({ name, id, token: outcome.token, waitedMs }));
        // The process stood still since the grant: nobody works under it yet, so it is asked for again.
        const { ended } = outcome;
        const ranOut = ended instanceof LockLostError && ended.reason === "deadline";
        if (ranOut && terms.id === undefined && !client.closed) continue;
        // Whoever was told may have closed the client.
        outcome.throwIfLost();
        return outcome;
      }
      if (outcome === "busy") return new NotAcquired(attempt, 0);
      if (outcome === "left") return cancellation.outcome(ask.name, attempt, waitedMs);
    }
  } finally {
    cancellation.dispose();
  }
}
