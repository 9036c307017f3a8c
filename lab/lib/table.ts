/** A Markdown table whose columns stand below each other in the source too; figures (columns in `right`) to the right. */
export function markdownTable(
  head: readonly string[],
  rows: readonly (readonly (string | number)[])[],
  right: readonly number[] = [],
): string {
  const cells = [head, ...rows].map((row) => row.map((cell) => String(cell).replaceAll("|", "\\|")));
  const widths = head.map((_, column) => Math.max(3, ...cells.map((row) => (row[column] ?? "").length)));
  const pad = (text: string, column: number): string => {
    const space = " ".repeat(Math.max(0, (widths[column] ?? 0) - text.length));
    return right.includes(column) ? space + text : text + space;
  };
  const line = (row: readonly string[]): string => `| ${head.map((_, n) => pad(row[n] ?? "", n)).join(" | ")} |`;
  const rule = widths.map((width, n) => (right.includes(n) ? `${"-".repeat(width - 1)}:` : "-".repeat(width)));
  const [first = [], ...others] = cells;
  return [line(first), `| ${rule.join(" | ")} |`, ...others.map(line)].join("\n");
}
