import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Signals } from "../../src/cli/signals.js";
import { supervise } from "../../src/cli/supervise.js";
import { Watchdog } from "../../src/cli/watchdog.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { until } from "../servers/process.js";

const KILL_AFTER_MS = 5_000;

function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX]/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

test("what does not end at SIGTERM when the lock is lost is killed when its time is over, and not before", async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-supervise-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const said = (name: string): string => {
    try {
      return readFileSync(join(folder, name), "utf8").trim();
    } catch {
      return "";
    }
  };
  // The command and what it started both hear SIGTERM, say so, and go on.
  const deaf = (who: string): string =>
    `trap 'echo told > ${folder}/${who}-told' TERM; echo $$ > ${folder}/${who}; while :; do sleep 0.02; done`;
  const inner = join(folder, "inner.sh");
  const script = `cat > ${inner} <<'END'\n${deaf("inner")}\nEND\nsh ${inner} & ${deaf("outer")}`;

  const clock = new FakeClock();
  const watchdog = new Watchdog();
  onTestFinished(() => watchdog.stop());
  const lost = new AbortController();
  const held = { name: "a", token: 1, signal: lost.signal, throwIfLost: () => lost.signal.throwIfAborted() };
  const signals = { passTo: () => {} } as unknown as Signals;
  const ended = supervise(["sh", "-c", script], held, { clock, watchdog, signals, killAfterMs: KILL_AFTER_MS });
  let over = false;
  void ended.then(() => (over = true));
  await until("both run", () => said("outer") !== "" && said("inner") !== "");
  const pids = [Number(said("outer")), Number(said("inner"))];

  lost.abort(new Error("taken away"));
  await until("both were told", () => said("outer-told") !== "" && said("inner-told") !== "");
  await clock.advance(KILL_AFTER_MS - 1);
  expect(pids.map(isAlive)).toEqual([true, true]);
  expect(over).toBe(false);
  await clock.advance(1);
  expect(await ended).toMatchObject({ code: null, signal: "SIGKILL", lost: { message: "taken away" } });
  await until("all of it is gone", () => !pids.some(isAlive));
});
