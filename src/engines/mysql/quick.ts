import type { Value, Verb } from "../../sql/lock-table.js";
import { quoted } from "./schema.js";

/** What a single statement changed; `insertId` carries the token that it minted. */
export type Changed = { readonly affectedRows: number; readonly insertId: number; readonly serverStatus?: number };

/** A statement that decides alone, with its values and the answer it stands for. */
export type Quick = {
  readonly sql: string;
  readonly values: readonly Value[];
  readonly answer: (changed: Changed) => string;
};

const NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
const NEVER = "8000000000000000000";
/** How much is remembered. What was forgotten costs a statement more, or a longer one. */
const REMEMBERED_MAX = 10_000;

/**
 * Taking an idle name without marks, and giving back the only claim of a name, as plain statements: a CALL costs this server
 * twice as much. What does not apply changes nothing and is asked of the procedure.
 */
export class QuickStatements {
  readonly #take: string;
  readonly #give: string;
  /** Claims that were alone when they were granted: only these are worth the try to give them back like that. */
  readonly #sole = new Set<string>();
  /** Names where it did not apply the last time, because others were there: a hot lock costs no statement more. */
  readonly #crowded = new Set<string>();

  constructor(schema: string) {
    const table = `${quoted(schema)}.name`;
    this.#take = `UPDATE ${table} SET capacity = ?, taken = ?, holders = 1, soonest_end = ${NOW} + ? * 1000, touched_at = ${NOW},
      last_token = LAST_INSERT_ID(GREATEST(last_token + 1, ${NOW}, ?)), sole_id = ?, sole_lease_ms = ?, sole_exact = ?,
      sole_client = ?, sole_hears = ?, sole_owner = ?, sole_data = ?
      WHERE name = ? AND holders = 0 AND waiters = 0 AND marks_end <= ${NOW}`;
    this.#give = `UPDATE ${table} SET taken = 0, holders = 0, soonest_end = ${NEVER}, touched_at = ${NOW},
      sole_id = DEFAULT(sole_id)
      WHERE name = ? AND sole_id = ? AND sole_client = ? AND soonest_end > ${NOW}`;
  }

  /** The statement for a call of a procedure, if there is one that may apply. */
  of(verb: Verb, args: readonly Value[]): Quick | undefined {
    if (this.#crowded.has(String(args[0]))) return undefined;
    if (verb === "claim") return this.#claim(args);
    return verb === "release" ? this.#release(args) : undefined;
  }

  /** After a release by the procedure: whether somebody stood there waiting. */
  left(name: Value | undefined, crowded: boolean): void {
    if (crowded) remember(this.#crowded, String(name));
    else this.#crowded.delete(String(name));
  }

  #claim(args: readonly Value[]): Quick | undefined {
    const [name = "", id = "", units = 0, capacity = 0, leaseMs = 0, , , owner = "", data = null] = args;
    const [exact = false, atLeast = 0, client = "", hears = false] = args.slice(9);
    if (Number(units) > Number(capacity)) return undefined;
    return {
      sql: this.#take,
      values: [capacity, units, leaseMs, atLeast, id, leaseMs, exact, client, hears, owner, data, name],
      answer: ({ insertId: token }) => {
        remember(this.#sole, String(id));
        const live = exact ? { live: [token] } : {};
        return JSON.stringify({ kind: "granted", leftMs: leaseMs, token, floor: token, ...live });
      },
    };
  }

  #release([name = "", id = "", settled = false, , client = ""]: readonly Value[]): Quick | undefined {
    const known = this.#sole.delete(String(id));
    if (!known || !settled) return undefined;
    return { sql: this.#give, values: [name, id, client], answer: () => "released" };
  }
}

function remember(memory: Set<string>, what: string): void {
  if (memory.size >= REMEMBERED_MAX) memory.clear();
  memory.add(what);
}
