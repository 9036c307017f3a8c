import type { Client } from "./client.js";
import { EngineUnavailableError, HoldfastError } from "./errors.js";
import type { NameState } from "./inspect.js";
import { LEASE_DEFAULT_MS } from "./limits.js";

/** What `locks.health()` found. */
export interface Health {
  /** The store takes, shows, renews and gives back a lock, and these locks neither drain nor are closed. */
  readonly healthy: boolean;
  /** How long that took, or until it failed. */
  readonly tookMs: number;
  /** By how much the store's clock is ahead of this program's, or behind (below 0). Left out where its tokens tell no time. */
  readonly clockAheadMs?: number;
  /** Why it is not healthy, and what to do. */
  readonly error?: HoldfastError;
}

/** Tokens of most stores are the time of the request in µs; those of ZooKeeper and etcd are small counts. */
const YEAR_MS = 365 * 24 * 60 * 60 * 1000;

/** The whole life of a claim, within the time limit of one call. Never rejects. */
export async function checkHealth(client: Client): Promise<Health> {
  const { clock, engine, owner, settings } = client;
  const startedAt = clock.now();
  const until = startedAt + settings.callTimeoutMs;
  const tookMs = (): number => clock.now() - startedAt;
  const ask = async <T>(doing: string, call: () => Promise<T>): Promise<T> =>
    (await client.callUntilAnswered(doing, call, { until })).answer;
  // The same name each time: a store may remember the last token of every name for a while.
  const name = `holdfast-health/${owner.host}:${owner.pid}`;
  const ref = { name, id: client.chance.id() };
  const claim = { ...ref, units: 1, capacity: 1, leaseMs: LEASE_DEFAULT_MS, wait: false, owner };
  try {
    client.assertTaking("checking the store");
    const before = clock.wallMs();
    const answer = await ask("taking a lock", () => engine.claim(claim));
    const after = clock.wallMs();
    const granted = answer.kind === "granted";
    const state = await ask(`inspecting "${name}"`, () => firstOf(engine.inspect({ name })));
    if (granted && (state?.holders.length ?? 0) === 0) throw new Error("a lock that was taken is not shown");
    await ask("renewing a lock", () => engine.renew([ref]));
    // Another client of this process checks, or the last check failed before it gave back what it took: what has to be allowed was tried.
    if (!granted) return { healthy: true, tookMs: tookMs() };
    await client.release(ref, "always", Math.max(1, until - clock.now()));
    const clockAheadMs = aheadMs(answer.token / 1000, before, after);
    return { healthy: true, tookMs: tookMs(), ...(clockAheadMs === null ? {} : { clockAheadMs }) };
  } catch (cause) {
    const error =
      cause instanceof HoldfastError ? cause : new EngineUnavailableError(engine.kind, "checking it", cause);
    return { healthy: false, tookMs: tookMs(), error };
  }
}

/** What a token that was minted between the two says about the store's clock; null where it tells no time. */
function aheadMs(mintedAtMs: number, before: number, after: number): number | null {
  if (Math.abs(after - mintedAtMs) > YEAR_MS) return null;
  return mintedAtMs < before ? mintedAtMs - before : Math.max(0, mintedAtMs - after);
}

async function firstOf(states: AsyncIterable<NameState>): Promise<NameState | undefined> {
  for await (const state of states) return state;
  return undefined;
}
