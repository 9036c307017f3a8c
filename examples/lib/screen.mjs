// What an example prints: lines with a time, tables, and on a terminal colour and a line of progress.
import { styleText } from "node:util";

const colourful = process.stdout.isTTY && !process.env.NO_COLOR;

/** @param {string} format as `util.styleText` takes it: "red", "green", "dim", "bold" */
export const paint = (format, text) => (colourful ? styleText(format, text) : text);

/** One line that is written over and over, for people at a terminal. */
export const progress = (text) => void (process.stderr.isTTY && process.stderr.write(`\r\x1b[K${text}`));

const started = performance.now();

/** What somebody did, and when. */
export function say(who, what) {
  progress("");
  const seconds = ((performance.now() - started) / 1000).toFixed(2).padStart(6);
  console.log(`${paint("dim", `${seconds} s`)}  ${paint("bold", who.padEnd(7))} ${what}`);
}

/** The first row is the head. The first column stands left; so do the others with `align: "left"`. */
export function table(rows, align = "right") {
  const cells = rows.map((row) => row.map(String));
  const widths = cells[0].map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  const pad = (cell, n) => (n === 0 || align === "left" ? cell.padEnd(widths[n]) : cell.padStart(widths[n]));
  return cells.map((row) => row.map(pad).join("  ").trimEnd()).join("\n");
}
