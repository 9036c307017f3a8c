import type { Fault } from "./fault.js";
import { bar, line, svg, text } from "./lib/svg.js";
import type { Outcomes, Timeline } from "./results.js";
import { ENGINES } from "./rigs.js";

const WHO = ["holder", "second", "third"];
const [LEFT, WIDTH, LANE, GAP, HEAD] = [214, 616, 13, 4, 56];
const BAND = 3 * (LANE + GAP) + 14;
const BEFORE_MS = 600;
const AFTER_MS = 300;

/** One picture per fault: a band for each engine, a lane for each contender. */
export function timelineOf(fault: Fault, cells: readonly Outcomes[]): string {
  const shown = cells.flatMap((cell) => (cell.timeline === null ? [] : [{ cell, timeline: cell.timeline }]));
  const endMs = Math.max(1000, ...shown.map(({ timeline }) => endOf(timeline)));
  const x = (ms: number): number =>
    LEFT + ((Math.min(Math.max(ms, -BEFORE_MS), endMs) + BEFORE_MS) / (endMs + BEFORE_MS)) * WIDTH;
  const height = HEAD + shown.length * BAND + 62;
  const bottom = HEAD + shown.length * BAND;
  const parts = [
    text(12, 20, `${fault.title}: who believed to hold the lock`, "title"),
    ...ticks(endMs).flatMap((ms) => [
      line(x(ms), HEAD - 8, x(ms), bottom, "axis", "1 4"),
      text(x(ms), HEAD - 12, ms === 0 ? "the fault" : `${ms / 1000} s`, "dim", "middle"),
    ]),
    line(x(0), HEAD - 8, x(0), bottom, "line-bad", "4 3"),
    ...shown.flatMap(({ cell, timeline }, n) => band(cell, timeline, HEAD + n * BAND, x)),
    ...legend(bottom + 18),
  ];
  return svg(LEFT + WIDTH + 20, height, `${fault.title}, on ${shown.length} engines`, parts);
}

function band(cell: Outcomes, { holds, writes, stopped }: Timeline, top: number, x: (ms: number) => number): string[] {
  const engine = ENGINES.find(({ name }) => name === cell.engine)?.title ?? cell.engine;
  const lane = (who: number): number => top + 8 + who * (LANE + GAP);
  return [
    line(12, top, LEFT + WIDTH, top),
    text(12, top + 20, engine, "title"),
    text(12, top + 37, cell.outcome, cell.ok ? "dim" : "bad"),
    ...WHO.map((name, who) => text(LEFT - 8, lane(who) + 11, name, "dim", "end")),
    ...holds
      .filter(({ from }) => x(from) < LEFT + WIDTH)
      .map(({ who, from, until, deadline, ended }) => {
        const end = until ?? deadline;
        const tip = `${WHO[who]}: ${Math.round(from)} to ${Math.round(end)} ms, ${ended}`;
        return bar(x(from), lane(who), x(end) - x(from), LANE, `c${who}`, tip);
      }),
    ...(stopped === null
      ? []
      : [
          bar(
            x(stopped.from),
            lane(0),
            x(stopped.until) - x(stopped.from),
            LANE,
            "ground veil",
            "the process stands still",
          ),
        ]),
    ...holds
      .filter(({ ended, deadline }) => ended === "lost" && x(deadline) < LEFT + WIDTH)
      .map(({ who, deadline }) => line(x(deadline), lane(who) - 3, x(deadline), lane(who) + LANE + 3, "axis strong")),
    ...writes
      .filter(({ at }) => x(at) < LEFT + WIDTH)
      .map(({ who, at, unfenced, fenced }) => writeSymbol(x(at), lane(who) + LANE / 2, unfenced, fenced)),
  ];
}

/** Accepted by both: a dot. Refused by the fenced resource: a cross, in a ring when the unfenced one took it. */
function writeSymbol(x: number, y: number, unfenced: boolean, fenced: boolean): string {
  if (fenced) return `<circle class="dot" cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="3"/>`;
  const cross = `<path class="line-bad cross" d="M${(x - 4).toFixed(1)} ${(y - 4).toFixed(1)}l8 8m0 -8l-8 8"/>`;
  return unfenced
    ? `${cross}<circle class="line-bad cross" cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="6.5"/>`
    : cross;
}

function legend(y: number): string[] {
  return [
    bar(12, y - 10, 22, 10, "c0"),
    text(40, y, "believes to hold"),
    line(162, y - 12, 162, y + 2, "axis strong"),
    text(170, y, "end of the lease, by the holder's clock"),
    writeSymbol(412, y - 4, true, true),
    text(420, y, "write accepted"),
    writeSymbol(530, y - 4, false, false),
    text(540, y, "stale write, refused by the token"),
    writeSymbol(22, y + 18, true, false),
    text(40, y + 22, "the same, but its writer still believed (or had checked): the unfenced resource took it"),
    bar(560, y + 12, 22, 10, "c0"),
    bar(560, y + 12, 22, 10, "ground veil"),
    text(588, y + 22, "process stands still"),
  ];
}

function ticks(endMs: number): number[] {
  const step = endMs > 8000 ? 2000 : endMs > 3000 ? 1000 : 500;
  return Array.from({ length: Math.floor(endMs / step) + 1 }, (_, n) => n * step);
}

/** Until each of the others has written. */
function endOf({ writes }: Timeline): number {
  const firsts = [1, 2].map((who) => writes.find((write) => write.who === who)?.at ?? 0);
  return Math.max(...firsts) + AFTER_MS;
}
