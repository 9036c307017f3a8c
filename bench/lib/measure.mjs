// What the benchmarks share: interleaved rounds, medians, tables.

export function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The smallest that is not below this share of them. */
export function percentile(numbers, share) {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

/**
 * Run every candidate once per round, in turn, so that what slows the machine down slows all of them.
 * @template T
 * @param {Record<string, () => Promise<T>>} candidates each measures one round and returns a figure
 * @param {(names: string[]) => string[]} order of each round
 * @param {number} warmUps rounds before the first that counts
 * @returns {Promise<Record<string, T[]>>} the figures of all rounds that count
 */
export async function interleave(candidates, rounds, order = (names) => names, warmUps = 1) {
  const figures = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  for (let round = 1 - warmUps; round <= rounds; round += 1) {
    for (const name of order(Object.keys(candidates))) {
      const measure = candidates[name];
      progress(`round ${round} of ${rounds}: ${name}`);
      const figure = await measure();
      if (round > 0) figures[name].push(figure);
    }
  }
  progress("");
  return figures;
}

/** The median over rounds of one figure divided by another of the same round. */
export function ratio(figures, base) {
  return median(figures.map((figure, round) => figure / base[round]));
}

export function progress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

export function heapUsed() {
  globalThis.gc();
  globalThis.gc();
  return process.memoryUsage().heapUsed;
}

/** @param {string[]} head @param {(string | number)[][]} rows */
export function table(title, head, rows) {
  const cells = [head, ...rows.map((row) => row.map(String))];
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  const line = (row) =>
    `| ${row.map((cell, n) => (n === 0 ? cell.padEnd(widths[n]) : cell.padStart(widths[n]))).join(" | ")} |`;
  console.log(`\n${title}\n`);
  console.log(line(cells[0]));
  console.log(
    `| ${widths.map((width, n) => (n === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`)).join(" | ")} |`,
  );
  for (const row of cells.slice(1)) console.log(line(row));
}
