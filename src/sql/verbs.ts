import type { Cell, CellAnswer } from "../core/cells.js";
import type { CapacityAnswer, ClaimAnswer, ReleaseAnswer, RenewAnswer } from "../core/engine.js";
import type { NameState } from "../core/inspect.js";

/** What a parameter may be: only data, never a part of a statement. */
export type Value = Scalar | readonly (readonly Scalar[])[];
type Scalar = string | number | boolean | null;

/** A lease or a token that is not given is 0. */
type Heartbeat = readonly [name: string, id: string, leaseMs: number, atLeast: number];

/**
 * `terms`: the number of a claim's, from 1; 0 for a release, -1 for one that leaves a tombstone, -2 for one whose successor is
 * released by the next request: a run of releases is one step.
 */
export type BatchRequest = readonly [name: string, id: string, terms: number, to: string | null];
/** What a claim asks for, beside its name and id. */
export type Terms = readonly [
  units: number,
  capacity: number,
  leaseMs: number,
  waiterMs: number,
  wait: boolean,
  owner: string,
  data: string | null,
  exact: boolean,
  atLeast: number,
  reserve: number,
];

/** `next`: the name to go on after, null at the end. */
export type Page = { readonly states: readonly NameState[]; readonly next: string | null };
export type Swept = { readonly next: string | null; readonly rows: number; readonly full: boolean };

type Ref = { name: string; id: string };

/** The functions of the lock table that the engine calls: parameters by name, and what they answer. Text in JSON is JSON. */
type Verbs = {
  claim: {
    in: Ref & { units: number; capacity: number; leaseMs: number; waiterMs: number; wait: boolean; owner: string } & {
      data: string | null;
      exact: boolean;
      atLeast: number;
      reserve: number;
      client: string;
      listens: boolean;
    };
    out: ClaimAnswer;
  };
  release: {
    in: Ref & { tombstone: boolean; tombstoneMs: number; to: string | null; client: string };
    out: ReleaseAnswer;
  };
  batch: {
    in: {
      requests: readonly BatchRequest[];
      terms: readonly Terms[];
      tombstoneMs: number;
      client: string;
      listens: boolean;
    };
    out: readonly (ClaimAnswer | ReleaseAnswer)[];
  };
  renew: { in: { heartbeats: readonly Heartbeat[]; waiterMaxMs: number }; out: readonly RenewAnswer[] };
  resize: { in: Ref & { units: number }; out: "resized" | "refused" | "gone" };
  setCapacity: { in: { name: string; from: number; to: number }; out: CapacityAnswer };
  inspect: { in: { name: string | null; prefix: string; after: string; limit: number }; out: Page };
  sweep: { in: { after: string; limit: number; idleMs: number }; out: Swept };
  readCell: { in: { name: string }; out: Cell };
  writeCell: {
    in: { name: string; operation: string; expected: number; value: string | null; keepMs: number };
    out: CellAnswer;
  };
};
export type Verb = keyof Verbs;
export type ParametersOf<V extends Verb> = Readonly<Verbs[V]["in"]>;
export type AnswerOf<V extends Verb> = Verbs[V]["out"];

/** What scripts/compile-sql.mjs makes: a parameter that a database lacks, or has beyond these, does not compile. */
export type Functions = {
  readonly [V in Verb]: { readonly name: string; readonly parameters: Readonly<Record<keyof Verbs[V]["in"], string>> };
};
export type Statements = Readonly<Record<"claim" | "release", string>>;
