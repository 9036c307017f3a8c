import type { Guarantees } from "../../core/guarantees.js";

export const GUARANTEES: Guarantees = {
  exclusion: "one-process",
  token: "monotonic",
  order: "fifo",
  wake: "push",
  crashRelease: "at-once",
  survivesRestart: false,
};
