import type { Command } from "./command.js";

/** What completion needs to know of a command. */
export type Completed = {
  readonly name: string;
  readonly command: Command;
  /** `--name` of every option. */
  readonly options: readonly string[];
  /** Options whose value follows: there is nothing to offer for it. */
  readonly valued: readonly string[];
  /** Words to offer where a name would stand; null: the names in use. */
  readonly words: readonly string[] | null;
};

/**
 * Names are data. \`compgen -W\` expands its words, an unquoted \`$(…)\` splits and globs what it brings, and what bash inserts is
 * not quoted by itself: so nothing here is expanded, words are compared as they are, and each is quoted as the place needs where
 * it goes in. What somebody has typed is read in the same way, by its quotes.
 */
const FUNCTIONS = `# The words before the cursor without their quotes; the last is in \`word\`. \`before\` is the part of it that readline leaves as it is, \`quote\`
# the quote that is open there. \`opaque\`: only the shell itself could tell what the last word is.
_holdfast_read() {
  local line=\${COMP_LINE:0:COMP_POINT} c n any= broken= opened=
  words=() word= before= quote= opaque=
  for ((n = 0; n < \${#line}; n++)); do
    c=\${line:n:1}
    case $quote in
      "'") if [ "$c" = "'" ]; then quote=; else word+=$c; fi ;;
      '"')
        case $c in
          '"') quote= ;;
          '$' | '\`') opaque=1 ;;
          \\\\)
            n=$((n + 1)) c=\${line:n:1}
            case $c in '$' | '\`' | '"' | \\\\) word+=$c ;; *) word+="\\\\$c" ;; esac
            ;;
          *) word+=$c ;;
        esac
        ;;
      *)
        case $c in
          ' ' | $'\\t' | $'\\n')
            if [ -n "$any" ]; then words+=("$word"); fi
            word= any= broken= opaque=
            continue
            ;;
          "'" | '"') quote=$c opened=$word ;;
          \\\\) n=$((n + 1)) word+=\${line:n:1} ;;
          '$' | '\`' | ';' | '&' | '|' | '(' | ')' | '<' | '>' | '*' | '?' | '[' | '{' | '!') opaque=1 ;;
          '~' | '#') if [ -z "$any" ]; then opaque=1; else word+=$c; fi ;;
          *)
            word+=$c
            # readline completes what stands behind such a character.
            case $COMP_WORDBREAKS in *"$c"*) broken=$word ;; esac
            ;;
        esac
        ;;
    esac
    any=1
  done
  if [ -n "$quote" ]; then before=$opened; else before=$broken; fi
}
# Quotes \`rest\`. Not every bash quotes a ~ by itself, and it may stand for a folder wherever it stands (a=~).
_holdfast_quote() {
  local left=$rest piece
  rest=
  while [ -n "$left" ]; do
    piece=\${left%%"~"*}
    if [ -n "$piece" ]; then
      left=\${left:\${#piece}}
      printf -v piece %q "$piece"
    else
      left=\${left:1}
      piece='\\~'
    fi
    rest+=$piece
  done
}
# Offers those of its arguments that begin with the word.
_holdfast_offer() {
  local one rest
  for one; do
    [ "\${one:0:\${#word}}" = "$word" ] || continue
    rest=\${one:\${#before}}
    case $quote in
      "'") case $rest in *"'"*) continue ;; esac ;;
      '"') case $rest in *['$\`"\\\\!']*) continue ;; esac ;;
      *) _holdfast_quote ;;
    esac
    COMPREPLY+=("$rest")
  done
}
# Each line of its input.
_holdfast_offer_lines() {
  local line
  while IFS= read -r line; do _holdfast_offer "$line"; done
}
# Another command, with completion of its own. $1: how many -- stand before it.
_holdfast_command() {
  local n left=$1
  for ((n = 2; n < COMP_CWORD; n++)); do
    if [ "\${COMP_WORDS[n]}" = -- ]; then left=$((left - 1)); fi
    if [ "$left" -eq 0 ]; then break; fi
  done
  if declare -F _comp_command_offset > /dev/null; then
    _comp_command_offset $((n + 1))
  elif declare -F _command_offset > /dev/null; then
    _command_offset $((n + 1))
  else
    # Files, unless it is the name of a command. Where readline can be asked for them it quotes them; bash 3.2 cannot ask.
    if ! compopt -o bashdefault -o default 2> /dev/null; then
      _holdfast_offer_lines <<< "$(compgen -f -- "$word")"
    fi
    if [ $((n + 1)) -eq "$COMP_CWORD" ] && [ -n "$word" ]; then
      _holdfast_offer_lines <<< "$(compgen -c -- "$word")"
    fi
  fi
}`;

export function bash(commands: readonly Completed[]): string {
  const list = (words: readonly string[]): string => `(${words.join(" ")})`;
  const cases = commands.map(({ name, command, options, valued, words }) => {
    const more = words === null ? " names=1" : ` fixed=${list(words)}`;
    return `    ${name}) options=${list(options)} valued=${list(valued)}${more}${command.runs ? " runs=1" : ""} ;;`;
  });
  return `${FUNCTIONS}
_holdfast() {
  local IFS=$' \\t\\n' word before quote opaque names= runs= named= ended= value= n one
  local -a words options valued fixed
  COMPREPLY=()
  _holdfast_read
  if [ -n "$opaque" ]; then return; fi
  if [ "\${#words[@]}" -eq 1 ]; then
    _holdfast_offer ${commands.map(({ name }) => name).join(" ")} --help --version
    return
  fi
  case \${words[1]} in
${cases.join("\n")}
    *) return ;;
  esac
  for ((n = 2; n < \${#words[@]}; n++)); do
    one=\${words[n]}
    if [ -n "$ended" ]; then
      # A name between two --, and then the command.
      if [ -n "$runs" ] && [ -n "$named" ] && [ "$one" = -- ]; then
        _holdfast_command 2
        return
      fi
      named=1
    elif [ -n "$value" ]; then
      value=
    elif [ "$one" = -- ]; then
      if [ -n "$runs" ] && [ -n "$named" ]; then
        _holdfast_command 1
        return
      fi
      ended=1
    else
      case $one in
        -*) case " \${valued[*]} " in *" $one "*) value=1 ;; esac ;;
        *) named=1 ;;
      esac
    fi
  done
  if [ -n "$value" ]; then return; fi
  case $ended$word in -*) _holdfast_offer "\${options[@]}"; return ;; esac
  if [ -n "$named" ]; then return; fi
  if [ -z "$names" ]; then
    if [ "\${#fixed[@]}" -gt 0 ]; then _holdfast_offer "\${fixed[@]}"; fi
    return
  fi
  while IFS= read -r one; do
    # Before -- they would be options.
    case $one in '') ;; -*) if [ -n "$ended" ]; then _holdfast_offer "$one"; fi ;; *) _holdfast_offer "$one" ;; esac
  done <<< "$(holdfast completion names -- "$word" < /dev/null 2> /dev/null)"
}
complete -F _holdfast holdfast`;
}
