import { InvalidNameError } from "./errors.js";
import { NAME_MAX_BYTES } from "./limits.js";

const ALLOWED = `1 to ${NAME_MAX_BYTES} bytes of UTF-8 without control characters`;

// The two ranges of Unicode's control characters (Cc).
// oxlint-disable-next-line no-control-regex
export const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** The same rule for every engine, so that a program can change its URL without changing its names. */
export function checkName(name: unknown): string {
  if (typeof name !== "string")
    throw new InvalidNameError(`it is ${name === null ? "null" : `a ${typeof name}`}, not a string`, ALLOWED);
  if (name.length === 0) throw new InvalidNameError("it is empty", ALLOWED);
  if (!name.isWellFormed())
    throw new InvalidNameError("it holds half a surrogate pair, which UTF-8 cannot carry", ALLOWED);
  if (CONTROL.test(name)) throw new InvalidNameError("it holds a control character", ALLOWED);
  // A UTF-16 unit is at most three bytes: short names need no count.
  const bytes = name.length * 3 <= NAME_MAX_BYTES ? 0 : Buffer.byteLength(name);
  if (bytes > NAME_MAX_BYTES) throw new InvalidNameError(`it has ${bytes} bytes`, ALLOWED);
  return name;
}
