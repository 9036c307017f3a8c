import type { Client } from "./client.js";
import type { ClaimRequest } from "./engine.js";
import type { Ask, Terms } from "./options.js";

/** Optional fields are left out, not undefined; nearly every claim has none, and all of those have one shape. */
export function claimOf(client: Client, ask: Ask, terms: Terms): ClaimRequest {
  const { label, exact, renew } = terms;
  const claim: Writable<ClaimRequest> = {
    name: ask.name,
    id: terms.id ?? client.newId(),
    units: ask.units,
    capacity: ask.capacity,
    leaseMs: terms.leaseMs,
    wait: terms.waitMs !== 0,
    owner: label === undefined ? client.owner : { ...client.owner, label },
  };
  if (ask.data !== undefined) claim.data = ask.data;
  if (ask.leaseOnly === true) claim.leaseOnly = true;
  if (ask.reserve !== undefined) claim.reserve = ask.reserve;
  if (exact) claim.exact = exact;
  if (!renew) claim.fixed = true;
  if (terms.id !== undefined) claim.chosen = true;
  return claim;
}

/** While it is being made. */
export type Writable<T> = { -readonly [Key in keyof T]: T[Key] };
