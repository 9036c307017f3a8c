import { EngineRefusedError } from "../../core/errors.js";
import { ZooKeeperError } from "./client.js";
import { adviceOn } from "./codes.js";

/** Whether asking again will not help, and nobody has to see to it that it is done after all. */
export function isRefused(error: unknown, holder = false): boolean {
  return error instanceof ZooKeeperError && adviceOn(error.code, holder) !== undefined;
}

/** Everything else means "not known, ask again". `holder`: see `adviceOn`. */
export function refused(error: unknown, holder = false): unknown {
  const advice = error instanceof ZooKeeperError ? adviceOn(error.code, holder) : undefined;
  return advice === undefined ? error : new EngineRefusedError("zookeeper", advice, error);
}
