// What the command line says.
import { TARGETS } from "./targets.mjs";

const targets = Object.entries(TARGETS)
  .map(([name, { what }]) => `  ${name.padEnd(11)}${what}`)
  .join("\n");

export const HELP = `Usage: npm run mutate -- <target…> [options]
       npm run mutate -- --named [target…]
       npm run mutate -- --check-list

Breaks the sources on purpose, one mutant at a time, and shows which mistakes no test notices. The files are never
changed: each mutant is made in a scratch copy.

Targets:
${targets}
  all        every one of them, one after the other

Options:
  --changed [base]   only files that differ from this commit (HEAD: what is not committed yet)
  --only <glob>      only files whose path matches, such as 'src/core/w*.ts'
  --sample <n>       so many, chosen at random; a whole run can take hours
  --seed <s>         of that choice (1)
  --id <mutant>      this one alone, with what the tests said
  --again <file>     those that survived or ran into the time limit in a run which wrote this file with --json
  --named            the mistakes of tools/mutate/named.json, which were made once or which no test noticed once, each by the
                     test that does now
  --list             the mutants, and run none
  --quick            only the Lua and SQL of redis, postgres and mysql, judged by the comparison in virtual time alone,
                     many times as fast; what passes may still be killed by the other tests
  --by <glob>        our own mutants are judged only by those of the target's test files whose path matches, such as
                     'test/{unit,conformance}/*'; what passes may still be killed by the others
  --jobs <n>         at once (2)
  --patience <n>     all time limits times this (1): a limit that only a busy machine misses counts as killed
  --least <percent>  exit code 1 when less of them are killed (90)
  --json <file>      write every mutant with its outcome
  --verbose          a line for each mutant
  --check-list       whether every entry of tools/mutate/equivalent.json still names a mutant; runs nothing
  --help
`;

export class UsageError extends Error {}

const VALUES = new Set([
  "--only",
  "--sample",
  "--seed",
  "--id",
  "--again",
  "--by",
  "--jobs",
  "--patience",
  "--least",
  "--json",
]);
const FLAGS = new Set(["--list", "--named", "--verbose", "--quick", "--check-list", "--help"]);

export function parse(args) {
  const options = { targets: [], seed: 1, jobs: 2, patience: 1, least: 90 };
  const rest = args.flatMap((arg) =>
    /^--\w[\w-]*=/.test(arg) ? [arg.slice(0, arg.indexOf("=")), arg.slice(arg.indexOf("=") + 1)] : [arg],
  );
  for (let arg = rest.shift(); arg !== undefined; arg = rest.shift()) {
    const key = arg.replace(/^--/, "").replace(/-(.)/g, (_, letter) => letter.toUpperCase());
    if (arg === "-h") options.help = true;
    else if (FLAGS.has(arg)) options[key] = true;
    else if (arg === "--changed") {
      const given = rest[0] !== undefined && !rest[0].startsWith("-") && !isTarget(rest[0]);
      options.changed = given ? rest.shift() : "HEAD";
    } else if (VALUES.has(arg)) {
      const value = rest.shift();
      if (value === undefined || value.startsWith("--")) throw new UsageError(`${arg} needs a value`);
      options[key] = ["--only", "--id", "--again", "--by", "--json"].includes(arg) ? value : numberOf(arg, value);
    } else if (arg.startsWith("-")) throw new UsageError(`there is no option ${arg}`);
    else if (isTarget(arg)) options.targets.push(...(arg === "all" ? Object.keys(TARGETS) : [arg]));
    else throw new UsageError(`there is no target "${arg}"; there are ${Object.keys(TARGETS).join(", ")}, and all`);
  }
  options.targets = [...new Set(options.targets)];
  if (options.id !== undefined && options.targets.length === 0) options.targets = Object.keys(TARGETS);
  return options;
}

const isTarget = (word) => word === "all" || Object.hasOwn(TARGETS, word);

function numberOf(option, text) {
  const number = Number(text);
  const fine = option === "--seed" || option === "--least" ? number >= 0 : Number.isInteger(number) && number >= 1;
  if (text.trim() === "" || !fine) throw new UsageError(`${option} ${text} is not a number that it can take`);
  return number;
}
