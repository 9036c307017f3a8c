/** Why a hold ended before it was released. */
export type LossReason =
  /** No renewal was confirmed in time, or a fixed lease ran out. */
  | "deadline"
  /** The store does not know the claim any more. */
  | "gone"
  /** Somebody forced the release, or the session behind it ended. */
  | "revoked"
  /** It was held for `maxHoldMs`. */
  | "max-hold"
  /** Its client was closed, which gave it back. */
  | "closed";

export const LOSS_TEXT: Record<LossReason, string> = {
  deadline: "its lease may have ended: no renewal was confirmed in time",
  gone: "the store does not know it any more",
  revoked: "it was released by force, or its session ended",
  "max-hold": "it was held for maxHoldMs",
  closed: "its client was closed, which gave it back",
};
