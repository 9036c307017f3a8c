// Mutants of SQL: of the functions that the newest migrations define, of statement files, and of statements in TypeScript.
import { argumentsOf, operandAfter, operandBefore, shifted, swaps, tokenize } from "./tokens.mjs";

const TURNED = { "<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "=" };
const TURNED_CALLS = { GREATEST: "LEAST", LEAST: "GREATEST", MAX: "MIN", MIN: "MAX", CEIL: "FLOOR", FLOOR: "CEIL" };
const words = (text) => new Set(text.split(" "));
const OPERAND_STOPS = words(
  "WHERE THEN WHEN IF ELSIF ELSEIF ON SET SELECT RETURN RETURNING ORDER GROUP LIMIT FOR UNION FROM VALUES HAVING ELSE END DO LOOP " +
    "WHILE AS INTO USING BEGIN CASE JOIN LEFT DECLARE DEFAULT , ; := $$",
);
const STATEMENTS = words("UPDATE INSERT DELETE PERFORM CALL SET SELECT RAISE WITH");
const STATEMENT_FOLLOWS = words("; BEGIN THEN ELSE LOOP DO");
const TYPES = /^(?:VARBINARY|BINARY|VARCHAR|CHAR|DECIMAL|NUMERIC|TIMESTAMP|UTC_TIMESTAMP|NOW|INT|BIGINT|TINYINT)$/;
const SYMMETRIC = words("GREATEST LEAST MAX MIN VALUES IN KEY ROW FORMAT JSON_OBJECT");

/**
 * `empty`: the statement that does nothing, where one has to stand; undefined: statements are whole files and stay.
 * `keeps`: parameters must stay in the text, so what is dropped with one is made true instead.
 */
export function* sqlMutants(source, { from = 0, to = source.length, empty, keeps = false } = {}) {
  const tokens = tokenize(source, "sql", from, to);
  const assigned = assignments(tokens);
  const span = (first, last) => source.slice(tokens[first].at, tokens[last].end);
  const hasParameter = (first, last) => keeps && tokens.slice(first, last + 1).some(({ text }) => /^:\w/.test(text));
  for (const [index, token] of tokens.entries()) {
    const { kind, text, upper, at, end } = token;
    const [before, after] = [tokens[index - 1], tokens[index + 1]];
    if (kind === "op" && TURNED[text] !== undefined && !assigned.has(index)) {
      yield { operator: "turn comparison", at, end, to: TURNED[text] };
    }
    if (upper === "IS" && ["NULL", "NOT"].includes(after?.upper)) {
      const negated = after.upper === "NOT";
      yield { operator: "turn comparison", at, end: negated ? after.end : end, to: negated ? "IS" : "IS NOT" };
    }
    if ((text === "+" || text === "-") && endsOperand(before)) {
      yield { operator: "shift bound", at, end, to: text === "+" ? "-" : "+" };
    }
    if (TURNED_CALLS[upper] !== undefined && after?.text === "(") {
      const turned = TURNED_CALLS[upper];
      yield { operator: "turn comparison", at, end, to: text === upper ? turned : turned.toLowerCase() };
    }
    const ofType = before?.text === "(" && TYPES.test(tokens[index - 2]?.upper ?? "");
    if (kind === "number" && !ofType) yield* shifted(token);
    if ((upper === "AND" || upper === "OR") && !["COMMIT", "ROLLBACK"].includes(before?.upper)) yield* operands(index);
    if (upper === "NOT" && !["NULL", "EXISTS"].includes(after?.upper) && !["IF", "IS"].includes(before?.upper)) {
      if (after?.upper !== "IN") yield { operator: "drop condition", at, end: after.at, to: "" };
    }
    if (["IF", "ELSIF", "ELSEIF", "WHEN"].includes(upper) && before?.upper !== "END") yield* decided(index);
    if (upper === "WHERE") {
      const last = operandAfter(tokens, index + 1, (one) => OPERAND_STOPS.has(one.upper));
      const several = tokens.slice(index, last + 1).some((one) => one.upper === "AND" || one.upper === "OR");
      if (last > index && !several && !hasParameter(index + 1, last)) {
        yield { operator: "drop condition", at: after.at, end: tokens[last].end, to: "TRUE" };
      }
    }
    if (empty !== undefined && STATEMENT_FOLLOWS.has(before?.upper) && isDroppable(index)) {
      const close = tokens.findIndex((one, n) => n > index && one.text === ";");
      if (close !== -1) yield { operator: "drop statement", at, end: tokens[close].end, to: empty };
    }
    if (text === "(" && before?.kind === "word" && before.end === at) {
      const declared = ["FUNCTION", "PROCEDURE"].includes(tokens[index - 4]?.upper);
      const known = SYMMETRIC.has(before.upper) || TYPES.test(before.upper);
      // A whole row has a type of its own: it cannot be mistaken for another argument.
      const list = argumentsOf(tokens, index).filter(
        ([first, last]) => first !== last || !/^[nc]$/.test(tokens[first].text),
      );
      if (!declared && !known) yield* swaps(source, tokens, list);
    }
  }
  yield* droppedAssignments();

  function* operands(index) {
    const { upper } = tokens[index];
    const stops = (one) => {
      if (OPERAND_STOPS.has(one.upper) || one.upper === "OR" || (upper === "AND" && one.upper === "AND")) return true;
      return one.text === "=" && assigned.has(tokens.indexOf(one));
    };
    const first = operandBefore(tokens, index, stops);
    const last = operandAfter(tokens, index + 1, stops);
    if (first >= index || last <= index || between(first)) return;
    const operator = "drop condition";
    const kept = (one, two) => ({
      operator,
      at: tokens[one].at,
      end: tokens[two].end,
      to: `(${span(one, two)} OR TRUE)`,
    });
    // Of a chain each operand is dropped once: the left one only if it is the first.
    if (tokens[first - 1]?.upper !== upper) {
      if (upper === "AND" && hasParameter(first, index - 1)) yield kept(first, index - 1);
      else yield { operator, at: tokens[first].at, end: tokens[index + 1].at, to: "" };
    }
    if (upper === "AND" && hasParameter(index + 1, last)) yield kept(index + 1, last);
    else yield { operator, at: tokens[index - 1].end, end: tokens[last].end, to: "" };
  }

  /** The AND of a BETWEEN joins no conditions. */
  function between(first) {
    return (
      tokens[first - 1]?.upper === "BETWEEN" ||
      tokens[first]?.upper === "BETWEEN" ||
      tokens[first + 1]?.upper === "BETWEEN"
    );
  }

  /** IF … THEN and WHEN … THEN, decided for good. */
  function* decided(index) {
    const last = operandAfter(tokens, index + 1, (one) => one.upper === "THEN" || one.text === ";");
    if (last <= index || tokens[last + 1]?.upper !== "THEN") return;
    // CASE value WHEN constant: no condition.
    if (last === index + 1 && tokens[last].kind !== "word") return;
    for (const to of ["TRUE", "FALSE"]) {
      yield { operator: "decide condition", at: tokens[index + 1].at, end: tokens[last].end, to };
    }
  }

  function isDroppable(index) {
    if (tokens[index + 1]?.text === ":=") return true;
    // `record.field := …`
    if (tokens[index + 1]?.text === "." && tokens[index + 3]?.text === ":=") return true;
    // ON CONFLICT DO UPDATE is part of a statement; what a procedure selects at its end is its answer.
    if (tokens[index - 1].upper === "DO" && tokens[index].upper === "UPDATE") return false;
    return STATEMENTS.has(tokens[index].upper);
  }

  /** One of several assignments of SET is left out. */
  function* droppedAssignments() {
    for (const [index, token] of tokens.entries()) {
      if (token.upper !== "SET" || !belongsToUpdate(index)) continue;
      const items = [];
      let first = index + 1;
      const stops = (one) => ["WHERE", "FROM", "RETURNING", ";", "ON"].includes(one.upper);
      const last = operandAfter(tokens, index + 1, stops);
      for (let at = first; at <= last; at += 1) {
        if (tokens[at].match > at) at = tokens[at].match;
        if (tokens[at + 1]?.text === "," || at === last) {
          items.push([first, at]);
          first = at + 2;
          at += 1;
        }
      }
      if (items.length < 2) continue;
      for (const [n, [one, two]] of items.entries()) {
        if (hasParameter(one, two)) continue;
        const [at, end] =
          n === 0 ? [tokens[one].at, tokens[items[1][0]].at] : [tokens[items[n - 1][1]].end, tokens[two].end];
        yield { operator: "drop statement", at, end, to: "" };
      }
    }
  }

  function belongsToUpdate(index) {
    for (let at = index - 1; at >= 0 && tokens[at].text !== ";"; at -= 1)
      if (tokens[at].upper === "UPDATE") return true;
    return false;
  }
}

const endsOperand = (token) =>
  token !== undefined && (token.kind !== "op" || token.text === ")") && !OPERAND_STOPS.has(token.upper);

/** Which "=" assign: the first one of each item after SET, and after ON DUPLICATE KEY UPDATE. */
function assignments(tokens) {
  const found = new Set();
  for (const [index, { upper }] of tokens.entries()) {
    const starts = upper === "SET" || (upper === "UPDATE" && tokens[index - 1]?.upper === "KEY");
    if (!starts) continue;
    let open = true;
    for (let at = index + 1; at < tokens.length; at += 1) {
      const { text, match, upper: word } = tokens[at];
      if (match < at || text === ";" || word === "WHERE" || word === "RETURNING") break;
      if (match !== undefined) at = match;
      else if (text === ",") open = true;
      else if (text === "=" && open) {
        found.add(at);
        open = false;
      }
    }
  }
  return found;
}

/** Where the functions stand that count: of each name the last definition, in the order of the migrations. */
export function newestDefinitions(files) {
  const newest = new Map();
  for (const { file, text } of files) {
    for (const found of text.matchAll(/^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) holdfast\.(\w+)\(/gm)) {
      const rest = text.slice(found.index);
      const end = /^(?:END )?\$\$;|\$\$;$|^\/\/$/m.exec(rest);
      const length = end === null ? rest.length : end.index;
      const body = /\$\$|\bSQL SECURITY INVOKER\b/.exec(rest)?.index ?? 0;
      newest.set(found[1], { file, from: found.index + body, to: found.index + length });
    }
  }
  return [...newest.values()];
}
