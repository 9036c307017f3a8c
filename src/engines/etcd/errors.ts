import { EngineRefusedError, isRefusal } from "../../core/errors.js";

/** gRPC's status codes, those that matter here. */
export const STATUS = {
  CANCELLED: 1,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

/** What a call failed with: never the library's own error, whose metadata may carry a token. */
export class EtcdError extends Error {
  override readonly name = "EtcdError";

  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Its revision went back, or another cluster answers: one answer says so for all that is asked from then on. */
export class EtcdReplaced extends Error {
  override readonly name = "EtcdReplaced";
}

/** The server never saw this lease, or it has ended: the call did nothing. */
export function isLeaseGone(cause: unknown): boolean {
  return cause instanceof EtcdError && cause.message.includes("requested lease not found");
}

/** The quota is used up: nothing may be written, everything may be removed. */
export function isOutOfSpace(cause: unknown): cause is EtcdError {
  return cause instanceof EtcdError && cause.message.includes("database space exceeded");
}

/** What etcd answers when asking again will not help, by a part of its message, and what to do about it. */
const REFUSED: readonly (readonly [RegExp, string])[] = [
  [/authentication failed|user name not found/, "Check the user and the password."],
  [/user name is empty/, "Give a user and a password: etcd://user:password@host."],
  [/authentication is not enabled/, "This etcd asks for no user: leave it out, or run etcdctl auth enable."],
  [
    /permission denied/,
    "Give the user's role readwrite on everything that starts with the prefix: docs/rights/etcd.sh.",
  ],
  [/too many operations in txn request/, "Start etcd with --max-txn-ops of 128, its default, or more."],
  [/request is too large/, "Start etcd with --max-request-bytes of 1572864, its default, or more."],
  [
    /database space exceeded/,
    "etcd's quota is used up: compact, defragment and disarm the alarm, or raise --quota-backend-bytes.",
  ],
  [/corrupt/, "etcd found its data corrupt on some member; see etcdctl alarm list."],
];

const REPLACED =
  "It was probably restored from a backup: old tokens would come again. Connect again with a tokenBase above them.";

/** The same by status alone: said by a proxy before etcd, or by what is not etcd. */
const BY_STATUS = new Map<number, string>([
  [STATUS.UNIMPLEMENTED, "Check that it is etcd that answers at this address, of version 3.4 or later."],
  [STATUS.PERMISSION_DENIED, "A proxy before etcd forbids it; its user needs readwrite on the prefix, too."],
  [STATUS.UNAUTHENTICATED, "Check the user and the password, and the proxy before etcd, if there is one."],
]);

/** The store refused, and a late copy of this very call would be refused too. */
export function didNothing(cause: unknown): boolean {
  return isLeaseGone(cause) || isRefusal(translated(cause));
}

/**
 * A refusal for good as `EngineRefusedError`; anything else says "not known, ask again". Requests share calls, readings and
 * leases, and each of them is told by an error of its own what these failed with.
 */
export function translated(cause: unknown): unknown {
  if (cause instanceof EtcdReplaced) return new EngineRefusedError("etcd", REPLACED, cause);
  if (!(cause instanceof EtcdError)) return cause;
  // Of what etcd says itself only that is meant: a token that was spent is asked for anew.
  const byStatus = cause.message.startsWith("etcdserver:") ? undefined : BY_STATUS.get(cause.status);
  const advice = REFUSED.find(([what]) => what.test(cause.message))?.[1] ?? byStatus;
  if (advice !== undefined) return new EngineRefusedError("etcd", advice, cause);
  return new EtcdError(cause.status, cause.message);
}
