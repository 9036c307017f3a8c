import { EngineRefusedError } from "../../core/errors.js";
import { EtcdError, STATUS } from "./driver.js";

/** What etcd answers when asking again will not help, by a part of its message, and what to do about it. */
const REFUSALS: readonly (readonly [RegExp, string])[] = [
  [/authentication failed|user name not found/, "Check the user and the password."],
  [/user name is empty/, "Give a user and a password: etcd://user:password@host."],
  [/authentication is not enabled/, "This etcd asks for no user: leave it out, or run etcdctl auth enable."],
  [/permission denied/, "Give the user's role readwrite on everything that starts with the prefix."],
  [/too many operations in txn request/, "Start etcd with --max-txn-ops of 128, its default, or more."],
  [/request is too large/, "Start etcd with --max-request-bytes of 1572864, its default, or more."],
  [
    /database space exceeded/,
    "etcd's quota is used up: compact, defragment and disarm the alarm, or raise --quota-backend-bytes.",
  ],
  [/corrupt/, "etcd found its data corrupt on some member; see etcdctl alarm list."],
];

/** The same by status alone: said by what stands before etcd, or by what is not etcd. */
const BY_STATUS = new Map<number, string>([
  [STATUS.UNIMPLEMENTED, "Check that it is etcd that answers at this address, of version 3.4 or later."],
  [STATUS.PERMISSION_DENIED, "Whoever stands before etcd forbids it; its user needs readwrite on the prefix, too."],
  [STATUS.UNAUTHENTICATED, "Check the user and the password, and what stands before etcd."],
]);

/** A refusal for good as `EngineRefusedError`; anything else as it is, which says "not known, ask again". */
export function translated(cause: unknown): unknown {
  if (!(cause instanceof EtcdError)) return cause;
  // Of what etcd says itself only that is meant: a token that was spent is asked for anew.
  const byStatus = cause.message.startsWith("etcdserver:") ? undefined : BY_STATUS.get(cause.status);
  const advice = REFUSALS.find(([what]) => what.test(cause.message))?.[1] ?? byStatus;
  return advice === undefined ? cause : new EngineRefusedError("etcd", advice, cause);
}
