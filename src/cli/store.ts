import { checkLabel } from "../core/checks.js";
import { Client } from "../core/client.js";
import { SystemChance, SystemClock } from "../core/clock.js";
import type { Engine } from "../core/engine.js";
import { EngineUnavailableError } from "../core/errors.js";
import { CALL_TIMEOUT_DEFAULT_MS, CLAIMS_DEFAULT, LEASE_DEFAULT_MS, WAITERS_DEFAULT } from "../core/limits.js";
import { abortablePause } from "./abortable-pause.js";
import { type Given, text, UsageError } from "./command.js";
import { printError } from "./print-error.js";
import { keepSecret } from "./secrets.js";

export type Store = { readonly client: Client; readonly close: () => Promise<void> };

export type StoreOptions = {
  readonly label?: string | undefined;
  /** The process with which the claims end, where the store can see processes. */
  readonly endsWithPid?: number;
  /** Try again while the store does not answer: it may be starting, or have as many connections as it takes. */
  readonly retry?: Retry;
};

type Retry = { readonly waitMs: number | undefined; readonly signal: AbortSignal; readonly json: boolean };

/** The store that the command line names. */
export async function openStore(given: Given, options: StoreOptions = {}): Promise<Store> {
  return openUrl(urlOf(given), options);
}

export function urlOf(given: Given): string | undefined {
  return text(given, "url") ?? (process.env.HOLDFAST_URL || undefined);
}

async function openUrl(url: string | undefined, options: StoreOptions = {}): Promise<Store> {
  keepSecret(url);
  const { label, endsWithPid, retry } = options;
  const owner = checkLabel(label);
  const open = (): Promise<Engine> => openEngine(url, endsWithPid);
  const engine = retry === undefined ? await open() : await retryOpen(open, retry);
  const settings = {
    leaseMs: LEASE_DEFAULT_MS,
    callTimeoutMs: CALL_TIMEOUT_DEFAULT_MS,
    tokenBase: 0,
    maxWaiters: WAITERS_DEFAULT,
    maxClaims: CLAIMS_DEFAULT,
    label: owner,
  };
  const client = new Client(engine, new SystemClock(), new SystemChance(), settings);
  return {
    client,
    async close() {
      await client.close();
      await engine[Symbol.asyncDispose]();
    },
  };
}

async function openEngine(url: string | undefined, endsWithPid: number | undefined): Promise<Engine> {
  if (url === undefined || /^sqlite:/i.test(url)) {
    // Not by way of `connect`, which loads what a short command does not need.
    const { openSqlite } = await import("../engines/sqlite/index.js");
    const { ThisMachine } = await import("../engines/sqlite/machine.js");
    return openSqlite(url, { machine: new ThisMachine(endsWithPid) });
  }
  if (/^memory:/i.test(url)) {
    throw new UsageError("memory: is shared with no other process; leave the URL out to use a file of this user");
  }
  const connect = await import("../connect.js");
  return connect.openTarget(url);
}

const RETRY_MS = 1_000;

/** For as long as the lock would be waited for. The first failure is printed, so that nobody waits for a misspelt host in silence. */
async function retryOpen(open: () => Promise<Engine>, { waitMs = Infinity, signal, json }: Retry): Promise<Engine> {
  const [clock, chance] = [new SystemClock(), new SystemChance()];
  const until = clock.now() + waitMs;
  for (let tries = 1; ; tries += 1) {
    try {
      return await open();
    } catch (error) {
      const delayMs = RETRY_MS * (0.1 + chance.fraction());
      if (!(error instanceof EngineUnavailableError) || clock.now() + delayMs >= until) throw error;
      if (tries === 1) printError(error, json, "It is tried again.");
      await abortablePause(clock, delayMs, signal);
      signal.throwIfAborted();
    }
  }
}
