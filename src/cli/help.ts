import { readFileSync } from "node:fs";
import { type Command, EXIT, HELP_OPTION, UsageError } from "./command.js";
import { COMMANDS } from "./commands.js";
import { print } from "./print.js";

/** `holdfast --help`, or the help of one command. */
export async function help(word: string | undefined): Promise<number> {
  await print(word === undefined ? await overview() : await helpOf(word));
  return EXIT.ok;
}

/** `holdfast --version`. */
export async function version(): Promise<number> {
  const file = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  await print((JSON.parse(file) as { version: string }).version);
  return EXIT.ok;
}

async function overview(): Promise<string> {
  const entries = await Promise.all(Object.entries(COMMANDS).map(async ([, load]) => load()));
  const width = Math.max(...entries.map(({ usage }) => usage.length));
  return [
    "Locks by name for commands, on one machine without a server, or on a store by its URL.",
    "",
    "Usage:",
    ...entries.map(({ usage, summary }) => `  holdfast ${usage.padEnd(width)}  ${summary}`),
    "  holdfast --version",
    "",
    "Examples:",
    ...entries.map(({ examples }) => `  ${examples[0]}`),
    "",
    "holdfast COMMAND --help shows its options.",
  ].join("\n");
}

async function helpOf(word: string): Promise<string> {
  const load = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (load === undefined) throw new UsageError(`there is no command "${word}"`);
  const { usage, summary, options, examples }: Command = await load();
  const rows = Object.entries({ ...options, ...HELP_OPTION }).map(([name, { short, value, help }]) => {
    const both = `${short === undefined ? "    " : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
    return [both, help] as const;
  });
  const width = Math.max(...rows.map(([both]) => both.length));
  return [
    `Usage: holdfast ${usage}`,
    "",
    `${summary[0]?.toUpperCase() ?? ""}${summary.slice(1)}.`,
    "",
    "Options:",
    ...rows.map(([both, text]) => `  ${both.padEnd(width)}  ${text}`),
    "",
    "Examples:",
    ...examples.map((example) => `  ${example}`),
  ].join("\n");
}
