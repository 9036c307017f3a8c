import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { expect } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");
const FOLDER = resolve(ROOT, "examples");

export type Ended = { readonly code: number | null; readonly stdout: string; readonly stderr: string };

/** As `npm run example -- …` does it. */
export function run(...words: string[]): Promise<Ended> {
  const child = spawn(process.execPath, [resolve(FOLDER, "run.mjs"), ...words], { cwd: ROOT, timeout: 240_000 });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (text: Buffer) => (stdout += text.toString()));
  child.stderr.on("data", (text: Buffer) => (stderr += text.toString()));
  return new Promise((fulfil) => child.on("close", (code) => fulfil({ code, stdout, stderr })));
}

/** What must hold held, or did not; nothing else went wrong, and there is nothing that only a terminal understands. */
export function expectVerdict({ code, stdout, stderr }: Ended, holds: boolean): void {
  expect({ code, stderr, stdout }).toMatchObject({ code: holds ? 0 : 1, stderr: "" });
  expect(stdout.trimEnd().split("\n").at(-1)).toBe(holds ? "as it must be" : "broken");
  expect(stdout).not.toContain("\u001B");
}

/** Those whose processes are a fleet, one of which is killed. */
export const FLEETS = [
  "leader",
  "cron-once",
  "device",
  "two-services",
  "shop-http",
  "user-session",
  "recursive-menu",
  "mkdir-once",
  "ten-workers",
  "paused-writer",
];
