/**
 * What the server sends to the page, as JSON. Times are milliseconds of the server's monotonic clock: `at` of each message says
 * what it shows now. Claims have small numbers of the view's own (`key`): whoever knows a claim's id could end it.
 */

type OwnerView = {
  readonly client: number;
  readonly host: string;
  readonly pid: number;
  readonly label?: string;
};

export type ClaimView = OwnerView & {
  readonly key: number;
  readonly units: number;
  /** Since when it holds or waits; with `atLeast`, it did so when the view saw it first. */
  readonly since: number;
  readonly atLeast?: true;
  /** When its lease ends unless it is renewed; null: with its session or process. */
  readonly until: number | null;
  /** The most that was seen of its lease. */
  readonly leaseMs: number | null;
};

export type HolderView = ClaimView & { readonly token: number };

/** `flow` and `holds`: the flow of control that waits, and the claims it holds meanwhile, where the claim says so. */
export type WaiterView = ClaimView & { readonly flow?: number; readonly holds?: readonly number[] };

/** `holders` and `waiters` are the first of so many. */
export type NameView = {
  readonly name: string;
  readonly capacity: number;
  readonly used: number;
  readonly lastToken: number;
  readonly holders: readonly HolderView[];
  readonly waiters: readonly WaiterView[];
  readonly holderCount: number;
  readonly waiterCount: number;
  /** Since when the one waits that waits longest. */
  readonly waitingSince: number | null;
};

/** A heartbeat came: the claim's key, its new end, and its lease. */
export type LeaseView = readonly [key: number, until: number | null, leaseMs: number | null];

export type StoreView = {
  readonly engine: string;
  readonly guarantees: Readonly<Record<string, string | boolean>>;
  readonly server: Readonly<Record<string, string | number | boolean>> | null;
  /** How long a small read took; null: not answered. */
  readonly probeMs: number | null;
};

export type StatusView = {
  readonly answering: boolean;
  /** Since when. */
  readonly since: number;
  /** The code of the last error. */
  readonly code?: string;
  /** How long the last reading took, and the pause between readings. */
  readonly tookMs: number | null;
  readonly everyMs: number;
  /** How many names are shown, and whether the store has more. */
  readonly shown: number;
  readonly more: boolean;
};

export type Deadlocks = readonly (readonly number[])[] | null;

export type Update = {
  readonly at: number;
  readonly status: StatusView;
  /** Forget everything: what follows is the whole picture, until `complete`. */
  readonly reset?: true;
  readonly complete?: true;
  readonly set?: readonly NameView[];
  readonly gone?: readonly string[];
  readonly leases?: readonly LeaseView[];
  /** The waiting claims of each deadlock; null: too many wait to look for one. */
  readonly deadlocks?: Deadlocks;
  readonly store?: StoreView;
  /** With the first of all: what this viewer may do. */
  readonly mayRelease?: boolean;
};
