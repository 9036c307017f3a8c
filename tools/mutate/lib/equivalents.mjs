// The mutants that nobody can tell from the original, each with its reason. An entry that matches nothing any more is an
// error: the line that it spoke of is another one now, and somebody has to look again.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { lineHash } from "./mutants.mjs";
import { ownMutants } from "./own.mjs";

export const LIST = "tools/mutate/equivalent.json";

export const readList = (root) => JSON.parse(readFileSync(join(root, LIST), "utf8"));

/** Ours are in words ("drop-condition"), Stryker's in one ("ConditionalExpression"). */
const isOwn = (operator) => /^[a-z-]+$/.test(operator);

/** What is wrong with the list. Stryker need not be installed: of its mutants the line is looked for. */
export function problemsOf(root, entries) {
  const known = new Map();
  const problems = [];
  const seen = new Set();
  for (const { id = "", reason = "" } of entries) {
    const [file = "", operator = "", hash = "", n = ""] = id.split(":");
    if (seen.has(id)) problems.push(`${id}: listed twice`);
    seen.add(id);
    if (reason.trim().length < 10) problems.push(`${id}: no reason`);
    if (n === "" || !existsSync(join(root, file))) problems.push(`${id}: there is no such file, or it is no id`);
    else if (isOwn(operator)) {
      if (!known.has(file)) known.set(file, new Set(ownMutants(root, filesBeside(file)).map((mutant) => mutant.id)));
      if (!known.get(file).has(id)) problems.push(`${id}: no mutant has this id any more`);
    } else {
      const lines = readFileSync(join(root, file), "utf8").split("\n");
      if (!lines.some((line) => lineHash(line) === hash)) problems.push(`${id}: that line has changed`);
    }
  }
  return problems;

  /** Which definition of a function is the newest is known only from all migrations. */
  function filesBeside(file) {
    const folder = /^(.*\/migrations\/)(\d+)\.sql$/.exec(file)?.[1];
    if (folder === undefined) return [file];
    const numbers = Array.from({ length: 99 }, (_, n) => `${folder}${String(n + 1).padStart(4, "0")}.sql`);
    return numbers.filter((one) => existsSync(join(root, one)));
  }
}
