import { AsyncLocalStorage } from "node:async_hooks";
import type { Client } from "./client.js";
import { MisuseError, UpgradeDeadlockError } from "./errors.js";
import type { Grant } from "./grant.js";
import { Hold } from "./hold.js";
import type { Ask, Terms } from "./options.js";

/** The holds of the callback that is running, the innermost first. */
const held = new AsyncLocalStorage<readonly Grant[]>();

/** All of them in one step: a striped lock has thousands. */
export function runHolding<T>(holds: readonly Hold[], run: () => T): T {
  const inner = holds.map((hold) => Hold.grantOf(hold)).filter((grant) => grant !== undefined);
  const outer = (held.getStore() ?? []).filter((one) => !isOver(one));
  return held.run([...inner.toReversed(), ...outer], run);
}

/** What the flow of control that calls this holds through this client. */
export function heldHere(client: Client): readonly Grant[] {
  return (held.getStore() ?? []).filter((one) => one.client === client && one.ended === null);
}

/**
 * The grant that this flow of control already has and may take again, or null. Re-entry touches the store not at all; it
 * checks that the grant is alive and keeps its token (`pitfalls.md` 9).
 */
export function reentered(client: Client, ask: Ask, { within, id, signal }: Terms): Grant | null {
  const grant = within === undefined ? inContext(client, ask.name) : named(client, ask.name, within);
  if (grant === null || grant.claim.capacity !== ask.capacity) return null;
  grant.throwIfLost();
  signal?.throwIfAborted();
  if (id !== undefined) throw new MisuseError(`"${ask.name}" is taken again inside its own hold, which keeps its id.`);
  // Two readers that both want to write would each wait for the other to stop reading (`pitfalls.md` 29).
  if (ask.units > grant.units) throw new UpgradeDeadlockError(ask.name);
  return grant;
}

function inContext(client: Client, name: string): Grant | null {
  const grant = held.getStore()?.find((one) => one.client === client && one.claim.name === name);
  return grant === undefined || isOver(grant) ? null : grant;
}

/**
 * Work that outlives its callback finds a hold that nobody has any more: it takes the lock like anybody else. A hold that was
 * lost while its callback runs is not over: whoever works under it is told when it is taken again.
 */
function isOver(grant: Grant): boolean {
  return !grant.inUse || grant.ended === "released";
}

function named(client: Client, name: string, within: Hold): Grant {
  const grant = Hold.grantOf(within);
  if (grant === undefined || grant.client !== client) {
    throw new MisuseError(`"within" must be a hold taken through the same locks object, to take "${name}" again.`);
  }
  if (grant.claim.name !== name) {
    throw new MisuseError(
      `"within" is a hold of "${grant.claim.name}", not of "${name}": only the same lock can be taken again.`,
    );
  }
  within.throwIfLost();
  return grant;
}
