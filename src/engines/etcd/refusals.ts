import { EngineRefusedError } from "../../core/errors.js";
import { EtcdError, STATUS } from "./client.js";

/** What etcd answers when asking again will not help, by a part of its message, and what to do about it. */
const REFUSALS: readonly (readonly [RegExp, string])[] = [
  [/authentication failed|user name not found/, "Check the user and the password."],
  [/user name is empty/, "Give a user and a password: etcd://user:password@host."],
  [/authentication is not enabled/, "This etcd asks for no user: leave it out, or run etcdctl auth enable."],
  [/permission denied/, "Give the user's role readwrite on everything that starts with the prefix."],
  [
    /database space exceeded/,
    "etcd's quota is used up: compact, defragment and disarm the alarm, or raise --quota-backend-bytes.",
  ],
  [/corrupt/, "etcd found its data corrupt on some member; see etcdctl alarm list."],
];

/** A refusal for good as `EngineRefusedError`; anything else as it is, which says "not known, ask again". */
export function translated(cause: unknown): unknown {
  if (!(cause instanceof EtcdError)) return cause;
  const advice =
    cause.status === STATUS.UNIMPLEMENTED
      ? "Check that it is etcd that answers at this address, of version 3.4 or later."
      : REFUSALS.find(([what]) => what.test(cause.message))?.[1];
  return advice === undefined ? cause : new EngineRefusedError("etcd", advice, cause);
}
