import { checkCount, checkKnown, checkNumber, shown } from "../../core/checks.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../../core/clock.js";
import type { Engine } from "../../core/engine.js";
import { InvalidOptionError } from "../../core/errors.js";
import { LEASE_MAX_MS } from "../../core/limits.js";

/** An engine, or one with a name for messages, or how to open it: then it is closed with the quorum, and one that is away is tried again. */
export type QuorumMember =
  | Engine
  | { readonly name: string; readonly engine: Engine }
  | { readonly name: string; readonly open: () => Promise<Engine> };

export interface QuorumOptions {
  /**
   * How long one member may take before the vote goes on without it; 50 ms unless said otherwise, and never more than a
   * quarter of the lease.
   */
  readonly memberTimeoutMs?: number;
  /** What is taken off every lease for clocks that run at different speeds: this share of it (0.01) … */
  readonly driftRatio?: number;
  /** … and this much (2 ms). */
  readonly driftMs?: number;
  /**
   * A member that started less than this ago and keeps nothing over a restart may not vote. Give at least the longest lease
   * that any program takes; 0 (off) unless said otherwise. Costs a second question to each such member that says yes.
   */
  readonly restartGuardMs?: number;
  /**
   * How many members more than a quorum must grant a claim; 0 unless said otherwise. So many of them may lose it afterwards (a clock
   * that jumps, a restart without data) although others could not be reached, and as many fewer may be away.
   */
  readonly spareVotes?: number;
  /** Time and chance, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
}

export const OPTIONS = [
  "memberTimeoutMs",
  "driftRatio",
  "driftMs",
  "restartGuardMs",
  "spareVotes",
  "clock",
  "chance",
] as const satisfies (keyof QuorumOptions)[];

export type Settings = Required<QuorumOptions>;

export function checkOptions(options: QuorumOptions): Settings {
  checkKnown(options, OPTIONS);
  const { memberTimeoutMs = 50, driftRatio = 0.01, driftMs = 2, restartGuardMs = 0, spareVotes = 0 } = options;
  return {
    // Twice as long, and a little more for many heartbeats at once, must still fit into a timer.
    memberTimeoutMs: checkNumber("memberTimeoutMs", memberTimeoutMs, 1, LEASE_MAX_MS, "milliseconds"),
    driftRatio: checkNumber("driftRatio", driftRatio, 0, 0.5, "of the lease"),
    driftMs: checkNumber("driftMs", driftMs, 0, 10_000, "milliseconds"),
    restartGuardMs: checkNumber("restartGuardMs", restartGuardMs, 0, LEASE_MAX_MS, "milliseconds"),
    spareVotes: checkCount("spareVotes", spareVotes, 0, MEMBERS_MAX),
    clock: options.clock ?? new SystemClock(),
    chance: options.chance ?? new SystemChance(),
  };
}

export type NamedMember = { readonly name: string; readonly source: Engine | (() => Promise<Engine>) };

const MEMBERS_MAX = 99;

export function checkMembers(members: readonly QuorumMember[]): readonly NamedMember[] {
  const allowed = `a list of 2 to ${MEMBERS_MAX} engines; three or five independent servers are the right number`;
  if (!Array.isArray(members)) throw new InvalidOptionError("members", shown(members), allowed);
  if (members.length < 2 || members.length > MEMBERS_MAX) {
    const problem =
      members.length === 1 ? "one member is no quorum: use its engine directly" : `${members.length} of them`;
    throw new InvalidOptionError("members", problem, allowed);
  }
  return members.map((member: QuorumMember, n): NamedMember => {
    if (typeof member === "object" && member !== null) {
      if ("claim" in member) return { name: `${member.kind} ${n + 1}`, source: member };
      if ("engine" in member) return { name: member.name, source: member.engine };
      if (typeof member.open === "function") return { name: member.name, source: member.open };
    }
    throw new InvalidOptionError(`members[${n}]`, shown(member), "an engine, { name, engine } or { name, open }");
  });
}
