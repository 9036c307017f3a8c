import { type Command, flag, parse, UsageError } from "./command.js";
import { COMMANDS } from "./commands.js";
import { exitCodeOf, printError } from "./print-error.js";
import { keepSecret, withoutSecrets } from "./secrets.js";

/** Run one command to its end. */
export async function dispatch(word: string, args: readonly string[]): Promise<void> {
  // Whoever reads our output may stop reading: then there is nobody to tell.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  const json = args.slice(0, args.includes("--") ? args.indexOf("--") : undefined).includes("--json");
  let command: Command | undefined;
  try {
    if (word === "--version" || word === "-V") {
      process.exitCode = await (await import("./help.js")).version();
      return;
    }
    if (word === "--help" || word === "-h" || word === "help") {
      process.exitCode = await (await import("./help.js")).help(args[0]);
      return;
    }
    command = await find(word);
    hideArguments(word, args);
    const given = parse(command, args);
    process.exitCode = flag(given, "help") ? await (await import("./help.js")).help(word) : await command.main(given);
  } catch (error) {
    printError(error, json);
    if (error instanceof UsageError) {
      const usage = command === undefined ? "holdfast --help" : `holdfast ${word} --help`;
      if (!json) process.stderr.write(`Try: ${usage}\n`);
    }
    process.exitCode = exitCodeOf(error);
  }
}

/** Everybody on the machine can read the arguments of a process: from now on without the password that somebody typed there. */
function hideArguments(word: string, args: readonly string[]): void {
  // Somebody may give it twice: the last counts, and all of them can be read.
  const urls = args.flatMap((arg, n) =>
    arg === "--url" ? args.slice(n + 1, n + 2) : (/^--url=(.*)$/s.exec(arg)?.[1] ?? []),
  );
  urls.forEach(keepSecret);
  const hidden = (arg: string): string =>
    urls.reduce((text, url) => text.replaceAll(url, () => withoutSecrets(url)), arg);
  if (args.some((arg) => hidden(arg) !== arg)) process.title = ["holdfast", word, ...args.map(hidden)].join(" ");
}

async function find(word: string): Promise<Command> {
  const load = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (load !== undefined) return load();
  throw new UsageError(`there is no command "${word}"; there are ${Object.keys(COMMANDS).join(", ")}`);
}
