// A mutant: one edit of one file, with a name that lasts. Line numbers change with every line above, so the name is made of
// the file, the operator, the text of the line, and which of the equal ones it is.
import { createHash } from "node:crypto";

export function lineAt(text, at) {
  const start = text.lastIndexOf("\n", at - 1) + 1;
  const end = text.indexOf("\n", at);
  return { start, end: end === -1 ? text.length : end, number: text.slice(0, start).split("\n").length };
}

export const lineHash = (line) => createHash("sha256").update(line.trim()).digest("hex").slice(0, 8);

/** The id of each edit of a file, in order of their places. */
export function named(file, source, edits) {
  const counts = new Map();
  const seen = new Set();
  const mutants = [];
  for (const edit of [...edits].toSorted((a, b) => a.at - b.at || a.end - b.end)) {
    const same = `${edit.at} ${edit.end} ${edit.to}`;
    if (seen.has(same) || source.slice(edit.at, edit.end) === edit.to) continue;
    seen.add(same);
    const line = lineAt(source, edit.at);
    const hash = lineHash(source.slice(line.start, line.end));
    const key = `${file}:${edit.operator.replaceAll(" ", "-")}:${hash}`;
    const n = (counts.get(key) ?? 0) + 1;
    counts.set(key, n);
    mutants.push({ id: `${key}:${n}`, file, line: line.number, ...edit });
  }
  return mutants;
}

export const applied = (source, { at, end, to }) => source.slice(0, at) + to + source.slice(end);

/** A unified diff of what the mutant changes, with the lines around it. */
export function diffOf(source, mutant, around = 2) {
  const [old, now] = [source, applied(source, mutant)].map((text) => text.replace(/\n$/, "").split("\n"));
  let first = 0;
  while (first < old.length && old[first] === now[first]) first += 1;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - first && old.at(-1 - tail) === now.at(-1 - tail)) tail += 1;
  const [from, until] = [Math.max(0, first - around), Math.min(old.length, old.length - tail + around)];
  const changed = now.slice(first, now.length - tail);
  const rows = [
    ...old.slice(from, first).map((line) => ` ${line}`),
    ...old.slice(first, old.length - tail).map((line) => `-${line}`),
    ...changed.map((line) => `+${line}`),
    ...old.slice(old.length - tail, until).map((line) => ` ${line}`),
  ];
  const before = until - from;
  const after = before - (old.length - tail - first) + changed.length;
  return [
    `--- a/${mutant.file}`,
    `+++ b/${mutant.file}`,
    `@@ -${from + 1},${before} +${from + 1},${after} @@`,
    ...rows,
  ].join("\n");
}

/** A sample that the seed decides (mulberry32), in the order of the list or as drawn. */
export function sampled(list, count, seed, asDrawn = false) {
  let state = seed >>> 0;
  const fraction = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const chosen = list.map((one, n) => ({ one, n, by: fraction() })).toSorted((a, b) => a.by - b.by);
  const first = chosen.slice(0, count);
  return (asDrawn ? first : first.toSorted((a, b) => a.n - b.n)).map(({ one }) => one);
}
