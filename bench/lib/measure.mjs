// What the benchmarks share: interleaved rounds, medians, tables.

export function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * Run every candidate once per round, in turn, so that what slows the machine down slows all of them.
 * @param {Record<string, () => Promise<number>>} candidates each measures one round and returns a figure
 * @returns {Promise<Record<string, number[]>>} the figures of all rounds after the first, which only warms up
 */
export async function interleave(candidates, rounds) {
  const figures = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  for (let round = 0; round <= rounds; round += 1) {
    progress(`round ${round} of ${rounds}`);
    for (const [name, measure] of Object.entries(candidates)) {
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

function progress(text) {
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
