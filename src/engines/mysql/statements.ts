// Beyond the usual files: the text that calls each verb.
import { inSchema, placed, quotedWith } from "../../sql/statements.js";
import type { AnswerOf, ParametersOf, Value, Verb } from "../../sql/verbs.js";
import type { Changed } from "./driver.js";
import type { Server } from "./guarantees.js";
import { FUNCTIONS, STATEMENTS } from "./scripts.generated.js";

export const quoted = quotedWith("`");

export type Statement = { readonly sql: string; readonly values: unknown[] };

/** A statement that decides alone, and the answer it stands for when it changed a row. */
export type PlainStatement = Statement & { readonly answer: (changed: Changed) => AnswerOf<"claim" | "release"> };

/** How much is remembered. What was forgotten costs a statement more, or a longer one. */
const REMEMBERED_MAX = 10_000;

/**
 * A node applies what the others committed a moment later, and a renewal that it answers meanwhile would tell a holder that nothing is
 * held. With this it first catches up.
 */
const CAUGHT_UP = "SET STATEMENT wsrep_sync_wait = 15 FOR ";

/** A text with the names of its parameters, in order. */
class Template {
  readonly #sql: string;
  readonly #names: string[] = [];

  constructor(statement: string, schema: string) {
    const sql = placed(statement, (name) => (this.#names.push(name), "?"));
    this.#sql = inSchema(sql, quoted(schema));
  }

  with(parameters: Readonly<Record<string, Value>>): Statement {
    return { sql: this.#sql, values: this.#names.map((name) => encoded(parameters[name])) };
  }
}

/** The statement for each verb. */
export class MysqlStatements {
  readonly #calls: Readonly<Record<string, Template>>;
  readonly #claimIdle: Template;
  readonly #releaseOnly: Template;
  readonly #autocommit: boolean;
  /** Claims that were alone when they were granted: only for these is the plain release worth the try. */
  readonly #alone = new Set<string>();
  /** Names where the last claim had to queue: a hot lock costs no statement more. */
  readonly #crowded = new Set<string>();
  /** Names where the last release let somebody in: likely so the next time, and the plain release would be a round trip in vain. */
  readonly #followed = new Set<string>();

  /** `autocommit`: a statement is a transaction by itself. Elsewhere plain statements are not used. */
  constructor(schema: string, { autocommit, galera }: Pick<Server, "autocommit" | "galera">) {
    this.#autocommit = autocommit;
    this.#claimIdle = new Template(STATEMENTS.claim, schema);
    this.#releaseOnly = new Template(STATEMENTS.release, schema);
    const calls = Object.entries(FUNCTIONS).map(([verb, { name, parameters }]) => {
      const list = Object.keys(parameters).map((one) => `:${one}`);
      const first = galera ? CAUGHT_UP : "";
      return [verb, new Template(`${first}CALL holdfast.${quoted(name)}(${list.join(", ")})`, schema)];
    });
    this.#calls = Object.fromEntries(calls) as Record<string, Template>;
  }

  call<V extends Verb>(verb: V, parameters: ParametersOf<V>): Statement {
    return this.#calls[verb]?.with(parameters) ?? { sql: "", values: [] };
  }

  /** Takes an idle name; undefined where that cannot apply. */
  plainClaim(parameters: ParametersOf<"claim">): PlainStatement | undefined {
    const { name, units, capacity, leaseMs, exact } = parameters;
    if (!this.#autocommit || this.#crowded.has(name) || units > capacity) return undefined;
    const answer = ({ insertId: token }: Changed): AnswerOf<"claim"> => ({
      kind: "granted",
      leftMs: leaseMs,
      token,
      floor: token,
      ...(exact ? { live: [token] } : {}),
    });
    return { ...this.#claimIdle.with(parameters), answer };
  }

  /** Gives back the only claim of a name; undefined where that cannot apply. */
  plainRelease(parameters: ParametersOf<"release">): PlainStatement | undefined {
    const { name, id, tombstone, to } = parameters;
    const alone = this.#alone.delete(id);
    // With somebody to let go on it is not the only one any more.
    if (!this.#autocommit || !alone || tombstone || to !== null) return undefined;
    if (this.#crowded.has(name) || this.#followed.has(name)) return undefined;
    return { ...this.#releaseOnly.with(parameters), answer: () => "released" };
  }

  /** After a release by the procedure, which says whether it woke somebody. */
  released(name: string, woke: boolean): void {
    if (woke) remember(this.#followed, name);
    else this.#followed.delete(name);
  }

  /** After the answer to a claim. */
  claimed(name: string, id: string, answer: AnswerOf<"claim">): void {
    if (answer.kind === "queued") remember(this.#crowded, name);
    if (answer.kind !== "granted") return;
    this.#crowded.delete(name);
    if (answer.floor === answer.token) remember(this.#alone, id);
  }
}

function remember(memory: Set<string>, what: string): void {
  if (memory.size >= REMEMBERED_MAX) memory.clear();
  memory.add(what);
}

/** Text as bytes, which mysql2 writes as a hexadecimal literal: no quoting rule and no character set can change it. */
function encoded(value: Value | undefined): unknown {
  if (Array.isArray(value)) {
    return Buffer.from(JSON.stringify(value, (_, one: unknown) => (typeof one === "boolean" ? Number(one) : one)));
  }
  if (typeof value === "string") return Buffer.from(value);
  return typeof value === "boolean" ? Number(value) : value;
}
