/** The page's style sheet. Colours follow the reader's, and none carries a meaning alone. */
export const STYLE: string = `
:root {
  color-scheme: light dark;
  --ground: #ffffff; --raised: #f6f8fa; --line: #d0d7de; --text: #1f2328; --dim: #57606a; --link: #0757b8;
  --good: #116329; --bad: #b3121d; --bad-ground: #fff0ee; --warn: #7d4e00; --bar: #3572b0; --bar-low: #c77d0a;
  --c0: #3572b0; --c1: #a3650a; --c2: #7d5bbe; --c3: #23795f; --c4: #5f6871; --c5: #a04a7a; --in-bar: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0d1117; --raised: #161b22; --line: #3d444d; --text: #e6edf3; --dim: #9da7b1; --link: #6cb6ff;
    --good: #56d364; --bad: #ff7b72; --bad-ground: #2b1315; --warn: #e3b341; --bar: #5a9bdc; --bar-low: #e3a84a;
    --c0: #5a9bdc; --c1: #e3a84a; --c2: #b39af0; --c3: #4fb896; --c4: #9da7b1; --c5: #dc8fb6; --in-bar: #0d1117;
  }
}
* { box-sizing: border-box; }
[hidden] { display: none !important; }
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 8px; top: 8px; padding: 4px 8px; background: var(--ground); z-index: 1; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 24px; padding: 10px 20px; background: var(--raised); border-bottom: 1px solid var(--line); }
header h1 { font-size: 18px; margin: 0; }
nav { display: flex; flex-wrap: wrap; gap: 2px; }
nav a { padding: 6px 12px; border-radius: 6px; text-decoration: none; color: var(--text); }
nav a:hover { text-decoration: underline; }
nav a[aria-current] { background: var(--ground); box-shadow: inset 0 0 0 1px var(--line); font-weight: 600; }
#status { margin: 0 0 0 auto; min-height: 1.5em; }
#status.good { color: var(--good); }
#status.bad { color: var(--bad); font-weight: 600; }
main { padding: 16px 20px 40px; max-width: 1200px; margin: 0 auto; }
main:focus { outline: none; }
h2 { font-size: 20px; margin: 8px 0; overflow-wrap: anywhere; }
h3 { font-size: 16px; margin: 24px 0 8px; }
form[role="search"] { display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: end; margin-bottom: 12px; }
label { display: inline-flex; flex-direction: column; font-size: 13px; color: var(--dim); }
input, select, button { font: inherit; color: var(--text); background: var(--ground); border: 1px solid #818b95; border-radius: 6px; padding: 5px 10px; min-height: 34px; max-width: 100%; }
input[type="search"] { width: 320px; }
select { max-width: 240px; }
button { cursor: pointer; background: var(--raised); }
button:disabled { cursor: default; opacity: .6; }
button.danger { color: var(--bad); border-color: var(--bad); }
.scroll { overflow-x: auto; margin-bottom: 12px; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: var(--dim); padding: 4px 0; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; font-weight: normal; overflow-wrap: anywhere; }
thead th { color: var(--dim); white-space: nowrap; font-size: 13px; }
thead button { border: 0; background: none; color: var(--dim); padding: 4px 0; min-height: 28px; font-size: 13px; }
th[aria-sort] button { color: var(--text); font-weight: 600; }
th[aria-sort="descending"] button::after { content: " ↓"; }
th[aria-sort="ascending"] button::after { content: " ↑"; }
tbody th { min-width: 9em; }

.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.dim { color: var(--dim); }
.facts { margin: 0 0 8px; }
.meter, .bar { height: 8px; border-radius: 4px; background: var(--line); overflow: hidden; }
.meter { max-width: 420px; margin-bottom: 12px; }
.meter span, .bar span { display: block; height: 100%; background: var(--bar); }
.bar { width: 140px; margin: 7px 0 3px; }
.bar span { transition: width .25s linear; }
.lease { min-width: 160px; font-variant-numeric: tabular-nums; }
.lease.jeopardy { color: var(--warn); font-weight: 600; }
.lease.jeopardy .bar span { background: var(--bar-low); }
dl { display: grid; grid-template-columns: minmax(160px, max-content) 1fr; gap: 4px 24px; margin: 0; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
article { border: 1px solid var(--line); border-radius: 8px; padding: 4px 16px 8px; margin-bottom: 16px; }
article h3 { margin-top: 12px; }
article.deadlock { border: 2px solid var(--bad); background: var(--bad-ground); }
article ul { padding-left: 20px; }
li { overflow-wrap: anywhere; }
svg { display: block; max-width: none; }
svg text { font: 12px system-ui, sans-serif; fill: var(--text); }
svg .dim { fill: var(--dim); }
svg .title { font-weight: 600; font-size: 13px; }
svg rect { stroke: var(--ground); }
svg .party { stroke: var(--dim); }
svg .party.bad { stroke: var(--bad); }
svg .in-bar { fill: var(--in-bar); font-variant-numeric: tabular-nums; }
.axis { stroke: var(--line); stroke-dasharray: 1 3; }
.party { fill: var(--raised); stroke: var(--dim); }
.party.bad { stroke: var(--bad); stroke-width: 2; }
.wait { stroke: var(--dim); stroke-width: 1.5; fill: none; }
.wait.bad { stroke: var(--bad); stroke-width: 2; }
.on-line { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }
.deadlock .on-line { stroke: var(--bad-ground); }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); } .c4 { fill: var(--c4); } .c5 { fill: var(--c5); }
dialog { max-width: 520px; border: 1px solid var(--line); border-radius: 10px; background: var(--ground); color: var(--text); padding: 16px 24px; overflow-wrap: anywhere; }
dialog::backdrop { background: rgb(0 0 0 / 45%); }
.buttons { display: flex; justify-content: flex-end; gap: 12px; }
@media (max-width: 640px) {
  header, main { padding-left: 12px; padding-right: 12px; }
  #status { margin-left: 0; width: 100%; }
  label, input[type="search"], select { width: 100%; max-width: none; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; }
  .cards thead { position: absolute; left: -999px; }
  .cards caption { display: block; }
  .cards, .cards tbody, .cards tr, .cards th, .cards td { display: block; min-width: 0; }
  .cards tbody tr { padding: 8px 0; border-bottom: 1px solid var(--line); }
  .cards tbody th, .cards tbody td { display: flex; gap: 8px; border: 0; padding: 1px 0; }
  .cards tbody th { font-weight: 600; }
  .cards tbody td::before { content: attr(data-column); color: var(--dim); flex: 0 0 7.5em; font-weight: normal; }
  .cards .lease { flex-wrap: wrap; }
  .cards .bar { width: 100px; }
}
@media (prefers-reduced-motion: reduce) { * { transition: none !important; } }
@media (forced-colors: active) { .bar span, .meter span { background: Highlight; } }
`;
