import { type ChildProcess, execFile } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, expect, onTestFinished, test } from "vitest";
import type { Result } from "../../lab/soak/soak.js";

const LAB = resolve(import.meta.dirname, "../../lab");
/** Only what hangs runs into this. */
const LIMIT = { timeout: 300_000 };

const started = new Set<ChildProcess>();
// One that ran into its limit is not left behind; its processes and servers end with it.
afterAll(() => started.forEach((running) => running.kill("SIGKILL")));

type Ended = { readonly code: number; readonly stdout: string; readonly stderr: string };

function soak(...words: readonly string[]): Promise<Ended> {
  const program = ["--import", `${LAB}/lib/typescript.mjs`, `${LAB}/soak/main.ts`, ...words];
  return new Promise((fulfil) => {
    const running = execFile(process.execPath, program, { maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      started.delete(running);
      fulfil({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
    started.add(running);
  });
}

type Told = Result & { readonly replay: string };

const resultsOf = ({ stdout, stderr }: Ended): Told[] => {
  expect(stderr).toBe("");
  return JSON.parse(stdout) as Told[];
};

// A few seconds of it: `npm run soak` goes on for as long as it is told to.
test.concurrent("a soak on memory, SQLite and Redis breaks no rule", LIMIT, async () => {
  const ended = await soak("--seconds", "2", "--seed", "4", "--json", "memory", "sqlite", "redis");
  const results = resultsOf(ended);
  expect(results.map(({ store, violations }) => ({ store, violations }))).toEqual(
    ["memory", "sqlite", "redis"].map((store) => ({ store, violations: [] })),
  );
  expect(ended.code).toBe(0);
  for (const { counts, end } of results) {
    expect(counts.holds).toBeGreaterThan(0);
    expect(end?.process.heap).toBeGreaterThan(0);
  }
});

test.concurrent("a store that grants twice is noticed, with what replays it and the history", LIMIT, async () => {
  const out = mkdtempSync(join(tmpdir(), "holdfast-soak-test-"));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  const ended = await soak("--seconds", "2", "--seed", "4", "--json", "--broken", "twice", "--out", out, "memory");
  const [result] = resultsOf(ended);
  expect(result?.violations.map(({ rule }) => rule)).toContain("exclusion");
  expect(ended.code).toBe(1);
  expect(result?.replay).toBe("npm run soak -- --seed 4 --seconds 2 --workers 4 --broken twice memory");
  expect(result?.saved.filter((path) => existsSync(path))).not.toEqual([]);
});

test.concurrent("wrong words are refused with what is allowed", LIMIT, async () => {
  const wrong = await Promise.all([
    soak("redsi"),
    soak("--minutes", "soon"),
    soak("--minutes", "1", "--seconds", "1"),
    soak("--nothing"),
  ]);
  expect(wrong.map(({ code }) => code)).toEqual([2, 2, 2, 2]);
  const [engine, minutes, both, option] = wrong.map(({ stderr }) => stderr);
  expect(engine).toMatch(/there is no engine redsi; choose from memory, sqlite, redis/);
  expect(minutes).toMatch(/--minutes is a number from 0.05 to 1440, not "soon"/);
  expect(both).toMatch(/not both/);
  expect(option).toMatch(/--nothing/);
});
