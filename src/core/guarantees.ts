/** What a program can read and demand; what cannot be read off the server counts as not guaranteed. */
export type Guarantees = {
  readonly exclusion:
    | "consensus"
    | "quorum-with-clocks"
    | "single-server"
    | "until-failover"
    | "one-machine"
    | "one-process";
  readonly token: "monotonic" | "monotonic-if-clocks" | "none";
  /** A quorum keeps the order of arrival as long as the member that keeps its queue answers. */
  readonly order: "fifo" | "fifo-while-one-member-answers" | "none";
  readonly wake: "push" | "poll";
  readonly crashRelease: "lease" | "session" | "at-once";
  readonly survivesRestart: boolean;
};
