import { type ChildProcess, execFile } from "node:child_process";
import { resolve } from "node:path";
import { afterAll, expect, test } from "vitest";
import type { Results } from "../../lab/results.js";
import { ENGINES } from "../../lab/rigs.js";

const LAB = resolve(import.meta.dirname, "../../lab");
/** All of them at once, each with servers of its own: only what hangs runs into this. */
const LIMIT = { timeout: 900_000 };

const started = new Set<ChildProcess>();
// One that ran into its limit is not left behind, with servers and all.
afterAll(() => started.forEach((running) => running.kill("SIGKILL")));

/** The lab as a process of its own: a server that is started beside must not hold up its wires. */
function lab(...words: readonly string[]): Promise<Results["cells"]> {
  const program = ["--import", `${LAB}/lib/typescript.mjs`, `${LAB}/main.ts`, "--json", ...words];
  return new Promise((fulfil, reject) => {
    const running = execFile(process.execPath, program, { maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      // It ends with 1 when a cell is not as expected, which some tests here want to see.
      if (error !== null && (error.code !== 1 || stdout === "")) reject(new Error(stderr, { cause: error }));
      else fulfil((JSON.parse(stdout) as Results).cells);
    });
    started.add(running);
  });
}

// The short version: `npm run lab` has every fault.
test.concurrent.each(ENGINES.map(({ name }) => name))(
  "the lab, %s: a holder that is killed, paused or not answered",
  LIMIT,
  async (name) => {
    const cells = await lab(name, "kill", "pause", "late-renewals");
    expect(cells.map(({ fault, outcome, wrong }) => ({ fault, outcome, wrong }))).toEqual([
      { fault: "kill", outcome: "freed", wrong: [] },
      { fault: "pause", outcome: "late write", wrong: [] },
      { fault: "late-renewals", outcome: "passed on", wrong: [] },
    ]);
  },
);

test.concurrent("without tokens the stale write is accepted, and the lab says so", LIMIT, async () => {
  const [cell] = await lab("redis", "pause", "--broken", "tokens");
  expect(cell).toMatchObject({ fault: "pause", ok: false, findings: { fencedRefused: 0 } });
  expect(cell?.wrong.join("\n")).toMatch(/stale writes were accepted/);
});

test.concurrent(
  "pitfall 7: a deadline that counts from the answer makes two holders of a late grant, and of nothing else here",
  LIMIT,
  async () => {
    const [kill, late] = await lab("redis", "kill", "late-grant", "--broken", "deadline");
    expect(kill).toMatchObject({ fault: "kill", ok: true });
    expect(late).toMatchObject({ fault: "late-grant", ok: false, outcome: "two holders", expected: "not taken" });
  },
);
