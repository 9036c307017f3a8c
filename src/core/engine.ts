import type { Cells } from "./cells.js";
import type { Guarantees } from "./guarantees.js";
import type { InspectFilter, NameState, Owner, Standing } from "./inspect.js";
import type { ServerInfo } from "./server-info.js";
import type { Unlisten } from "./unlisten.js";

/**
 * The contract: everything a store must do for Holdfast. One question is asked of it — may I take `units` of
 * `capacity` under this `name`, in order of arrival? — and every recipe is numbers put into that question.
 *
 * A call that rejects has an *unknown* outcome and is sent again; a `HoldfastError` other than `EngineUnavailableError`
 * says that the store refused for good and did nothing. Every call settles within a bounded time.
 */
export interface Engine extends AsyncDisposable {
  readonly kind: string;
  readonly guarantees: Guarantees;
  /** The store may round a lease up to this; the local deadline keeps what was asked. */
  readonly leaseMinMs: number;
  /** The client library repeats on its own what it sent before: then every release leaves a tombstone. */
  readonly resends?: boolean;
  readonly reserves?: boolean;
  /** Ask. Until it is answered it may be sent again: the same id never takes twice, and a copy is no heartbeat. */
  claim(request: ClaimRequest): Promise<ClaimAnswer>;
  /** Give back a hold or withdraw a waiting claim, the one way out. Grants what fits next in the same step. */
  release(request: ReleaseRequest): Promise<ReleaseAnswer>;
  /** Heartbeats for many claims in one round trip; also the poll and the confirmation. Creates nothing. */
  renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]>;
  /** Shrink a hold's units without letting go: a writer becomes a reader. Never grows. */
  resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone">;
  /** Change a busy name's capacity: grants what now fits, drops waiters that never will, leaves holders alone. */
  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer>;
  /** Pushes for the claims made through this engine: a hint, the store is the truth. */
  listen(listener: (event: EngineEvent) => void): Unlisten;
  /** Busy names, each as it was at one moment: recipes count parties and look for deadlocks by it. */
  inspect(filter?: InspectFilter): AsyncIterable<NameState>;
  /** Small versioned values; null where a store cannot keep them. `latches`: of those, where they are shared with other programs; open unless counted. */
  readonly cells: Cells | null;
  readonly latches?: Cells;
  /** Who answers behind this engine, read anew at each call: a quorum asks. Left out where a store cannot say. */
  serverInfo?(): Promise<ServerInfo>;
}

/** `id` is the claim's identity for ever: owner check, idempotency key, place in the queue. `chosen` by the program: then other engines may claim with it too. */
export type ClaimRef = { readonly name: string; readonly id: string };

export type ClaimRequest = ClaimRef & {
  readonly units: number;
  readonly capacity: number;
  readonly leaseMs: number;
  /** False: answer `busy` instead of `queued`. */
  readonly wait: boolean;
  readonly chosen?: true;
  readonly owner: Owner;
  readonly data?: string;
  /** Only the lease ends it: also where the store could see that the process which asked has died. */
  readonly leaseOnly?: boolean;
  /** Not renewed once it is granted: a store whose claims share a session gives it a lease of its own. */
  readonly fixed?: true;
  /** Ask for `live` in the grant. */
  readonly exact?: boolean;
  /** Mint no token below this (quorum). */
  readonly tokenAtLeast?: number;
  /** Keep this many tokens above the claim's own for it: the name's next one is higher. Where the engine `reserves`. */
  readonly reserve?: number;
};

/** `leaseMs` counts instead of the claim's own, from now; a lease end never moves back. `tokenAtLeast` raises the token of a hold for which nobody waits. */
export type RenewRequest = ClaimRef & { readonly leaseMs?: number; readonly tokenAtLeast?: number };

/** A tombstone makes late copies of the claim `gone`. `never`: sent once and answered. `if-missing`: sent once, answered or not. `to` went on already: no push for it. */
export type ReleaseRequest = ClaimRef & { readonly tombstone?: Tombstone; readonly to?: string };
export type Tombstone = "always" | "if-missing" | "never";
/** `leftMs` is computed by the store in the answering step; `floor` is the lowest live token then, `live` all of them. */
export type Granted = { readonly kind: "granted"; readonly leftMs: number } & Fence;
export type Fence = { readonly token: number; readonly floor: number; readonly live?: readonly number[] };

/** `token`: minted on arrival, to hold with later. `nextMs`: for the first waiter, until a blocking lease ends; null for the others. */
export type Queued = { readonly kind: "queued"; readonly token: number; readonly nextMs: number | null } & Ahead;
/** `ahead`, told on arrival alone: the live claim directly before this one, if it is the same engine's. `holder`: the first of all. `leftMs`: its place is sure for less than a waiter's lease. */
export type Ahead = { readonly ahead?: string; readonly holder?: Owner; readonly leftMs?: number };
/** `revoked`, to a renewal or a release: its tombstone is there, so somebody else released it. Claims are told `gone` alone. */
export type Gone = { readonly kind: "gone"; readonly revoked?: true };
export type ReleaseAnswer = "released" | "gone" | "revoked";
export type Busy = { readonly kind: "busy"; readonly why?: () => Error } & Partial<Pick<Queued, "nextMs" | "holder">>;
/** The busy name has another capacity than was said. */
export type Mismatch = { readonly kind: "mismatch"; readonly capacity: number };
/** A known id is answered before capacities are compared. What `busy` knows beside the holder is told by `why`: a quorum's votes. */
export type ClaimAnswer = Granted | Queued | Gone | Busy | Mismatch;
/** `set` also when it was so already, and for an idle name, which has no capacity. */
export type CapacityAnswer = { readonly kind: "set" } | Mismatch;
/** `unknown`: could not be learned, although others' fates were. */
export type RenewAnswer = Granted | Queued | Gone | { readonly kind: "unknown"; readonly cause: unknown };

/** `wake` asks for a poll: of one claim, or of all when it names none (after a reconnect). A push has no `leftMs`: nothing to count it from. */
export type EngineEvent =
  | (ClaimRef & Fence & { readonly kind: "granted" })
  | (ClaimRef & { readonly kind: "lost" })
  | { readonly kind: "wake"; readonly name?: string; readonly id?: string }
  | (ClaimRef & { readonly kind: "bare-majority" } & Standing)
  | { readonly kind: "warning"; readonly message: string };
