/** Pictures for pages that are read on light and on dark ground: the colours follow the reader's. */

const escapeXml = (text: string | number): string =>
  String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

/** Classes to draw with: text `title` and `dim`, lines `axis`, and the fills `c0`…`c5`, `good`, `bad`. */
const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #24292f } .dim { fill: #57606a } .title { font-weight: 600; font-size: 14px }
  .axis { stroke: #8c959f; stroke-width: 1; fill: none } .ground { fill: #ffffff } .shade { fill: #8c959f; fill-opacity: .16 }
  .c0 { fill: #3572b0 } .c1 { fill: #c77d0a } .c2 { fill: #7d5bbe } .c3 { fill: #2e8b6f } .c4 { fill: #6e7781 } .c5 { fill: #a04a7a }
  .good { fill: #1a7f37 } .bad { fill: #cf222e } .line-bad { stroke: #cf222e; fill: none } .line-good { stroke: #1a7f37; fill: none }
  .dot { fill: #ffffff; stroke: #24292f } .veil { fill-opacity: .62 } .strong { stroke-width: 2; stroke: #24292f } .cross { stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #9198a1 } .axis { stroke: #656c76 } .ground { fill: #0d1117 } .shade { fill: #9198a1; fill-opacity: .2 }
    .c0 { fill: #5a9bdc } .c1 { fill: #e3a84a } .c2 { fill: #a98be8 } .c3 { fill: #4fb896 } .c4 { fill: #9198a1 } .c5 { fill: #d07aa8 }
    .good { fill: #3fb950 } .bad { fill: #f85149 } .line-bad { stroke: #f85149 } .line-good { stroke: #3fb950 }
    .dot { fill: #0d1117; stroke: #e6edf3 } .strong { stroke: #e6edf3 }
  }`;

export function svg(width: number, height: number, title: string, parts: readonly string[]): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escapeXml(title)}">
<style>${STYLE}
</style>
<rect class="ground" width="${width}" height="${height}" rx="6"/>
${parts.join("\n")}
</svg>
`;
}

const round = (value: number): string => value.toFixed(1);

export function text(x: number, y: number, said: string | number, kind = "", anchor = "start"): string {
  const named = kind === "" ? "" : ` class="${kind}"`;
  return `<text${named} x="${round(x)}" y="${round(y)}" text-anchor="${anchor}">${escapeXml(said)}</text>`;
}

export function bar(x: number, y: number, width: number, height: number, kind: string, tip = ""): string {
  const inside = tip === "" ? "" : `<title>${escapeXml(tip)}</title>`;
  return `<rect class="${kind}" x="${round(x)}" y="${round(y)}" width="${round(Math.max(0.5, width))}" height="${round(height)}" rx="2">${inside}</rect>`;
}

export function line(x1: number, y1: number, x2: number, y2: number, kind = "axis", dash = ""): string {
  const dashed = dash === "" ? "" : ` stroke-dasharray="${dash}"`;
  return `<line class="${kind}" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"${dashed}/>`;
}
