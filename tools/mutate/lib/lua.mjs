// Mutants of a Lua script, found in its tokens.
import { argumentsOf, operandAfter, operandBefore, shifted, swaps, tokenize } from "./tokens.mjs";

const TURNED = { "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==" };
const TURNED_CALLS = { max: "min", min: "max", ceil: "floor", floor: "ceil" };
const STATEMENT_WORDS = new Set(
  "break do else elseif end for function if in local repeat return then until while".split(" "),
);
const KEYWORDS = new Set([...STATEMENT_WORDS, "and", "or", "not", "nil", "true", "false"]);
const OPERAND_STOPS = new Set(["=", ",", ";", ...STATEMENT_WORDS]);
const SYMMETRIC = new Set(["max", "min"]);

const endsExpression = ({ kind, text }) =>
  kind === "string" ||
  kind === "number" ||
  [")", "]", "}", "end", "nil", "true", "false", "..."].includes(text) ||
  (kind === "word" && !KEYWORDS.has(text));
const startsExpression = ({ kind, text }) =>
  kind === "string" || kind === "number" || (kind === "word" && text !== "and" && text !== "or");

/** Between this token and the next one statement ends and another begins. */
const junction = (tokens, at) =>
  tokens[at + 1] !== undefined && endsExpression(tokens[at]) && startsExpression(tokens[at + 1]);

export function* luaMutants(source) {
  const tokens = tokenize(source, "lua");
  const span = (first, last) => source.slice(tokens[first].at, tokens[last].end);
  for (const [index, token] of tokens.entries()) {
    const { kind, text, at, end } = token;
    const [before, after] = [tokens[index - 1], tokens[index + 1]];
    if (kind === "op" && TURNED[text] !== undefined) yield { operator: "turn comparison", at, end, to: TURNED[text] };
    if ((text === "+" || text === "-") && before !== undefined && endsExpression(before)) {
      yield { operator: "shift bound", at, end, to: text === "+" ? "-" : "+" };
    }
    if (kind === "word" && before?.text === "." && TURNED_CALLS[text] !== undefined) {
      yield { operator: "turn comparison", at, end, to: TURNED_CALLS[text] };
    }
    // An index names a field: one more of it is no bound.
    if (kind === "number" && before?.text !== "[") yield* shifted(token);
    if (text === "and" || text === "or") {
      // OR binds less than AND: an operand of it may contain some.
      const stops = (one) => OPERAND_STOPS.has(one.text) || one.text === "or" || (text === "and" && one.text === "and");
      const first = operandBefore(tokens, index, stops, junction);
      const last = operandAfter(tokens, index + 1, stops, junction);
      if (first < index && last > index) {
        // Of a chain each operand is dropped once: the left one only if it is the first.
        const chained = tokens[first - 1]?.text === text;
        if (!chained) yield { operator: "drop condition", at: tokens[first].at, end: tokens[index + 1].at, to: "" };
        yield { operator: "drop condition", at: tokens[index - 1].end, end: tokens[last].end, to: "" };
      }
    }
    if (text === "not") yield { operator: "drop condition", at, end: after.at, to: "" };
    if (text === "if" || text === "elseif" || text === "while") {
      const closing = tokens.findIndex((one, n) => n > index && one.text === (text === "while" ? "do" : "then"));
      const place = { at: after.at, end: tokens[closing - 1].end };
      // A loop without an end would stop the server.
      for (const to of text === "while" ? ["false"] : ["true", "false"])
        yield { operator: "decide condition", ...place, to };
    }
    if (kind === "word" && !KEYWORDS.has(text) && startsStatement(tokens, index)) {
      const stops = (one) => STATEMENT_WORDS.has(one.text) || one.text === ";";
      const last = operandAfter(tokens, index, stops, junction);
      // The only statement of a branch: without it the condition decides nothing, which is a mutant already.
      const only = before?.text === "then" && tokens[last + 1]?.text === "end";
      if (!only && tokens[last + 1]?.text !== "function")
        yield { operator: "drop statement", at, end: tokens[last].end, to: "" };
    }
    if (text === "(" && before?.kind === "word" && !KEYWORDS.has(before.text) && before.end === at) {
      const declared = tokens[index - 2]?.text === "function";
      const library = tokens[index - 2]?.text === "." ? tokens[index - 3]?.text : undefined;
      if (declared || library === "string" || library === "table" || SYMMETRIC.has(before.text)) continue;
      // The first argument of redis.call is the command, and `name` is a table: nobody takes these for another argument.
      const list = argumentsOf(tokens, index).filter(([first, last]) => span(first, last) !== "name");
      yield* swaps(source, tokens, library === "redis" ? list.slice(1) : list);
    }
  }

  function startsStatement(all, index) {
    const before = all[index - 1];
    if (before === undefined || ["then", "do", "else", "repeat", ";"].includes(before.text)) return true;
    // A junction, but not in the middle of a statement: `for key in`, `local name`, `return name`.
    return junction(all, index - 1) && !KEYWORDS.has(before.text === "end" ? "" : before.text);
  }
}
