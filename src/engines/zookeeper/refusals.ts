import { EngineRefusedError } from "../../core/errors.js";
import { CODE, ZooKeeperError } from "./client.js";

/** What a server answers when asking again will not help, and what to do about it. */
const ADVICE: Readonly<Record<number, string>> = {
  [CODE.noAuth]: "Give the client the rights listed in docs/engines/zookeeper.md, or another base path.",
  [CODE.authFailed]: "Check the user and the password.",
  [CODE.tooLarge]: "A server takes a megabyte at a time, unless told otherwise: keep less in it.",
  [CODE.invalidAcl]: "Check the acl option; the scheme auth needs a user and a password.",
  [CODE.unimplemented]: "Use a ZooKeeper server of version 3.5.3 or later.",
  [CODE.noChildrenForEphemerals]: "The base path is somebody's ephemeral node; choose another.",
};

export function isRefused(error: unknown): boolean {
  return error instanceof ZooKeeperError && error.code in ADVICE;
}

/** Everything else means "not known, ask again". */
export function refused(error: unknown): unknown {
  const advice = error instanceof ZooKeeperError ? ADVICE[error.code] : undefined;
  return advice === undefined ? error : new EngineRefusedError("zookeeper", advice, error);
}
