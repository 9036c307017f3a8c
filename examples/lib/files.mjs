// The shared things that the examples protect: plain files.

import { appendFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** The lines of a file that is only ever added to. */
export const linesOf = (path) => (existsSync(path) ? readFileSync(path, "utf8").split("\n").slice(0, -1) : []);

export const addLine = (path, line) => appendFileSync(path, `${line}\n`);

export const readJson = (path, fallback) => (existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : fallback);

/** Old or new, never half of it, even when the process is killed in here. */
export function writeJson(path, value) {
  const fresh = `${path}.${process.pid}`;
  writeFileSync(fresh, JSON.stringify(value));
  renameSync(fresh, path);
}

/** What is there more than once. */
export const doubles = (values) => [...new Set(values.filter((value, n) => values.indexOf(value) !== n))];

/** Look until it is so, for a bounded time. */
export async function until(what, isSo, withinMs = 30_000) {
  for (const end = Date.now() + withinMs; !isSo(); ) {
    if (Date.now() > end) throw new Error(`not within ${withinMs / 1000} s: ${what}`);
    await sleep(5);
  }
}
