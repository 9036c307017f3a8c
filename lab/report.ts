import type { Fault } from "./fault.js";
import { FAULTS } from "./faults.js";
import { measured } from "./lib/results.js";
import { markdownTable } from "./lib/table.js";
import { translate } from "./lib/translate.js";
import type { Outcomes, Results } from "./results.js";
import { ENGINES } from "./rigs.js";
import { timelineOf } from "./timeline.js";
import { FAULTS_PAGE } from "./zh-CN/faults.js";

const WORDS: readonly (readonly [word: string, meaning: string])[] = [
  ["kept", "the holder kept the lock over the fault; the others got it when it gave it back"],
  ["passed on", "the holder lost the lock and was told so before anybody else got it"],
  ["freed", "the holder was dead; the next one got the lock without anybody's help"],
  ["not taken", "the store's grant arrived too late, so its client ignored it, and the next one got the lock"],
  [
    "late write",
    "no client was wrong about who held the lock, but the holder had checked before it was stopped, and its write arrived after the next holder's. No lock can prevent that: the unfenced resource took the write, the fenced one refused it",
  ],
  [
    "two holders",
    "the store forgot the claim, or its clock ended it too early, and granted the lock again: for a while two clients took themselves for the holder. The unfenced resource took writes of both, the fenced one refused the older",
  ],
  [
    "refused",
    "the store came up empty and counts its tokens from the beginning, so clients that had connected to the old store refused the new one: the holder was told, and the others waited. Restarted with a `tokenBase` above the old tokens, they went on",
  ],
];

/** The page and its pictures, by path. */
export function pagesOf(results: Results): Readonly<Record<string, string>> {
  const pictures = FAULTS.map((fault): [string, string] => [
    `docs/faults/${fault.name}.svg`,
    timelineOf(fault, firstRounds(results, fault)),
  ]);
  const english = page(results);
  return {
    "docs/faults.md": english,
    "docs/zh-CN/faults.md": translate(english, FAULTS_PAGE),
    ...Object.fromEntries(pictures),
  };
}

function firstRounds({ cells }: Results, fault: Fault): Outcomes[] {
  return cells.filter(({ fault: name, round }) => name === fault.name && round === 0);
}

/** The matrix, with the faults below each other. */
export function matrix(results: Results): string {
  const rows = FAULTS.map((fault) => [
    `[${fault.title}](#${anchor(fault.title)})`,
    ...ENGINES.map(({ name }) => inCell(results, name, fault.name)),
  ]);
  return markdownTable(["fault", ...ENGINES.map(({ title }) => title)], rows);
}

function inCell({ cells, blanks }: Results, engine: string, fault: string): string {
  const runs = cells.filter((cell) => cell.engine === engine && cell.fault === fault);
  const [first] = runs;
  if (first === undefined) {
    return (
      blanks.find((blank) => blank.engine === engine && blank.fault === fault)?.short.replace(/.+/, "– ($&)") ??
      "not run"
    );
  }
  const words = [...new Set(runs.map((run) => run.outcome))].join(" or ");
  const broken = ["late write", "two holders"].includes(words);
  const shown = broken ? `**${words}**` : words;
  return runs.every(({ ok }) => ok) ? shown : `${shown} (NOT AS EXPECTED)`;
}

const anchor = (title: string): string =>
  title
    .toLowerCase()
    .replaceAll(/[^\w -]/g, "")
    .replaceAll(" ", "-");

/** Why there was no moment at which the holder was told. */
const UNTOLD: Readonly<Record<string, string>> = { freed: "dead", "not taken": "never held", kept: "kept it" };

/** As "12 ms before" or "3 ms after". */
const side = (value: number | null | undefined, outcome: string): string =>
  value === null || value === undefined
    ? (UNTOLD[outcome] ?? "–")
    : `${Math.abs(Math.round(value))} ms ${value < 0 ? "before" : "after"}`;

const wentOn = (value: number | null | undefined, outcome: string): string => {
  if (value !== null && value !== undefined) return `${Math.round(value)} ms`;
  return outcome === "kept" ? "its release" : "–";
};

function section(results: Results, fault: Fault): string {
  const cells = firstRounds(results, fault);
  const rows = cells.map(({ engine, outcome, findings }) => [
    ENGINES.find(({ name }) => name === engine)?.title ?? engine,
    outcome,
    side(findings?.toldAfterDeadlineMs, outcome),
    side(findings?.toldAfterNextGrantMs, outcome),
    wentOn(findings?.othersWentOnMs, outcome),
    findings === null ? "–" : findings.unfencedStale === 0 ? "yes" : `no, ${findings.unfencedStale} stale`,
    findings === null ? "–" : `${findings.fencedRefused} of ${findings.fencedStale}`,
  ]);
  const head = [
    "engine",
    "outcome",
    "told, from the end of its lease",
    "told, from the next grant",
    "others went on after",
    "exclusion at the unfenced resource",
    "stale writes refused by the token",
  ];
  const reasons = results.blanks.filter((blank) => blank.fault === fault.name);
  const whys = [...new Set(reasons.map(({ why }) => why))].map((why) => {
    const engines = reasons.filter((reason) => reason.why === why).map(({ engine }) => engine);
    const titles = engines.map((engine) => ENGINES.find(({ name }) => name === engine)?.title ?? engine);
    return `- Not on ${titles.join(", ")}: ${why}.`;
  });
  return [
    `## ${fault.title}`,
    "",
    `What is done: ${fault.what}.`,
    "",
    `![${fault.title}: who believed to hold the lock when](faults/${fault.name}.svg)`,
    "",
    markdownTable(head, rows, [2, 3, 4, 6]),
    ...(whys.length === 0 ? [] : ["", ...whys]),
  ].join("\n");
}

function page(results: Results): string {
  const { cells, repeat, seed, tookMs } = results;
  const asExpected = cells.filter(({ ok }) => ok).length;
  const clean =
    "In every run nothing was left behind: after the last release the store showed no holder and no waiter.";
  const left = asExpected === cells.length ? clean : "What was not as expected stands in lab/results/faults.json.";
  return `<!-- Made by \`npm run lab\` from lab/results/faults.json: change lab/report.ts instead. -->

# Faults: what happens on every engine

${measured(results.circumstances)}
${cells.length} runs (each cell ${repeat === 1 ? "once" : `${repeat} times`}, seed ${seed}) in ${(tookMs / 60_000).toFixed(1)} minutes, ${asExpected} of them as expected.

In each run three processes want one lock on real servers. The first holds it when the fault happens; each has its own network
to the servers. They write to a resource that accepts everything and to one that is guarded by the fencing token
(\`holdfast/fence\`). When the next holder has written, the lab makes the old one write again. The table shows what the rules of
\`holdfast/testing\` find in the history of the run. A run fails if a broken guarantee was expected and did not happen, and if one
happened that was not expected.

${matrix(results)}

${WORDS.map(([word, meaning]) => `- **${word}**: ${meaning}.`).join("\n")}

${left} Times are of one
machine; leases are short (${ENGINES.map(({ title, leaseMs }) => `${title} ${leaseMs / 1000} s`).join(", ")}; the holder's is
longer where the fault takes longer than that, or where two holders are to be seen).

${FAULTS.map((fault) => section(results, fault)).join("\n\n")}
`;
}
