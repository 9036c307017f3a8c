import type { ClaimRequest, Engine, EngineEvent } from "../../src/core/engine.js";
import { EngineUnavailableError } from "../../src/core/errors.js";
import type { NameState } from "../../src/core/inspect.js";
import type { Locks } from "../../src/locks.js";
import { pause, until } from "../servers/process.js";

/** What the fault tests of several engines share. */

const owner = { client: "c", host: "h", pid: 1 };
let ids = 0;

export function claimOf(name: string, over: Partial<ClaimRequest> = {}): ClaimRequest {
  ids += 1;
  const id = `claim-${process.pid}-${String(ids).padStart(16, "0")}`;
  return { name, id, units: 1, capacity: 1, leaseMs: 10_000, wait: true, owner, ...over };
}

const TRIES = 5;

/** Opening may take as long as one call: where a test makes that short, a store on a busy machine may need another try. */
export async function inSomeTries<T>(open: () => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await open();
    } catch (error) {
      if (tried === TRIES || !(error instanceof EngineUnavailableError)) throw error;
    }
  }
}

export function listening(engine: Engine): EngineEvent[] {
  const events: EngineEvent[] = [];
  engine.listen((event) => events.push(event));
  return events;
}

export async function states(
  of: Pick<Locks, "inspect">,
  filter: { name?: string; prefix?: string } = {},
): Promise<NameState[]> {
  const all: NameState[] = [];
  for await (const state of of.inspect(filter)) all.push(state);
  return all;
}

/** How many claims wait for a name. */
export async function waiters(of: Pick<Locks, "inspect">, name: string): Promise<number> {
  return (await states(of, { name }))[0]?.waiters.length ?? 0;
}

/** Until the holds of a client were renewed so often, from now on. */
export async function renewed(locks: Pick<Locks, "on">, times: number): Promise<void> {
  let seen = 0;
  const stop = locks.on("renewed", () => (seen += 1));
  await until(`renewed ${times} times`, () => seen >= times, 60_000);
  stop();
}

/** A plain question to the same server, again and again: how busy the machine is. */
export function control(ask: () => Promise<unknown>): {
  /** The longest that one took which was under way since then, by `performance.now()`. */
  worstMs(since: number): number;
  stop(): Promise<void>;
} {
  const took: { readonly endedAt: number; readonly ms: number }[] = [];
  let askedAt = performance.now();
  const over = { now: false };
  const asking = (async () => {
    while (!over.now) {
      askedAt = performance.now();
      await pause(10);
      await ask();
      took.push({ endedAt: performance.now(), ms: performance.now() - askedAt });
    }
  })();
  return {
    worstMs: (since) =>
      Math.max(performance.now() - askedAt, ...took.filter(({ endedAt }) => endedAt >= since).map(({ ms }) => ms)),
    async stop() {
      over.now = true;
      await asking;
    },
  };
}
