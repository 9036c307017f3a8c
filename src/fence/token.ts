import { checkKnown, checkNumber, shown } from "../core/checks.js";
import { type Clock, SystemClock } from "../core/clock.js";
import { InvalidOptionError, InvalidTokenError } from "../core/errors.js";
import { EXACT_CAPACITY_MAX } from "../core/limits.js";

/**
 * What a writer shows to a resource: the token of an exclusive hold as a plain number, or a hold as it is. `floor` is the lowest
 * token that was live at its grant, so that those who hold permits at the same time do not shut each other out; `live` is
 * all of them, from a hold taken with `fence: "exact"`.
 */
export type FenceToken =
  | number
  | { readonly token: number; readonly floor?: number; readonly live?: readonly number[] | undefined };

export interface FenceOptions {
  /** Each token is accepted once, and all older ones never more. For exclusive holds: permits would shut each other out. */
  readonly strict?: boolean;
  /**
   * How far tokens may be ahead of this machine's clock; 24 h unless said otherwise. Most stores mint tokens from the time, in
   * microseconds, and a forged one from the far future would shut everybody out for ever. `Infinity` for tokens with a
   * `tokenBase`, or numbers of your own.
   */
  readonly aheadMs?: number;
  /** Time, for tests. */
  readonly clock?: Clock;
}

/** A token that may be shown: the resource accepts it if it is not below its fence, which then rises to `floor`. */
export type Shown = { readonly token: number; readonly floor: number; readonly live: readonly number[] | undefined };

/**
 * What keeps, for each resource, its fence: the lowest token still accepted. It rises with each accepted write to that
 * writer's floor, and never falls.
 */
export interface Fence {
  /** Rejects with `StaleTokenError` when the resource has seen a newer floor; otherwise remembers this one's. */
  accept(resource: string, token: FenceToken): Promise<void>;
  /** Shut out everybody older than this token, at once. */
  raise(resource: string, token: number): Promise<void>;
}

const FENCE_OPTIONS: readonly string[] = ["strict", "aheadMs", "clock"] satisfies (keyof FenceOptions)[];

const AHEAD_DEFAULT_MS = 24 * 60 * 60 * 1000;
const ALLOWED = "a whole number from 1 to 9007199254740990";
const systemClock = new SystemClock();

/** Checks what was shown, before anything is asked of a store. */
export function checkToken(given: FenceToken, options: FenceOptions = {}): Shown {
  const { strict = false, aheadMs = AHEAD_DEFAULT_MS, clock = systemClock } = options;
  if (typeof strict !== "boolean") throw new InvalidOptionError("strict", shown(strict), "true or false");
  checkNumber("aheadMs", aheadMs, 0, Infinity, "milliseconds");
  if (typeof given === "object" ? given === null : typeof given !== "number") {
    throw new InvalidTokenError("token", shown(given), "a number, or a hold");
  }
  const { token, floor = token, live } = typeof given === "number" ? { token: given } : given;
  const most = (clock.wallMs() + aheadMs) * 1000;
  checkNumeric("token", token);
  if (token > most) {
    const problem = `${token} is ahead of the clock by ${Math.round(token / 1000 - clock.wallMs())} ms`;
    throw new InvalidTokenError("token", problem, `at most ${aheadMs} ms ahead; give aheadMs for other tokens`);
  }
  checkNumeric("floor", floor);
  if (floor > token)
    throw new InvalidTokenError("floor", `${floor} is above the token ${token}`, "the token, or below");
  if (live !== undefined) checkLive(live, token);
  // Once accepted, a strict token is too old itself.
  return strict ? { token, floor: token + 1, live: undefined } : { token, floor, live };
}

/** The new fence that a `raise` asks for. */
export function checkRaise(token: number, options: FenceOptions = {}): number {
  if (typeof token !== "number") throw new InvalidTokenError("token", shown(token), ALLOWED);
  return checkToken(token, { ...options, strict: false }).floor;
}

export function checkFenceOptions(options: object, more: readonly string[] = []): void {
  checkKnown(options, [...FENCE_OPTIONS, ...more]);
}

/** Live tokens as one text with a separator around each, in which one of them is found by `,token,`. */
export function liveText(live: readonly number[]): string {
  return `,${live.join(",")},`;
}

function checkNumeric(part: string, value: unknown): void {
  // One below the largest safe integer: a strict fence stores the next number.
  if (!Number.isSafeInteger(value) || Number(value) < 1 || value === Number.MAX_SAFE_INTEGER) {
    throw new InvalidTokenError(part, shown(value), ALLOWED);
  }
}

function checkLive(live: unknown, token: number): void {
  if (!Array.isArray(live) || live.length > EXACT_CAPACITY_MAX || !live.includes(token)) {
    throw new InvalidTokenError(
      "live",
      "it is no list of live tokens",
      `up to ${EXACT_CAPACITY_MAX}, ${token} among them`,
    );
  }
  for (const one of live) checkNumeric("live", one);
}
