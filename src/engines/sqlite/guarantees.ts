import type { Guarantees } from "../../core/guarantees.js";

export const GUARANTEES: Guarantees = {
  exclusion: "one-machine",
  token: "monotonic",
  order: "fifo",
  wake: "push",
  // The end of a process is noticed within moments, but not across PID namespaces, so it is not guaranteed.
  crashRelease: "lease",
  survivesRestart: true,
};
