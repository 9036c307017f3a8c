// A bar for each way to sell: how many were sold, against how many there were.
const escape = (text) => String(text).replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

const [GAP, MARGIN] = [10, 16];

/** How wide a text may become: it is drawn in the reader's font, so somewhat more than usual ones take. */
const widthOf = (text, size) => [...text].length * size * 0.62;

/** @param {{ name: string, sold: number, seconds: number }[]} rows */
export function chart(rows, items, buyers) {
  const [top, bar, gap, width] = [56, 26, 14, 420];
  const left = Math.ceil(MARGIN + GAP + Math.max(...rows.map((row) => widthOf(row.name, 14))));
  const most = Math.max(items, ...rows.map((row) => row.sold));
  const x = (count) => left + (count / most) * width;
  const height = top + rows.length * (bar + gap) + 24;
  const labelOf = ({ sold, seconds }) =>
    `${sold} sold${sold > items ? `, ${sold - items} too many` : ""} · ${seconds.toFixed(2)} s`;
  const title = `${items} items, ${buyers} buyers at the same moment, 4 processes`;
  const stock = `${items} in stock`;
  // As far to the right as the longest of all texts.
  const right = Math.ceil(
    MARGIN +
      Math.max(
        left + widthOf(title, 16),
        x(items) + widthOf(stock, 12) / 2,
        ...rows.map((row) => x(row.sold) + GAP + widthOf(labelOf(row), 14)),
      ),
  );
  const bars = rows.map((row, n) => {
    const y = top + n * (bar + gap);
    const good = row.sold === items;
    return `  <text x="${left - GAP}" y="${y + 18}" text-anchor="end">${escape(row.name)}</text>
  <rect x="${left}" y="${y}" width="${(x(row.sold) - left).toFixed(1)}" height="${bar}" rx="3" fill="${good ? "#2e7d5b" : "#b3402e"}"/>
  <text x="${x(row.sold) + GAP}" y="${y + 18}" fill="#555">${escape(labelOf(row))}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${right}" height="${height}" font-family="system-ui, sans-serif" font-size="14">
  <rect width="100%" height="100%" fill="#fff"/>
  <text x="${left}" y="26" font-size="16" font-weight="600">${title}</text>
${bars.join("\n")}
  <line x1="${x(items)}" y1="${top - 10}" x2="${x(items)}" y2="${height - 18}" stroke="#222" stroke-dasharray="4 4"/>
  <text x="${x(items)}" y="${height - 4}" text-anchor="middle" font-size="12">${stock}</text>
</svg>
`;
}
