import type { Proxy } from "../test/servers/proxy.js";
import type { Child } from "./child.js";
import type { EngineName, Need, Rig } from "./rigs.js";

/** What came of the holder's lock, as seen in the history. */
export type Outcome =
  /** The holder kept it, and the others waited until it was given back. */
  | "kept"
  /** The holder was told that it has lost it, and then another got it. */
  | "passed on"
  /** The holder was dead, and another got it. */
  | "freed"
  /** The store granted it, but too late: nobody took it for granted, and another got it. */
  | "not taken"
  /** Nobody believed wrongly, but a write that was under way arrived after the next holder's. The fenced resource refused it. */
  | "late write"
  /** Two believed to hold it at the same time. The fenced resource refused the older one. */
  | "two holders"
  /** Clients that had connected to the old store refused the new one; restarted with `tokenBase`, the others went on. */
  | "refused";

/** What is expected of a cell: an outcome, or why there is nothing to expect. */
export type Expected = Outcome | Blank;

/** Why a fault cannot exist on an engine, in two words and in full. */
export type Blank = { readonly short: string; readonly why: string };

/** What a fault has to work with. `holder` has the lock, the others wait for it. */
export type FaultContext = {
  readonly rig: Rig;
  readonly leaseMs: number;
  readonly holder: Child;
  readonly others: readonly Child[];
  /** A break is expected: whether the holder hears of the fault in time is luck, so it must not hear of it. */
  readonly breaks: boolean;
  /** The holder's own way to each server. */
  readonly holderWires: readonly Proxy[];
  /** Everybody's way to one server. */
  wiresTo(server: number): readonly Proxy[];
  /** The fault begins now: from here on time is counted. */
  readonly faultBegins: () => void;
  /** The others' programs are ended and started again, with these options besides. */
  readonly restartOthers: (options: object) => Promise<void>;
};

export type Fault = {
  readonly name: string;
  readonly title: string;
  /** What is done, in a sentence. */
  readonly what: string;
  readonly need: Need | ((engine: EngineName) => Need);
  /** The holder's lease, where the engine's shortest does not do. */
  readonly leaseMs?: number;
  /** The holder asks under the fault, not before it. */
  readonly asksUnderFault?: true;
  /** The holder's only server: it shares its fate. */
  readonly holderKnowsOnlyLeader?: true;
  /** Before the holder asks. */
  prepare?(context: FaultContext): void;
  /** Does it. The result undoes it, when the next holder has written and the old one has tried to. */
  run(context: FaultContext): Promise<() => Promise<unknown> | void>;
  readonly expected: Readonly<Record<EngineName, Expected>>;
};

/** What is not expected to differ, and what is. */
export const all = (
  outcome: Expected,
  but: Partial<Record<EngineName, Expected>> = {},
): Readonly<Record<EngineName, Expected>> => ({
  sqlite: outcome,
  redis: outcome,
  quorum: outcome,
  postgres: outcome,
  mariadb: outcome,
  zookeeper: outcome,
  etcd: outcome,
  ...but,
});

export const FILE = {
  short: "no server",
  why: "there is no server and no network: the store is a file, and each process reads and writes it itself",
};
export const ONE_SERVER = { short: "one server", why: "there is one server; its own clock is in the rows above" };
export const NO_LEADER = { short: "no leader", why: "there is no leader that the servers elect" };
export const NO_MEMBERS = { short: "no members", why: "there is one server, not several that decide together" };
export const MAJORITY = {
  short: "majority",
  why: "a write counts when a majority has it, and only a server that has it can lead: see the rows of the leader",
};
export const GO_CLOCK = {
  short: "monotonic clock",
  why: "etcd counts leases by the machine's monotonic clock, which no calendar moves; a static Go program cannot be given another",
};
export const REMOVED = {
  short: "refused",
  why: "the others refuse a member that lost its data until an operator removes it and adds a new one",
};
