import type { Engine, RenewAnswer, Tombstone } from "./engine.js";
import { type LossReason, MisuseError, UnsupportedError } from "./errors.js";
import type { Relay } from "./local-hand-over.js";

/** `held` and `jeopardy` alternate; `released` and `lost` are final. */
export type HoldState = "held" | "jeopardy" | "released" | "lost";

/** What the store said last, counted from the sending of that request, and how the claim is to be released. */
export type Lease = {
  readonly leftMs: number;
  readonly sentAt: number;
  readonly tombstone: Tombstone;
  /** Of the claim, where the hold has a later one out of those that the claim keeps for itself. */
  readonly storeToken?: number;
  /** Those of this client that held before it, when the store may not know yet that they let go. */
  readonly relay: Relay | null;
};

/** What a renewal that did not keep the hold says about its end. */
export function lossReason(answer: RenewAnswer | undefined): LossReason {
  return answer?.kind === "gone" && answer.revoked === true ? "revoked" : "gone";
}

/** Another process, or another thread, cannot keep what lives by a session. */
export function assertByLease({ kind, guarantees }: Engine, missing: string): void {
  if (guarantees.crashRelease !== "session") return;
  throw new UnsupportedError(kind, missing, "Use an engine whose holds live by lease.");
}

/** Some things cannot be done to a hold that others share. */
export function assertAlone(holds: number, name: string, doing: string): void {
  if (holds <= 1) return;
  throw new MisuseError(
    `"${name}" was re-entered and is still held inside; ${doing} it when those holds are released.`,
  );
}

/** Whether a grant is renewed, and for how long. */
export type RenewTerms = { readonly renew: boolean; readonly maxHoldMs: number | undefined };
