import type { Claim, Engine, EngineEvent } from "../../src/core/engine.js";
import type { NameState } from "../../src/core/inspect.js";
import type { Locks } from "../../src/locks.js";

/** What the fault tests of several engines share. */

const owner = { client: "c", host: "h", pid: 1 };
let ids = 0;

export function claimOf(name: string, over: Partial<Claim> = {}): Claim {
  ids += 1;
  const id = `claim-${process.pid}-${String(ids).padStart(16, "0")}`;
  return { name, id, units: 1, capacity: 1, leaseMs: 10_000, wait: true, owner, ...over };
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
