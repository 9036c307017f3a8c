import { createHash } from "node:crypto";

/** Longer than any id in use, and short enough to be kept by the thousand. */
const KEY_MAX = 255;

/** A string of RFC 8941, as the draft has it. */
const QUOTED = /^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])+)"$/;
/** Bare, as most clients send it. What came twice is joined by a comma. */
const BARE = /^[\x21\x23-\x2b\x2d-\x7e]+$/;

/** The key that an `Idempotency-Key` header names; undefined when that is no key. */
export function parseKey(header: string): string | undefined {
  if (header.length > 2 * KEY_MAX) return undefined;
  const text = header.trim();
  const quoted = QUOTED.exec(text)?.[1]?.replace(/\\(["\\])/g, "$1");
  const key = quoted ?? (BARE.test(text) ? text : undefined);
  return key !== undefined && key.length <= KEY_MAX ? key : undefined;
}

/** Short, whatever is in it, and of the same parts alone: lengths keep them apart. */
export function digest(...parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash("sha256");
  for (const part of parts) {
    const bytes = typeof part === "string" ? Buffer.from(part) : part;
    hash.update(`${bytes.length}:`).update(bytes);
  }
  return hash.digest("base64url");
}
