// Beyond the usual files: the text that calls each verb.
import { inSchema, placed, quotedWith } from "../../sql/statements.js";
import type { ParametersOf, Value, Verb } from "../../sql/verbs.js";
import type { PgQuery } from "./driver.js";
import { FUNCTIONS, STATEMENTS } from "./scripts.generated.js";

export const quoted = quotedWith('"');

type Options = {
  readonly schema: string;
  /** A commit waits for the disk. */
  readonly durable: boolean;
  /** Parsed once for each connection. Behind a pooler the next statement may meet another server process, which does not know it. */
  readonly prepared: boolean;
};

/**
 * The statement for each verb. Where a plain statement can stand for the function, it comes first, and the function is called
 * in the same statement when it changed nothing; worth it only when that is planned once.
 */
export class PostgresStatements {
  readonly #queries: Readonly<Record<Verb, PgQuery>>;

  constructor({ schema, durable, prepared }: Options) {
    // For this transaction only: the commit returns before the disk has it.
    const commit = durable ? "" : ", set_config('synchronous_commit', 'off', true)";
    const plain: Partial<Record<string, string>> = prepared ? STATEMENTS : {};
    const queries = Object.entries(FUNCTIONS).map(([verb, { name, parameters }]) => {
      const types: Readonly<Record<string, string>> = parameters;
      const names = Object.keys(types);
      const call = `holdfast.${name}(${names.map((one) => `:${one}`).join(", ")}) AS answer${commit}`;
      const first = plain[verb];
      const text =
        first === undefined
          ? `SELECT ${call}`
          : `WITH plain AS (${first}) SELECT answer${commit} FROM plain
             UNION ALL SELECT ${call} WHERE NOT EXISTS (SELECT FROM plain)`;
      const typed = placed(text, (one) => `$${names.indexOf(one) + 1}::${types[one]}`);
      const query = { text: inSchema(typed, quoted(schema)) };
      return [verb, prepared ? { ...query, name: `holdfast ${schema} ${verb} ${durable}` } : query];
    });
    this.#queries = Object.fromEntries(queries) as Record<Verb, PgQuery>;
  }

  query<V extends Verb>(verb: V, parameters: ParametersOf<V>): PgQuery {
    const given: Readonly<Record<string, Value>> = parameters;
    return { ...this.#queries[verb], values: Object.keys(FUNCTIONS[verb].parameters).map((name) => given[name]) };
  }
}
