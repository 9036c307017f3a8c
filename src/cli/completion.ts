import { type Command, EXIT, HELP_OPTION, noCommand, UsageError } from "./command.js";
import { COMMANDS } from "./commands.js";
import { print } from "./print.js";

const SHELLS = ["bash", "zsh"] as const;

export const completion: Command = {
  usage: "completion bash|zsh",
  summary: "print what makes the shell complete commands, options and names",
  options: {},
  examples: ['eval "$(holdfast completion bash)"  # in ~/.bashrc', 'eval "$(holdfast completion zsh)"  # in ~/.zshrc'],
  async main(given) {
    noCommand(given);
    const [shell, ...more] = given.words;
    if (!SHELLS.includes(shell as (typeof SHELLS)[number]) || more.length > 0) {
      throw new UsageError(`it takes the name of a shell: ${SHELLS.join(" or ")}`);
    }
    await print(shell === "bash" ? await bash() : await zsh());
    return EXIT.ok;
  },
};

async function all(): Promise<readonly (readonly [string, Command])[]> {
  return Promise.all(Object.entries(COMMANDS).map(async ([name, load]) => [name, await load()] as const));
}

const optionsOf = (command: Command) => Object.entries({ ...command.options, ...HELP_OPTION });

/** Options whose value follows: there is nothing to offer for it. */
function valued(command: Command): string[] {
  const taking = optionsOf(command).filter(([, { type }]) => type === "string");
  return taking.flatMap(([name, { short }]) => [`--${name}`, ...(short === undefined ? [] : [`-${short}`])]);
}

/** Names in use, from the store that HOLDFAST_URL names; none when it does not answer. */
const NAMES = 'holdfast ls --json 2> /dev/null | sed -n \'s/^{"name":"\\([^"\\\\]*\\)".*/\\1/p\'';

async function bash(): Promise<string> {
  const commands = await all();
  const cases = commands.map(([name, command]) => {
    const options = optionsOf(command).map(([option]) => `--${option}`);
    return `    ${name}) options='${options.join(" ")}' valued='${valued(command).join(" ")}' ;;`;
  });
  return `_holdfast() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} options= valued= n
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '${commands.map(([name]) => name).join(" ")} --help --version' -- "$word"))
    return
  fi
  case \${COMP_WORDS[1]} in
${cases.join("\n")}
    *) return ;;
  esac
  for ((n = 2; n < COMP_CWORD; n++)); do
    # Behind -- stands another command, with completion of its own.
    if [ "\${COMP_WORDS[n]}" = -- ]; then
      if declare -F _command_offset > /dev/null; then _command_offset $((n + 1)); else COMPREPLY=($(compgen -c -f -- "$word")); fi
      return
    fi
  done
  case " $valued " in *" $before "*) return ;; esac
  case \${COMP_WORDS[1]} in
    completion) COMPREPLY=($(compgen -W '${SHELLS.join(" ")}' -- "$word")) ;;
    *) case $word in
      -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
      *) local IFS=$'\\n'; COMPREPLY=($(compgen -W "$(${NAMES})" -- "$word")) ;;
    esac ;;
  esac
}
complete -F _holdfast holdfast`;
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
/** What \`_arguments\` and \`_describe\` would read as something else. */
const plain = (text: string): string => text.replaceAll(/[[\]:\\]/g, "\\$&");

async function zsh(): Promise<string> {
  const commands = await all();
  const described = commands.map(([name, { summary }]) => quoted(`${name}:${plain(summary)}`));
  const cases = commands.map(([name, command]) => {
    const specs = optionsOf(command).flatMap(([option, { short, value, help }]) => {
      const forms = [`--${option}`, ...(short === undefined ? [] : [`-${short}`])];
      return forms.map((form) => quoted(`${form}[${plain(help)}]${value === undefined ? "" : `:${plain(value)}: `}`));
    });
    const words = name === "completion" ? `'1:shell:(${SHELLS.join(" ")})'` : "'1:name:_holdfast_names'";
    // Behind -- stands another command, with completion of its own.
    const rest = command.usage.includes("COMMAND") ? " '*::command:_normal'" : "";
    return `    ${name}) _arguments -S ${specs.join(" ")} ${words}${rest} ;;`;
  });
  return `#compdef holdfast
_holdfast_names() {
  local -a names
  names=(\${(f)"$(${NAMES})"})
  compadd -a names
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
