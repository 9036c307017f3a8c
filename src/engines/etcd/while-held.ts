import { Keys } from "./keys.js";
import { checkOptions } from "./options.js";
import { CREATE, EQUAL } from "./requests.js";

/**
 * One compare of an etcd transaction, as gRPC clients made from etcd's own description take it: true while the hold lives.
 * Numbers for the enums, whose names are spelt differently by different clients.
 */
export type HeldCompare = {
  readonly key: Buffer;
  readonly target: typeof CREATE;
  readonly result: typeof EQUAL;
  readonly create_revision: string;
};

/**
 * "Only while I hold": put it into a transaction of your own, and etcd itself refuses the write of a holder whose lock has
 * passed on. Give the engine's `prefix` if it has another, and the `tokenBase` if the locks were connected with one.
 *
 * ```ts
 * await client.kv.txn({ compare: [whileHeld(hold)], success: [{ request_put: { key, value } }] });
 * ```
 */
export function whileHeld(
  hold: { readonly name: string; readonly id: string; readonly token: number },
  { prefix, tokenBase = 0 }: { readonly prefix?: string; readonly tokenBase?: number } = {},
): HeldCompare {
  const settings = checkOptions(prefix === undefined ? {} : { prefix });
  return {
    key: Buffer.from(new Keys(settings.prefix).claim(hold.name, hold.id)),
    target: CREATE,
    result: EQUAL,
    create_revision: String(hold.token - tokenBase),
  };
}
