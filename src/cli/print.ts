import { EXIT, Failure, flag, type Given } from "./command.js";
import { jsonText, printable } from "./printable.js";

/** Colour only where somebody sees it. */
const colours = process.stdout.isTTY && !process.env.NO_COLOR;
const paint =
  (code: number) =>
  (text: string): string =>
    colours ? `\u001b[${code}m${text}\u001b[0m` : text;
const bold = paint(1);
export const dim = paint(2);
export const red = paint(31);
export const green = paint(32);
export const yellow = paint(33);

/** Resolves when it is written, since what follows may end the process, or when nobody reads it any more. */
export function print(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(`${text}\n`, (error) => {
      if (error == null || (error as NodeJS.ErrnoException).code === "EPIPE") resolve();
      else reject(new Failure(`the output could not be written: ${error.message}`, EXIT.output));
    });
  });
}

/** An object with `--json`, else the text. */
export function printEither(given: Given, value: unknown, text: () => string): Promise<void> {
  return print(flag(given, "json") ? jsonText(value) : text());
}

/** In columns; the first line is the head. */
export function table(rows: readonly (readonly string[])[]): string {
  const shown = rows.map((row) => row.map(printable));
  const widths = (shown[0] ?? []).map((_, column) => Math.max(...shown.map((row) => row[column]?.length ?? 0)));
  const lines = shown.map((row) =>
    row
      .map((cell, n) => cell.padEnd(widths[n] ?? 0))
      .join("  ")
      .trimEnd(),
  );
  return [bold(lines[0] ?? ""), ...lines.slice(1)].join("\n");
}
