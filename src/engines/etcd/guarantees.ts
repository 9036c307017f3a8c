import type { Guarantees } from "../../core/guarantees.js";

export function guaranteesOf(voters: number): Guarantees {
  return {
    exclusion: voters > 1 ? "consensus" : "single-server",
    token: "monotonic",
    order: "fifo",
    wake: "push",
    crashRelease: "lease",
    survivesRestart: true,
  };
}
