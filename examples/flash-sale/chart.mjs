// A bar for each way to sell: how many were sold, against how many there were.
const escape = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

/** @param {{ name: string, sold: number, seconds: number }[]} rows */
export function chart(rows, items, buyers) {
  const [left, top, bar, gap, width] = [110, 56, 26, 14, 420];
  const most = Math.max(items, ...rows.map((row) => row.sold));
  const x = (count) => left + (count / most) * width;
  const height = top + rows.length * (bar + gap) + 24;
  const bars = rows.map((row, n) => {
    const y = top + n * (bar + gap);
    const good = row.sold === items;
    const label = `${row.sold} sold${row.sold > items ? `, ${row.sold - items} too many` : ""} · ${row.seconds.toFixed(2)} s`;
    return `  <text x="${left - 10}" y="${y + 18}" text-anchor="end">${escape(row.name)}</text>
  <rect x="${left}" y="${y}" width="${(x(row.sold) - left).toFixed(1)}" height="${bar}" rx="3" fill="${good ? "#2e7d5b" : "#b3402e"}"/>
  <text x="${x(row.sold) + 8}" y="${y + 18}" fill="#555">${escape(label)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${left + width + 220}" height="${height}" font-family="system-ui, sans-serif" font-size="14">
  <rect width="100%" height="100%" fill="#fff"/>
  <text x="${left}" y="26" font-size="16" font-weight="600">${items} items, ${buyers} buyers at the same moment, 4 processes</text>
${bars.join("\n")}
  <line x1="${x(items)}" y1="${top - 10}" x2="${x(items)}" y2="${height - 18}" stroke="#222" stroke-dasharray="4 4"/>
  <text x="${x(items)}" y="${height - 4}" text-anchor="middle" font-size="12">${items} in stock</text>
</svg>
`;
}
