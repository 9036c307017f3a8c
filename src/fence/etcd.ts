import { InvalidOptionError, StaleTokenError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import { checkFenceOptions, checkToken, type FenceOptions, type FenceToken } from "./token.js";

export interface EtcdGuardOptions extends FenceOptions {
  /** Before the resource's name; `holdfast-fence/` unless said otherwise. */
  readonly prefix?: string;
}

/** Parts of a transaction of yours, as gRPC clients made from etcd's own description take them. etcd 3.3 or later. */
export type EtcdGuard = {
  /** True if the resource has seen no newer floor. */
  readonly compare: EtcdCompare[];
  /** To be done with your own writes: the fence rises to the floor. Alone, without a compare, this is what `raise` is. */
  readonly success: readonly EtcdOperation[];
  /** Throws `StaleTokenError` unless the transaction succeeded. With compares of your own, check those first. */
  readonly check: (succeeded: boolean) => void;
};

export type EtcdCompare = {
  readonly key: Buffer;
  readonly range_end: Buffer;
  readonly target: typeof CREATE;
  readonly result: typeof EQUAL;
  readonly create_revision: "0";
};

export type EtcdOperation =
  | { readonly request_delete_range: { readonly key: Buffer; readonly range_end: Buffer } }
  | { readonly request_put: { readonly key: Buffer; readonly value: Buffer } };

/** Enums of etcd's description, as numbers: their names are spelt differently by different clients. */
const CREATE = 1;
const EQUAL = 0;

/** Numbers that sort as text: sixteen digits hold every safe integer. */
const DIGITS = 16;
/** What sorts right behind the digits. */
const BEHIND = ":";

/**
 * The fence as the name of a key, because etcd can compare "nothing stands in this range", but no values of a key that is not there:
 * `prefix/resource/0000001763237000`. The highest such key counts; lower ones are removed as it rises.
 *
 * ```ts
 * const { compare, success, check } = etcdGuard("invoice 42", hold);
 * const { succeeded } = await kv.txn({ compare, success: [...success, { request_put: { key, value } }] });
 * check(succeeded);
 * ```
 */
export function etcdGuard(resource: string, given: FenceToken, options: EtcdGuardOptions = {}): EtcdGuard {
  checkFenceOptions(options, ["prefix"]);
  const { prefix = "holdfast-fence/" } = options;
  const { token, floor, live } = checkToken(given, options);
  if (live !== undefined) {
    throw new InvalidOptionError("token", "its hold lists all live tokens", 'a hold without fence: "exact"');
  }
  // Escaped: a name with a slash must not reach into another's range.
  const base = `${prefix}${encodeURIComponent(checkName(resource))}/`;
  const at = (number: number): Buffer => Buffer.from(base + String(number).padStart(DIGITS, "0"));
  return {
    compare: [
      {
        key: at(token + 1),
        range_end: Buffer.from(base + BEHIND),
        target: CREATE,
        result: EQUAL,
        create_revision: "0",
      },
    ],
    success: [
      { request_delete_range: { key: at(0), range_end: at(floor) } },
      { request_put: { key: at(floor), value: Buffer.alloc(0) } },
    ],
    check: (succeeded) => {
      if (!succeeded) throw new StaleTokenError(resource, token);
    },
  };
}
