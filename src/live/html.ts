import { ownerText } from "../core/inspect.js";
import { READERS_MAX } from "../core/limits.js";
import { SCRIPTS } from "./assets.js";
import { STILL_ROWS } from "./limits.js";
import type { NameView, StatusView } from "./wire.js";

/** Names and labels are text that others chose: never markup. */
function escapeHtml(text: string): string {
  return text.replace(/[&<>"'`=]/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** What cannot be seen, or turns text around, is shown by its number; as `page/text.ts` does. */
function visible(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

/** Text that others chose, in an element of its own so that its direction turns nothing else around. */
const bdi = (text: string): string => `<bdi>${escapeHtml(visible(text))}</bdi>`;

function kindOf({ capacity }: NameView): string {
  if (capacity === 1) return "mutex";
  return capacity === READERS_MAX ? "read-write" : `semaphore of ${capacity}`;
}

function secondsText(ms: number): string {
  return `${Math.max(0, Math.round(ms / 1000))} s`;
}

export type Still = {
  readonly views: readonly NameView[];
  readonly status: StatusView;
  readonly now: number;
  readonly search: string;
};

/** The page as it is sent: a table that stands still. The scripts, where they run, make it live. */
export function pageHtml(still: Still): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Locks</title>
<link rel="stylesheet" href="style.css">
<link rel="icon" href="data:,">
${SCRIPTS.map((file) => `<link rel="modulepreload" href="${file}">`).join("\n")}
<script type="module" src="main.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>Locks</h1>
<nav id="nav" aria-label="Views" hidden></nav>
<p id="status" role="status">${statusText(still.status)}</p>
</header>
<main id="main" tabindex="-1">
${stillHtml(still)}
</main>
<dialog id="dialog" aria-labelledby="dialog-title"></dialog>
</body>
</html>
`;
}

function statusText({ answering, code }: StatusView): string {
  return answering ? "" : `The store does not answer (${escapeHtml(code ?? "")}): this is what was known last.`;
}

function stillHtml({ views, status, now, search }: Still): string {
  const found = views
    .filter(({ name }) => name.toLowerCase().includes(search.toLowerCase()))
    .toSorted((a, b) => (a.waitingSince ?? Infinity) - (b.waitingSince ?? Infinity) || (a.name < b.name ? -1 : 1));
  const rows = found.slice(0, STILL_ROWS).map((view) => rowHtml(view, now));
  const bound = [
    found.length > STILL_ROWS ? `The first ${STILL_ROWS} of ${found.length} names.` : "",
    status.more ? `The store has more than the ${status.shown} names that were read.` : "",
  ].join(" ");
  return `<form method="get" action="./" role="search">
<label>Search <input type="search" name="q" value="${escapeHtml(search)}"></label>
<button>Search</button>
</form>
<noscript><p>Without scripts this page stands still: load it again to see what has changed.</p></noscript>
<div class="scroll" tabindex="0" role="region" aria-label="Names in use">
<table>
<caption>${captionText(found.length, status, bound)}</caption>
<thead><tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Held by</th><th scope="col">Waiting</th><th scope="col">Longest wait</th></tr></thead>
<tbody>
${rows.join("\n")}
</tbody>
</table>
</div>`;
}

function captionText(found: number, { tookMs }: StatusView, bound: string): string {
  if (tookMs === null) return "The store was not read yet.";
  return found === 0 ? "Nothing is held." : `Names in use. ${bound}`;
}

function rowHtml(view: NameView, now: number): string {
  const [first] = view.holders;
  const others = view.holderCount > 1 ? ` and ${view.holderCount - 1} more` : "";
  const held = first === undefined ? "–" : `${bdi(ownerText({ ...first, client: "" }))}${others}`;
  const longest = view.waitingSince === null ? "–" : secondsText(now - view.waitingSince);
  return `<tr><th scope="row">${bdi(view.name)}</th><td>${escapeHtml(kindOf(view))}</td><td>${held}</td><td>${view.waiterCount}</td><td>${longest}</td></tr>`;
}
