import type { Engine } from "../../core/engine.js";
import type { Guarantees } from "../../core/guarantees.js";

/** Derived from those of the members that are here; of the others nothing is known. */
export function guaranteesOf(engines: readonly Engine[], members: number): Guarantees {
  const all = engines.map((engine) => engine.guarantees);
  const queues = all.filter(({ order }) => order !== "none");
  const ends = new Set(all.map(({ crashRelease }) => crashRelease));
  return {
    exclusion: "quorum-with-clocks",
    // A member may lose or forget its last token: then the clients' clocks keep the order.
    token: all.some(({ token }) => token === "none") ? "none" : "monotonic-if-clocks",
    order: queues.length === 0 ? "none" : "fifo-while-one-member-answers",
    wake: queues.length > 0 && queues.every(({ wake }) => wake === "push") ? "push" : "poll",
    crashRelease: ends.has("session") ? "session" : "lease",
    survivesRestart: all.length === members && all.every(({ survivesRestart }) => survivesRestart),
  };
}
