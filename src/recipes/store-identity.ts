import type { Client } from "../core/client.js";
import { SharedValue } from "./cell.js";

/** Reserved: where a store keeps its identity. */
const NAME = "holdfast:store";

/**
 * What tells one store from another, the same for every program that uses it. Not the URL, which may name one server in
 * many ways: the first who asks writes a random id into the store itself.
 */
export async function storeIdentity(client: Client): Promise<string> {
  const identity = new SharedValue<string>(client, "store", NAME);
  const { value } = await identity.update((known) => (known === null ? client.chance.id() : undefined));
  if (value === null) throw new Error("invariant: an identity was written and is not there");
  return value;
}
