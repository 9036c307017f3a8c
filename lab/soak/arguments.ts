import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

/** The stores, in the order in which they are tried. */
const NAMES = ["memory", "sqlite", "redis", "quorum", "zookeeper", "etcd", "postgres", "mysql"] as const;
export type StoreName = (typeof NAMES)[number];

/** As in `lab/broken.ts`. */
const BROKEN = ["tokens", "deadline", "twice"];

const USAGE = `npm run soak -- [--minutes 30 | --seconds n] [--seed n] [--workers 4] [engine …]
Processes take locks on a store, one store after the other, for so many minutes each, while they are killed and stopped, their
connections cut, and the servers restarted, as the seed has it. Engines: ${NAMES.join(", ")}; all of them unless some are named.
--out folder: where the history of a violation is written. --json: the results as JSON.
--broken ${BROKEN.join("|")}: with the library broken on purpose, to see that the soak notices.`;

const OPTIONS = {
  minutes: { type: "string" },
  seconds: { type: "string" },
  seed: { type: "string" },
  workers: { type: "string", default: "4" },
  out: { type: "string", default: join(tmpdir(), "holdfast-soak") },
  json: { type: "boolean", default: false },
  broken: { type: "string" },
  help: { type: "boolean", default: false },
} as const;

const MINUTES = 30;
const HOURS_MAX = 24;

function read() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { ...OPTIONS } });
  if (values.help) return null;
  if (values.minutes !== undefined && values.seconds !== undefined) throw new Error("--minutes or --seconds, not both");
  const number = (option: string, text: string, least: number, most: number, whole = true): number => {
    const value = text.trim() === "" ? NaN : Number(text);
    const fits = value >= least && value <= most && (!whole || Number.isSafeInteger(value));
    if (!fits)
      throw new Error(`--${option} is a ${whole ? "whole " : ""}number from ${least} to ${most}, not "${text}"`);
    return value;
  };
  const ms =
    values.seconds === undefined
      ? 60_000 * number("minutes", values.minutes ?? String(MINUTES), 0.05, 60 * HOURS_MAX, false)
      : 1000 * number("seconds", values.seconds, 1, 3600 * HOURS_MAX);
  const unknown = positionals.filter((word) => !(NAMES as readonly string[]).includes(word));
  if (unknown.length > 0) throw new Error(`there is no engine ${unknown.join(", ")}; choose from ${NAMES.join(", ")}`);
  if (values.broken !== undefined && !BROKEN.includes(values.broken)) {
    throw new Error(`--broken is one of ${BROKEN.join(", ")}, not "${values.broken}"`);
  }
  const names = NAMES.filter((name) => positionals.length === 0 || positionals.includes(name));
  const seed =
    values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : number("seed", values.seed, 0, 2 ** 32 - 1);
  return { ...values, ms, seed, workers: number("workers", values.workers, 1, 32), names };
}

export type Arguments = NonNullable<ReturnType<typeof read>>;

/** The arguments of the command line; a mistake in them is reported with what is allowed. */
export function readArguments(): Arguments {
  try {
    const args = read();
    if (args !== null) return args;
    console.log(USAGE);
    return process.exit(0);
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    return process.exit(2);
  }
}
