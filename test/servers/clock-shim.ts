import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { programsOf } from "./packages.js";

/** A clock for one server process that a test can move. */
export type MovableClock = { readonly env: Readonly<Record<string, string>>; moveTo(offsetSeconds: number): void };

export function movableClock(): MovableClock {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-clock-"));
  // Some servers run as a user of their own.
  chmodSync(folder, 0o755);
  const [library, file] = [join(folder, "shim.so"), join(folder, "offset")];
  const source = join(import.meta.dirname, "clock-shim.c");
  execFileSync(programsOf("GCC").gcc ?? "", ["-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"]);
  const moveTo = (offsetSeconds: number): void => writeFileSync(file, String(offsetSeconds));
  moveTo(0);
  return { env: { LD_PRELOAD: library, CLOCK_OFFSET_FILE: file }, moveTo };
}
