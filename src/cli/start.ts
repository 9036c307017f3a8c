import { type Command, flag, parse, text, UsageError } from "./command.js";
import { COMMANDS } from "./commands.js";
import { exitCodeOf, tellError } from "./failing.js";
import { keepSecret, withoutSecrets } from "./secrets.js";

/** Run one command to its end. */
export async function start(word: string, args: readonly string[]): Promise<void> {
  // Whoever reads our output may stop reading: then there is nobody to tell.
  for (const stream of [process.stdout, process.stderr]) stream.on("error", () => {});
  const json = args.slice(0, args.includes("--") ? args.indexOf("--") : undefined).includes("--json");
  let command: Command | undefined;
  try {
    if (word === "--help" || word === "-h" || word === "help") {
      process.exitCode = await (await import("./help.js")).help(args[0]);
      return;
    }
    command = await find(word);
    const given = parse(command, args);
    hideArguments(word, args, text(given, "url"));
    process.exitCode = flag(given, "help") ? await (await import("./help.js")).help(word) : await command.main(given);
  } catch (error) {
    tellError(error, json);
    if (error instanceof UsageError) {
      const usage = command === undefined ? "holdfast --help" : `holdfast ${word} --help`;
      if (!json) process.stderr.write(`Try: ${usage}\n`);
    }
    process.exitCode = exitCodeOf(error);
  }
}

/** Everybody on the machine can read the arguments of a process: from now on without the password that somebody typed there. */
function hideArguments(word: string, args: readonly string[], url: string | undefined): void {
  if (url === undefined) return;
  keepSecret(url);
  const shown = withoutSecrets(url);
  if (shown === url) return;
  process.title = ["holdfast", word, ...args.map((arg) => arg.replaceAll(url, shown))].join(" ");
}

async function find(word: string): Promise<Command> {
  const load = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
  if (load !== undefined) return load();
  throw new UsageError(`there is no command "${word}"; there are ${Object.keys(COMMANDS).join(", ")}`);
}
