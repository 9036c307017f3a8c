/**
 * What speaks to a terminal instead of being shown: control characters, line and paragraph separators, and format characters, which
 * turn text around or cannot be seen.
 */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Names and labels are data, and others chose them: on one line, and nothing in it may speak to the terminal. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, "\ufffd");
}

/** The same value for whoever reads JSON, and harmless on a terminal too. */
export function jsonText(value: unknown): string {
  const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(value).replace(UNPRINTABLE, (character) => character.split("").map(escaped).join(""));
}

/** A word as a POSIX shell reads it, for command lines that somebody may copy. */
export function shellWord(text: string): string {
  return /^[\w@+:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
