import { parseArgs } from "node:util";

/** One option: how it is read, shown by `--help` and offered by the shell's completion. */
type Option = {
  readonly type: "string" | "boolean";
  readonly short?: string;
  /** What stands for its value in the help. */
  readonly value?: string;
  readonly help: string;
};

export type Options = Readonly<Record<string, Option>>;

/** What stood on the command line. */
export type Given = {
  readonly values: Readonly<Record<string, string | boolean | undefined>>;
  readonly words: readonly string[];
  /** The command behind `--`, of a command that runs one. */
  readonly rest: readonly string[];
};

/** One command: a file each. `main` answers with the exit code. */
export type Command = {
  readonly usage: string;
  readonly summary: string;
  /** Behind `--` stands a command to run; of all others, more words, which may begin with `-`. */
  readonly runs?: true;
  readonly options: Options;
  readonly examples: readonly string[];
  main(given: Given): Promise<number>;
};

/** Loaded on first use: a command waits for nothing but itself. */
export type Commands = Readonly<Record<string, () => Promise<Command>>>;

/** By sysexits(3), and as flock(1) where it has a word for it. */
export const EXIT = { ok: 0, conflict: 1, usage: 64, unavailable: 69, internal: 70, output: 74, lost: 75 } as const;

/** The command line was not understood. */
export class UsageError extends Error {}

/** Says what happened; the exit code says the rest. */
export class Failure extends Error {
  constructor(
    message: string,
    readonly exitCode: number,
  ) {
    super(message);
  }
}

export const URL_OPTION: Options = {
  url: { type: "string", value: "URL", help: "the store; else $HOLDFAST_URL, else a file of this user" },
};

export const JSON_OPTION: Options = { json: { type: "boolean", help: "print JSON" } };

export const HELP_OPTION: Options = { help: { type: "boolean", short: "h", help: "show this help" } };

export function parse(command: Command, args: readonly string[]): Given {
  const end = args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  const options = Object.fromEntries(
    Object.entries({ ...command.options, ...HELP_OPTION }).map(([name, { type, short }]) => [
      name,
      { type, ...(short === undefined ? {} : { short }) },
    ]),
  );
  try {
    const { values, positionals: words } = parseArgs({ args: [...own], options, allowPositionals: true });
    return { values, ...behindDashes(command, values, words, end < 0 ? [] : args.slice(end + 1)) };
  } catch (error) {
    const message = (error as Error).message.replace(/\. To specify.*/s, "");
    const hint = /Unknown option/.test(message) ? `; a name that begins with - goes ${placeOf(command)}` : "";
    throw new UsageError(`${message}${hint}`);
  }
}

/** Names may begin with `-`. Where a command follows, such a name stands between two `--`. */
function behindDashes(
  command: Command,
  values: Given["values"],
  words: readonly string[],
  behind: readonly string[],
): Pick<Given, "words" | "rest"> {
  if (!command.runs) return { words: [...words, ...behind], rest: [] };
  const [name = "", dashes, ...rest] = behind;
  const unnamed = words.length === 0;
  if (unnamed && dashes === "--") return { words: [name], rest };
  // The command is a line for the shell.
  if (unnamed && values.command !== undefined) return { words: behind, rest: [] };
  return { words, rest: behind };
}

const placeOf = (command: Command): string => (command.runs ? "between two --" : "behind --");

export function text(given: Given, option: string): string | undefined {
  const value = given.values[option];
  return typeof value === "string" ? value : undefined;
}

export const flag = (given: Given, option: string): boolean => given.values[option] === true;

/** Seconds with fractions, as milliseconds. */
export function seconds(given: Given, option: string): number | undefined {
  const value = text(given, option);
  if (value === undefined) return undefined;
  if (!/^(\d+\.?\d*|\.\d+)$/.test(value)) {
    throw new UsageError(`--${option} takes seconds, such as 10 or 0.5, not "${value}"`);
  }
  return Number(value) * 1000;
}

export function whole(given: Given, option: string, least: number, most: number): number | undefined {
  const value = text(given, option);
  if (value === undefined) return undefined;
  const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
  if (!(number >= least && number <= most)) {
    throw new UsageError(`--${option} takes a whole number from ${least} to ${most}, not "${value}"`);
  }
  return number;
}

/** Exactly one word: the name of a lock. */
export function nameOf(given: Given): string {
  const [name, ...more] = given.words;
  if (name === undefined) {
    const hint = given.rest.length > 0 ? ": before the --, or, if it begins with -, between two --" : "";
    throw new UsageError(`the name of the lock is missing${hint}`);
  }
  if (more.length > 0)
    throw new UsageError(`one name is enough; "${more[0]}" is too much (what run, elect and once run goes behind --)`);
  return name;
}
