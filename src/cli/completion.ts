import { type Command, type Commands, EXIT, HELP_OPTION, UsageError } from "./command.js";
import type { Completed } from "./completion-bash.js";
import { print } from "./print.js";
import { printable } from "./printable.js";

const SHELLS = ["bash", "zsh"] as const;

/** The command that prints how all of `commands` are completed; they are passed in because it is one of them. */
export const completion = (commands: Commands): Command => ({
  usage: "completion bash|zsh",
  summary: "print what makes the shell complete commands, options and names",
  options: {},
  examples: ['eval "$(holdfast completion bash)"  # in ~/.bashrc', 'eval "$(holdfast completion zsh)"  # in ~/.zshrc'],
  async main(given) {
    const [shell, prefix = "", ...more] = given.words;
    // For the scripts themselves.
    if (shell === "names" && more.length === 0) return names(prefix);
    if (!SHELLS.includes(shell as (typeof SHELLS)[number]) || given.words.length > 1) {
      throw new UsageError(`it takes the name of a shell: ${SHELLS.join(" or ")}`);
    }
    await print(
      shell === "bash" ? (await import("./completion-bash.js")).bash(await all(commands)) : zsh(await all(commands)),
    );
    return EXIT.ok;
  },
});

/** Names in use, a line each, from the store that HOLDFAST_URL names; without those that would speak to the terminal. */
async function names(prefix: string): Promise<number> {
  const { openStore } = await import("./store.js");
  const { client, close } = await openStore({ values: {}, words: [], rest: [] });
  try {
    for await (const { name } of client.inspect({ prefix })) if (printable(name) === name) await print(name);
    return EXIT.ok;
  } finally {
    await close();
  }
}

async function all(commands: Commands): Promise<readonly Completed[]> {
  const loaded = Object.entries(commands).map(async ([name, load]) => [name, await load()] as const);
  return (await Promise.all(loaded)).map(([name, command]) => ({
    name,
    command,
    options: optionsOf(command).map(([option]) => `--${option}`),
    valued: optionsOf(command).flatMap(([option, { type, short }]) =>
      type === "string" ? [`--${option}`, ...(short === undefined ? [] : [`-${short}`])] : [],
    ),
    words: name === "completion" ? SHELLS : /NAME|PREFIX/.test(command.usage) ? null : [],
  }));
}

const optionsOf = (command: Command) => Object.entries({ ...command.options, ...HELP_OPTION });

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
/** What \`_arguments\` and \`_describe\` would read as something else. */
const plain = (text: string): string => text.replaceAll(/[[\]:\\]/g, "\\$&");

function zsh(commands: readonly Completed[]): string {
  const described = commands.map(({ name, command }) => quoted(`${name}:${plain(command.summary)}`));
  const cases = commands.map(({ name, command, words }) => {
    const specs = optionsOf(command).flatMap(([option, { short, value, help }]) => {
      const forms = [`--${option}`, ...(short === undefined ? [] : [`-${short}`])];
      return forms.map((form) => quoted(`${form}[${plain(help)}]${value === undefined ? "" : `:${plain(value)}: `}`));
    });
    const first = words === null ? "'1:name:_holdfast_names'" : words.length > 0 ? `'1:word:(${words.join(" ")})'` : "";
    // Behind -- stands another command, with completion of its own.
    const rest = command.runs ? "'*::command:_holdfast_command'" : "";
    return `    ${name}) _arguments -S ${[...specs, first, rest].filter(Boolean).join(" ")} ;;`;
  });
  // Names are data: read line by line, never expanded, and quoted by compadd where they are inserted.
  return `#compdef holdfast
_holdfast_names() {
  local -a names
  names=("\${(@f)$(holdfast completion names < /dev/null 2> /dev/null)}")
  # Before -- they would be options.
  ((\${words[(I)--]})) || names=("\${(@)names:#-*}")
  compadd "$@" -a names
}
_holdfast_command() {
  # The second --, behind a name between two.
  if [[ $words[1] == -- ]]; then
    shift words
    ((CURRENT--))
  fi
  _normal
}
_holdfast() {
  local -a commands
  commands=(${described.join(" ")})
  if ((CURRENT == 2)); then
    _describe command commands
    compadd -- --help --version
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
${cases.join("\n")}
  esac
}
compdef _holdfast holdfast`;
}
