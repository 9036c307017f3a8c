// What is printed: progress with an estimate, survivors with their diffs, a score for each target.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { diffOf } from "./mutants.mjs";

const CODES = { red: 31, green: 32, yellow: 33, dim: 2 };

export function painter(colour) {
  return (name, text) => (colour ? `\u001b[${CODES[name]}m${text}\u001b[0m` : text);
}

/** A line every so often (with `verbose` one for each mutant), with how much longer it will take. */
export function progress(total, { verbose, paint, everyMs = 30_000 }) {
  const startedAt = performance.now();
  let [done, survived, toldAt] = [0, 0, startedAt];
  return (mutant) => {
    done += 1;
    if (mutant.status === "survived") survived += 1;
    const now = performance.now();
    const leftMs = ((now - startedAt) / done) * (total - done);
    const estimate = done === total ? "" : `, about ${duration(leftMs)} left`;
    if (verbose) {
      const by = mutant.by === undefined ? "" : ` by ${mutant.by}${mutant.why ? `: ${mutant.why}` : ""}`;
      console.log(`${done}/${total} ${painted(paint, mutant.status)} ${mutant.id}${paint("dim", `${by}${estimate}`)}`);
    } else if (now - toldAt > everyMs || done === total) {
      toldAt = now;
      console.log(`${done}/${total} tried, ${survived} survived${estimate}`);
    }
  };
}

const painted = (paint, status) =>
  paint(status === "survived" ? "red" : status === "does not compile" ? "yellow" : "green", status);

export function duration(ms) {
  const minutes = Math.round(ms / 60_000);
  if (minutes < 1) return `${Math.max(1, Math.round(ms / 1000))} s`;
  return minutes < 90 ? `${minutes} min` : `${(minutes / 60).toFixed(1)} h`;
}

export function counted(results) {
  const count = (status) => results.filter((one) => one.status === status).length;
  const counts = {
    killed: count("killed") + count("timed out"),
    timedOut: count("timed out"),
    survived: count("survived"),
    doesNotCompile: count("does not compile"),
    notRun: count("not run"),
  };
  const judged = counts.killed + counts.survived;
  return { ...counts, judged, score: judged === 0 ? 100 : (100 * counts.killed) / judged };
}

export function printSurvivors(root, results, paint) {
  for (const mutant of results.filter(({ status }) => status === "survived")) {
    const note = mutant.note ? ` (${mutant.note})` : "";
    console.log(`\n${paint("red", "survived")} ${mutant.id}${note}`);
    const diff = diffOf(readFileSync(join(root, mutant.file), "utf8"), mutant).split("\n");
    for (const line of diff)
      console.log(line.startsWith("-") ? paint("red", line) : line.startsWith("+") ? paint("green", line) : line);
  }
}

export function scoreLine(target, { killed, timedOut, judged, doesNotCompile, notRun, score }, accepted) {
  const notes = [
    timedOut > 0 ? `${timedOut} by the time limit` : "",
    doesNotCompile > 0 ? `${doesNotCompile} do not compile` : "",
    accepted > 0 ? `${accepted} accepted as equivalent` : "",
    notRun > 0 ? `${notRun} not run` : "",
  ].filter((note) => note !== "");
  return `${target}: ${score.toFixed(1)} % killed, ${killed} of ${judged}${notes.length > 0 ? ` (${notes.join(", ")})` : ""}`;
}
