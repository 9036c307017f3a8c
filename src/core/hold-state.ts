import type { RenewAnswer } from "./engine.js";
import type { LossReason } from "./errors.js";

/** `held` and `jeopardy` alternate; `released` and `lost` are final. */
export type HoldState = "held" | "jeopardy" | "released" | "lost";

/** What a renewal that did not keep the hold says about its end. */
export function lossReason(answer: RenewAnswer | undefined): LossReason {
  return answer?.kind === "gone" && answer.revoked === true ? "revoked" : "gone";
}
