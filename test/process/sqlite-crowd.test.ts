import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Program } from "./program.js";

const PROGRAM = resolve(import.meta.dirname, "sqlite-program.mjs");
const PROCESSES = 200;

// Alone, because it takes all watches of the user: every other client on SQLite would have to poll its mailbox meanwhile.
test("more processes than a user may have watches all get their turn", { timeout: 400_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-crowd-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const [file, log] = [join(folder, "locks.db"), join(folder, "log")];
  writeFileSync(log, "");
  const children: Program[] = [];
  const start = (): Program =>
    new Program(process.execPath, [PROGRAM, "together", file, "many", JSON.stringify({ log })]);
  for (let n = 0; n < PROCESSES; n += 20) {
    // Starting is what takes long on a small machine; then all are there at once.
    const some = Array.from({ length: 20 }, start);
    for (const child of some) await child.line(0);
    children.push(...some);
  }
  const watched = await Promise.all(children.map((child) => child.line<{ watched: boolean }>(0)));
  for (const child of children) child.say("go");
  const done = await Promise.all(children.map((child) => child.line<{ unavailable: string[] }>(1)));
  for (const child of children) expect(await child.exited).toBe(0);
  const woken = watched.filter((said) => said.watched).length;
  const unanswered = done.flatMap(({ unavailable }) => unavailable).length;
  console.log(`${PROCESSES} processes: ${woken} watched, ${PROCESSES - woken} looked, ${unanswered} calls unanswered`);
  expect(new Set(readFileSync(log, "utf8").trimEnd().split("\n")).size).toBe(PROCESSES);
  expect(readdirSync(`${file}-mail`)).toEqual([]);
});
