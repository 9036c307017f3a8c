import type { Client } from "../core/client.js";
import {
  AcquireTimeoutError,
  isRefusal,
  LockLostError,
  OutcomeUnknownError,
  TooManyClaimsError,
  TooManyWaitersError,
} from "../core/errors.js";
import type { Term } from "./term.js";

/** Where to stand for election, and until when. */
type Candidacy = {
  readonly name: string;
  readonly campaign: () => Promise<Term>;
  readonly signal: AbortSignal | undefined;
};

/** Campaign, run, step down, and again, until the signal or something that will not be otherwise next time. */
export async function leadAgain(
  client: Client,
  { name, campaign, signal }: Candidacy,
  run: (term: Term) => unknown,
): Promise<never> {
  const pause = async (failures: number): Promise<void> => {
    signal?.throwIfAborted();
    client.assertTaking(`leading "${name}"`);
    await client.sleep(client.retryDelayMs(failures));
    signal?.throwIfAborted();
    client.assertTaking(`leading "${name}"`);
  };
  for (let failures = 0; ; ) {
    let term: Term;
    try {
      term = await campaign();
    } catch (error) {
      signal?.throwIfAborted();
      if (isFinal(error)) throw error;
      await pause((failures += 1));
      continue;
    }
    const startedAt = client.clock.now();
    try {
      await run(term);
    } catch (cause) {
      const message = `the leader of "${name}" failed`;
      client.events.emit("warning", () => ({ name, message, cause }));
    }
    // A term that was lost has been told by its signal; one that could not be given back ends with its lease.
    await term.resign().catch(() => {});
    failures = client.clock.now() - startedAt < client.settings.leaseMs ? failures + 1 : 0;
    await pause(failures);
  }
}

/** A store that is away, a term that was too short, an election that is busy with `waitMs`: may be otherwise next time. */
const PASSING = [AcquireTimeoutError, LockLostError, OutcomeUnknownError, TooManyClaimsError, TooManyWaitersError];

function isFinal(error: unknown): boolean {
  return isRefusal(error) && !PASSING.some((kind) => error instanceof kind);
}
