import type { Guarantees } from "../../src/core/guarantees.js";
import type { Circumstances } from "../lib/results.js";

/** What a measure gave for one contestant: figures, or why there are none. */
type Cell<Figures> = Figures | { readonly not: string } | { readonly failed: string };

type Time = { readonly ms: number; readonly rounds: readonly number[] };
type Hot = {
  readonly perSecond: number;
  readonly jain: number;
  readonly luckiest: number;
  readonly unluckiest: number;
  readonly p50: number;
  readonly p99: number;
  readonly clientUs: number;
  readonly serverUs?: number;
};
export type Figures = {
  readonly pair: Time & { readonly roundTrips?: number };
  readonly flight: { readonly perSecond: number };
  readonly handOver: Time & { readonly worst: number };
  /** Once the code is warm; and before that. */
  readonly hot: Hot & { readonly cold: Hot };
  readonly waiting: {
    readonly lines: readonly number[];
    readonly perWaiter: readonly number[];
    readonly perHandOver: readonly number[];
  };
  readonly crash: Time & { readonly least: number; readonly most: number };
  readonly heap: { readonly bytes: number };
  readonly herd: {
    readonly sessions: readonly number[];
    readonly messages: readonly number[];
    readonly ms: readonly number[];
  };
};
export type Measure = keyof Figures;
export type Contestant = { readonly [Name in Measure]?: Cell<Figures[Name]> };

type Engine = {
  readonly guarantees: Guarantees;
  readonly roundTrip?: Time & { readonly name: string };
  readonly contestants: Readonly<Record<string, Contestant>>;
};

type Run = {
  readonly date: string;
  readonly command: string;
  readonly commit: string;
  /** Of the machine when it began: how many wanted a core. */
  readonly load: number;
  readonly minutes: number;
  readonly seed: number;
  readonly repeat: number;
};

/** lab/results/comparison.json */
export type Results = {
  readonly circumstances: Circumstances;
  readonly peers: Readonly<Record<string, string>>;
  readonly sizes: Readonly<Record<string, number | readonly number[]>>;
  readonly runs: readonly Run[];
  readonly engines: Readonly<Record<string, Engine>>;
};

/** The figures of a cell, or the words that stand in their place. */
export function figuresOf<Name extends Measure>(contestant: Contestant, measure: Name): Figures[Name] | string {
  const cell = contestant[measure] as Cell<Figures[Name]> | undefined;
  if (cell === undefined) return "not run";
  if ("not" in cell) return cell.not;
  if ("failed" in cell) return `broke down: ${cell.failed}`;
  return cell;
}

const three = (value: number): string => String(Number(value.toPrecision(3)));

export function time(ms: number): string {
  if (ms < 0.9995) return `${three(ms * 1000)} µs`;
  return ms < 999.5 ? `${three(ms)} ms` : `${three(ms / 1000)} s`;
}

export const count = (value: number): string => Number(value.toPrecision(3)).toLocaleString("en");
/** A number of requests: of which a fraction may be all there is. */
export function few(value: number): string {
  if (value >= 9.95) return count(value);
  return value > 0 && value < 0.095 ? value.toFixed(2) : value.toFixed(1);
}
export const bytes = (value: number): string => (value < 10_000 ? `${count(value)} B` : `${three(value / 1024)} KiB`);
export const share = (value: number): string => `${value.toFixed(2)} ×`;
