import type { Verb } from "../../sql/lock-table.js";
import type { PgQuery } from "./client.js";
import { quoted } from "./listener.js";
import { FUNCTIONS } from "./scripts.generated.js";

/** As long as a function waits for another transaction. A filter is passed before the row that it lets through is locked. */
const PATIENCE = "set_config('lock_timeout', '3s', true) <> ''";

/** The server's clock when the statement came in: the same wherever it stands. Time spent waiting for the row is off the lease. */
const NOW = "statement_timestamp()";
const TOKEN = `greatest(t.last_token + 1, holdfast.micros(${NOW}), $11)`;
const END = `${NOW} + $5 * interval '1 millisecond'`;

/**
 * What can be decided by one plain statement: taking an idle name without marks, giving back the only claim of a name. Half of
 * what these cost as a function is the way into it. `$n` is the n-th parameter of the function of the same name, which is
 * called in the same statement when nothing was changed here.
 */
const QUICK: Partial<Record<Verb, string>> = {
  claim: `UPDATE holdfast.name t SET capacity = $4, taken = $3, holders = 1, last_token = ${TOKEN}, low_token = ${TOKEN},
      soonest_end = ${END}, touched_at = ${NOW}, sole_id = $2,
      sole = ROW($1, $2, 0, $3, ${TOKEN}, ${END}, $5, $11, $10, $12, $13, $8, $9)
    WHERE t.name = $1 AND t.holders = 0 AND t.waiters = 0 AND t.marks_end <= ${NOW} AND $3 <= $4 AND ${PATIENCE}
    RETURNING format(
      '{"kind":"granted","leftMs":%s,"token":%s,"floor":%2$s%s}', holdfast.left_ms(t.soonest_end, clock_timestamp()),
      t.last_token, CASE WHEN $10 THEN format(',"live":[%s]', t.last_token) END
    ) AS answer`,
  release: `UPDATE holdfast.name t SET taken = 0, holders = 0, soonest_end = 'infinity', touched_at = clock_timestamp(),
      sole_id = '', sole = NULL
    WHERE t.name = $1 AND t.sole_id = $2 AND $3 AND (t.sole).client = $5 AND t.soonest_end > clock_timestamp() AND ${PATIENCE}
    RETURNING 'released' AS answer`,
};

/** The statement for each function. `quick`: with what goes without the function; worth it only when it is planned once. */
export function statementsFor(schema: string, durable: boolean, quick: boolean): Readonly<Record<Verb, PgQuery>> {
  // For this transaction only: the commit returns before the disk has it.
  const commit = durable ? "" : ", set_config('synchronous_commit', 'off', true)";
  const entries = Object.entries(FUNCTIONS).map(([verb, types]) => {
    const call = `holdfast.${verb}(${types.map((_, at) => `$${at + 1}`).join(", ")}) AS answer${commit}`;
    const first = quick ? QUICK[verb as Verb] : undefined;
    const text =
      first === undefined
        ? `SELECT ${call}`
        : `WITH quick AS (${first}) SELECT answer${commit} FROM quick
           UNION ALL SELECT ${call} WHERE NOT EXISTS (SELECT FROM quick)`;
    const typed = text
      .replaceAll(/\$(\d+)/g, (place, number) => `${place}::${types[Number(number) - 1]}`)
      .replaceAll(/\bholdfast\./g, () => `${quoted(schema)}.`);
    // Behind a pooler the next statement may meet another server process, which knows no prepared statements of ours.
    return [verb, { text: typed, ...(quick ? { name: `holdfast ${schema} ${verb} ${durable}` } : {}) }];
  });
  return Object.fromEntries(entries) as Record<Verb, PgQuery>;
}
