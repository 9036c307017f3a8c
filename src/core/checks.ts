import { InvalidOptionError } from "./errors.js";
import { LABEL_MAX_BYTES, LEASE_MAX_MS, LEASE_MIN_MS, RETRY_MIN_MS, TIMER_MAX_MS } from "./limits.js";
import { CONTROL } from "./name.js";

export const ID_ALLOWED = /^[A-Za-z0-9_-]{22,64}$/;

export function checkLease(leaseMs: number, option = "leaseMs"): number {
  return Math.round(checkNumber(option, leaseMs, LEASE_MIN_MS, LEASE_MAX_MS, "milliseconds"));
}

export function checkDetection(afterMs: number | undefined): number | undefined {
  return afterMs === undefined
    ? undefined
    : checkNumber("detectDeadlockAfterMs", afterMs, RETRY_MIN_MS, TIMER_MAX_MS, "milliseconds");
}

export function checkLabel(label: string | undefined): string | undefined {
  if (label === undefined) return undefined;
  const fits = typeof label === "string" && label.isWellFormed() && Buffer.byteLength(label) <= LABEL_MAX_BYTES;
  if (!fits || CONTROL.test(label)) {
    const allowed = `a string of at most ${LABEL_MAX_BYTES} bytes without control characters`;
    throw new InvalidOptionError("label", shown(label), allowed);
  }
  return label;
}

export function checkNumber(option: string, value: number, least: number, most: number, unit: string): number {
  if (typeof value !== "number" || !(value >= least && value <= most)) {
    throw new InvalidOptionError(option, shown(value), `${least} to ${most} ${unit}`);
  }
  return value;
}

export function checkCount(option: string, value: number, least: number, most: number): number {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    throw new InvalidOptionError(option, shown(value), `a whole number from ${least} to ${most}`);
  }
  return value;
}

export function checkFunction(option: string, value: unknown): void {
  if (typeof value !== "function") throw new InvalidOptionError(option, shown(value), "a function");
}

/** The callback stands last, behind options that may be left out. */
export function optionsAndCallback<Options, Callback extends (...args: never[]) => unknown>(
  name: string,
  first: unknown,
  second: Callback | undefined,
): readonly [Options | undefined, Callback] {
  const alone = second === undefined && typeof first === "function";
  const callback = (alone ? first : second) as Callback;
  checkFunction(name, callback);
  return [alone ? undefined : (first as Options), callback];
}

export function checkObject(options: unknown): void {
  if (typeof options !== "object" || options === null)
    throw new InvalidOptionError("options", shown(options), "an object");
}

/** A misspelt option must not be ignored in silence. */
export function checkKnown(options: object, known: readonly string[]): void {
  checkObject(options);
  for (const key of Object.keys(options)) {
    if (!known.includes(key)) throw new InvalidOptionError(key, "there is no such option", known.join(", "));
  }
}

export function shown(value: unknown): string {
  if (typeof value === "string") return `it is ${JSON.stringify(value.slice(0, 80))}`;
  if (typeof value === "number" || typeof value === "boolean" || value === null) return `it is ${String(value)}`;
  return `it is of type ${typeof value}`;
}
