// Lua and SQL as tokens, with what both mutators need to know about them: where brackets match, where an operand of AND or
// OR begins and ends, and which arguments a call has. Comments are no tokens and texts are one token each, so that nothing
// inside of them is ever changed.

const LEXERS = {
  lua: /--\[\[[^]*?\]\]|--[^\n]*|(?<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?<number>\d+(?:\.\d+)?)|(?<word>[A-Za-z_]\w*)|(?<op>==|~=|<=|>=|\.\.\.|\.\.|[-+*/%^#<>=(){}[\];:,.])/g,
  sql: /--[^\n]*|\/\*[^]*?\*\/|(?<string>'(?:''|[^'])*')|(?<word>\$\{[^}]*\}|[$:]\w+|[A-Za-z_]\w*|"[^"]*"|`[^`]*`|\?)|(?<number>\d+(?:\.\d+)?)|(?<op>:=|::|<>|!=|<=|>=|\|\||=>|\$\$|[-+*/%<>=(){}[\];:,.])/g,
};

const CLOSES = { "(": ")", "[": "]", "{": "}" };

/** Tokens with `at` and `end` in the text; `match` of a bracket is the index of the other one. `upper` is for comparing. */
export function tokenize(text, language, from = 0, to = text.length) {
  const tokens = [];
  const open = [];
  for (const found of text.slice(from, to).matchAll(LEXERS[language])) {
    const kind = Object.entries(found.groups).find(([, value]) => value !== undefined)?.[0];
    if (kind === undefined) continue;
    const at = from + found.index;
    const token = { kind, text: found[0], upper: found[0].toUpperCase(), at, end: at + found[0].length };
    if (kind === "op" && CLOSES[token.text] !== undefined) open.push(tokens.length);
    if (kind === "op" && Object.values(CLOSES).includes(token.text)) {
      const opening = open.pop();
      if (opening !== undefined) {
        token.match = opening;
        tokens[opening].match = tokens.length;
      }
    }
    tokens.push(token);
  }
  return tokens;
}

/** The first token of the operand that ends before `index`. `stops(index)`: a boundary stands there. */
export function operandBefore(tokens, index, stops, junction) {
  let first = index;
  for (let at = index - 1; at >= 0; at -= 1) {
    const { match } = tokens[at];
    if (match > at || stops(tokens[at])) break;
    if (first !== index && junction?.(tokens, at)) break;
    if (match !== undefined) at = match;
    first = at;
  }
  return first;
}

/** The last token of the operand that begins at `index`. */
export function operandAfter(tokens, index, stops, junction) {
  let last = index - 1;
  for (let at = index; at < tokens.length; at += 1) {
    const { match } = tokens[at];
    if (match < at || stops(tokens[at])) break;
    if (at > index && junction?.(tokens, at - 1)) break;
    if (match !== undefined) at = match;
    last = at;
  }
  return last;
}

/** [first, last] token of each argument between the bracket at `open` and the one that closes it. */
export function argumentsOf(tokens, open) {
  const list = [];
  let first = open + 1;
  const close = tokens[open].match;
  if (close === undefined) return list;
  for (let at = open + 1; at <= close; at += 1) {
    const { text, match } = tokens[at];
    if (text === "," || at === close) {
      if (first < at) list.push([first, at - 1]);
      first = at + 1;
    } else if (match !== undefined && match > at) at = match;
  }
  return list;
}

/** Each two neighbours among the arguments that could be mistaken for one another: no literal beside something else. */
export function* swaps(text, tokens, list, operator = "swap arguments") {
  const kindOf = ([first, last]) =>
    first === last && tokens[first].kind !== "word" ? tokens[first].kind : "expression";
  const textOf = ([first, last]) => text.slice(tokens[first].at, tokens[last].end);
  for (let n = 0; n + 1 < list.length; n += 1) {
    const [one, two] = [list[n], list[n + 1]];
    if (kindOf(one) !== kindOf(two) || textOf(one) === textOf(two)) continue;
    if (textOf(one) === "..." || textOf(two) === "...") continue;
    const [at, end] = [tokens[one[0]].at, tokens[two[1]].end];
    const between = text.slice(tokens[one[1]].end, tokens[two[0]].at);
    yield { operator, at, end, to: textOf(two) + between + textOf(one) };
  }
}

/** Shifts by one of a number that a bound could be: large ones are units of time, where one more says nothing. */
export function* shifted({ text, at, end }) {
  const number = Number(text);
  if (!Number.isInteger(number) || number >= 1000) return;
  yield { operator: "shift bound", at, end, to: String(number + 1) };
  if (number > 0) yield { operator: "shift bound", at, end, to: String(number - 1) };
}
