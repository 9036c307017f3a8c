import type { Guarantees } from "../core/guarantees.js";

/** What the guarantees of a lock table depend on, as read from its server. */
export type Safety = {
  /** A commit is on the disk when it is answered. */
  readonly durable: boolean;
  /** Another server may take over without all that was committed. */
  readonly failoverForgets: boolean;
};

/** A guarantee for each thing that was read from the server; what was not read is not guaranteed. */
export function guaranteesOf({ durable, failoverForgets }: Safety, wake: "push" | "poll"): Guarantees {
  // A crash without durable commits, and a replica that is promoted without them, forget the same: the last grants.
  const safe = durable && !failoverForgets;
  return {
    exclusion: safe ? "single-server" : "until-failover",
    token: safe ? "monotonic" : "monotonic-if-clocks",
    order: "fifo",
    wake,
    crashRelease: "lease",
    survivesRestart: durable,
  };
}
