import type { Client } from "./client.js";
import type { HolderState } from "./inspect.js";

/** Take a hold from whoever has it, and tell of it. False: it had just been given back. */
export async function forceRelease(client: Client, name: string, holder: HolderState): Promise<boolean> {
  const { id, token, owner } = holder;
  // Not settled: a late copy of its claim must not come to life.
  const answer = await client.release({ name, id }, "always", client.settings.callTimeoutMs);
  if (answer !== "released") return false;
  client.events.emit("forceReleased", () => ({ name, id, token, holder: owner }));
  return true;
}
