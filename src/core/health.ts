import type { Client } from "./client.js";
import type { ClaimRef } from "./engine.js";
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
  const { clock, engine, settings } = client;
  const startedAt = clock.now();
  const tookMs = (): number => clock.now() - startedAt;
  try {
    client.assertTaking("checking the store");
    const until = startedAt + settings.callTimeoutMs;
    const taken = (await takeAndGiveBack(client, until)) ?? (await takeAndGiveBack(client, until));
    if (taken === null) throw new Error("a lock that was given back is still held");
    return { healthy: true, tookMs: tookMs(), ...taken };
  } catch (cause) {
    const error =
      cause instanceof HoldfastError ? cause : new EngineUnavailableError(engine.kind, "checking it", cause);
    return { healthy: false, tookMs: tookMs(), error };
  }
}

/** Null when it was busy by what the last check of this client left there, which is given back: nothing was written for this one. */
async function takeAndGiveBack(client: Client, until: number): Promise<Pick<Health, "clockAheadMs"> | null> {
  const { clock, engine, owner } = client;
  const ask = async <T>(doing: string, call: () => Promise<T>): Promise<T> =>
    (await client.callUntilAnswered(doing, call, { until })).answer;
  const release = (ref: ClaimRef): Promise<unknown> => client.release(ref, "always", Math.max(1, until - clock.now()));
  // The same name each time: a store may remember the last token of every name for a while.
  const name = `holdfast-health/${owner.host}:${owner.pid}`;
  const ref = { name, id: client.chance.id() };
  const claim = { ...ref, units: 1, capacity: 1, leaseMs: LEASE_DEFAULT_MS, wait: false, owner };
  const before = clock.wallMs();
  const answer = await ask("taking a lock", () => engine.claim(claim));
  const after = clock.wallMs();
  const granted = answer.kind === "granted";
  const state = await ask(`inspecting "${name}"`, () => firstOf(engine.inspect({ name })));
  if (granted && (state?.holders.length ?? 0) === 0) throw new Error("a lock that was taken is not shown");
  await ask("renewing a lock", () => engine.renew([ref]));
  if (!granted) {
    const left = state?.holders.find((holder) => holder.owner.client === owner.client);
    // Another client of this process checks: what has to be allowed was tried.
    if (left === undefined) return {};
    await release({ name, id: left.id });
    return null;
  }
  await release(ref);
  const clockAheadMs = aheadMs(answer.token / 1000, before, after);
  return clockAheadMs === null ? {} : { clockAheadMs };
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
