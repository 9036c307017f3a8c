// Beyond the common files of an engine: a part of the public API that only etcd has.

import { MisuseError } from "../../core/errors.js";
import { Hold } from "../../core/hold.js";
import { EtcdEngine } from "./engine.js";
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
 * passed on. For a hold that is over already it is never true.
 *
 * ```ts
 * await client.kv.txn({ compare: [whileHeld(hold)], success: [{ request_put: { key, value } }] });
 * ```
 */
export function whileHeld(hold: Hold): HeldCompare {
  const grant = Hold.grantOf(hold);
  const engine = grant?.client.engine;
  if (grant === undefined || !(engine instanceof EtcdEngine)) {
    throw new MisuseError(
      "whileHeld: this is no hold of a lock in etcd. Give the hold itself, of locks connected to etcd:// or to an etcdEngine; " +
        "for other stores there is holdfast/fence.",
    );
  }
  const { key, create_revision = 0 } = engine.heldCompare(grant.claim);
  return { key: Buffer.from(key), target: CREATE, result: EQUAL, create_revision: String(create_revision) };
}
