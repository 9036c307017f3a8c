import { SystemClock } from "../core/clock.js";
import { abortablePause } from "./abortable-pause.js";
import { EXIT } from "./command.js";
import { endSignal } from "./end-signal.js";
import { dim, green, print, red, yellow } from "./print.js";
import { jsonText, printable } from "./printable.js";

/** What one check found. `advice`: what to do about it, whenever it is not simply good. */
export type Finding = {
  readonly check: "url" | "client library" | "store" | "rights" | "clock" | "guarantees" | "deadlocks";
  readonly state: "good" | "mind" | "bad";
  readonly says: string;
  readonly advice?: string;
};

const MARKS = { good: green("ok  "), mind: yellow("mind"), bad: red("BAD ") } as const;

export function worstOf(findings: readonly Finding[]): Finding["state"] {
  const has = (state: Finding["state"]): boolean => findings.some((one) => one.state === state);
  return has("bad") ? "bad" : has("mind") ? "mind" : "good";
}

/** Those of monitoring plugins (Nagios, Icinga, Sensu …) on request; else 1 says that something is wrong, as everywhere. */
const MONITOR = {
  good: { code: 0, word: "OK" },
  mind: { code: 1, word: "WARNING" },
  bad: { code: 2, word: "CRITICAL" },
};
const MONITOR_UNKNOWN = 3;

export function exitCodeOf(findings: readonly Finding[], monitor: boolean): number {
  // It was ended before the first check was.
  if (findings.length === 0) return monitor ? MONITOR_UNKNOWN : EXIT.unavailable;
  const worst = worstOf(findings);
  if (monitor) return MONITOR[worst].code;
  return worst === "bad" ? EXIT.conflict : EXIT.ok;
}

/** The worst, in one line. */
export function monitorLine(findings: readonly Finding[]): string {
  const worst = worstOf(findings);
  const told = findings.filter(({ check, state }) => state === worst && (worst !== "good" || check === "rights"));
  const says = told.map((one) => [`${one.check}: ${one.says}`, one.advice].filter(Boolean).join(" -> ")).join("; ");
  return printable(`HOLDFAST ${MONITOR[worst].word} - ${says}`);
}

export function findingsText(findings: readonly Finding[]): string {
  const lines = findings.map(({ check, state, says, advice }) => {
    const line = `${MARKS[state]}  ${check.padEnd(14)}  ${printable(says)}`;
    return advice === undefined ? line : `${line}\n${" ".repeat(22)}${dim("->")} ${printable(advice)}`;
  });
  if (worstOf(findings) === "bad") lines.push(red("Something is wrong; see above what to do."));
  return lines.join("\n");
}

/** How long a check that is under way when somebody ends it may take to give back what it took. */
const LAST_CHECK_MS = 1_000;

/** Checks again and again, until somebody ends it, and prints what changed: a line each. Answers with what was found last. */
export async function watchFindings(
  check: () => Promise<readonly Finding[]>,
  everyMs: number,
  json: boolean,
): Promise<readonly Finding[]> {
  const [clock, end] = [new SystemClock(), endSignal()];
  const ended = new Promise<null>((resolve) => end.addEventListener("abort", () => resolve(null)));
  const known = new Map<string, string>();
  let last: readonly Finding[] = [];
  while (!end.aborted) {
    const checking = check();
    const found = await Promise.race([checking, ended]);
    if (found === null) {
      // It may hang at a silent server.
      const timer = clock.after(LAST_CHECK_MS, () => process.exit());
      checking.finally(() => clock.cancel(timer)).catch(() => {});
      break;
    }
    last = found;
    const at = new Date(clock.wallMs()).toISOString();
    for (const one of changed(found, known)) await print(json ? jsonText({ at, ...one }) : changeLine(at, one));
    await abortablePause(clock, everyMs, end);
  }
  return last;
}

/** What is not as it was, check by check. A check that could not be made says nothing. */
function changed(found: readonly Finding[], known: Map<string, string>): readonly Finding[] {
  const checks = [...new Set(found.map(({ check }) => check))];
  return checks.flatMap((check) => {
    const now = found.filter((one) => one.check === check);
    const shown = JSON.stringify(now.map(constant));
    if (known.get(check) === shown) return [];
    known.set(check, shown);
    return now;
  });
}

/** Without what differs each time: how long it took, how many names there are, by how much a clock is wrong. */
function constant({ check, state, says }: Finding): readonly string[] {
  return state === "bad" || check === "guarantees" ? [state, says] : [state];
}

function changeLine(at: string, { check, state, says, advice }: Finding): string {
  const line = `${at.slice(0, 19)}Z  ${MARKS[state]}  ${check.padEnd(14)}  ${printable(says)}`;
  return advice === undefined ? line : `${line} ${dim("->")} ${printable(advice)}`;
}
