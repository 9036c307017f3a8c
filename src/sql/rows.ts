import { checkCount, shown } from "../core/checks.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../core/clock.js";
import { InvalidOptionError } from "../core/errors.js";
import { pause } from "../engine-kit/pause.js";
import { type AddAnswer, type AddOptions, addInTransaction } from "./roll-back.js";
import { type Dialect, type RowKey, selection, tableOf } from "./row-statements.js";

export type ForUpdateOptions = RowKey & {
  /** When somebody else has the row: `wait` for it (the default), fail at once (`nowait`), or get null (`skip`). */
  readonly busy?: "wait" | "nowait" | "skip";
};

export type OptimisticOptions = RowKey & {
  /** The column that counts changes; `version` unless said otherwise. */
  readonly version?: string;
  /** How often to try before giving up; 10 unless said otherwise. */
  readonly attempts?: number;
  /** Time and chance, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
};

/** `left`: the callback returned null. `conflict`: somebody else was faster every time. */
export type OptimisticAnswer<Row> =
  | { readonly kind: "written"; readonly row: Row; readonly attempts: number }
  | { readonly kind: "left"; readonly row: Row }
  | { readonly kind: "missing" }
  | { readonly kind: "conflict"; readonly attempts: number };

type Change<Row> = (row: Row) => Partial<Row> | null | Promise<Partial<Row> | null>;

/** The three ways to change a row that several want to change; `Db` is what a client library calls its connection. */
export type RowLocks<Db> = {
  /**
   * Lock a row in a transaction of yours, until it ends, and get it; null when there is none. One round trip, and every other
   * transaction that wants the row waits meanwhile: keep it short.
   */
  readonly forUpdate: <Row extends object = Record<string, unknown>>(
    tx: Db,
    options: ForUpdateOptions,
  ) => Promise<Row | null>;
  /**
   * Change a row without locking it: read it, and write only if its version is still the one that was read; otherwise try
   * again. Two round trips when nobody interferes, two more for each conflict. Inside a transaction only with `attempts: 1`:
   * under repeatable read, MySQL's default, it would read the same old version for ever.
   */
  readonly optimistic: <Row extends object = Record<string, unknown>>(
    db: Db,
    options: OptimisticOptions,
    change: Change<Row>,
  ) => Promise<OptimisticAnswer<Row>>;
  /**
   * Change first, then look: in a transaction of its own, add to the columns of a row and give the callback the row as it is
   * now. True commits, together with what the callback did on the same connection; false, or an error, rolls all of it back.
   * Nobody reads before it writes, so there are no conflicts, and the row is locked for two round trips and the callback. On one
   * connection, not a pool, with no transaction open.
   */
  readonly addOrRollBack: <Row extends object = Record<string, unknown>>(
    connection: Db,
    options: AddOptions,
    accept: (row: Row) => boolean | Promise<boolean>,
  ) => Promise<AddAnswer<Row>>;
};

export function rowLocks<Db>(dialectOf: (db: Db) => Dialect): RowLocks<Db> {
  return {
    forUpdate: async (tx, options) => selectForUpdate(dialectOf(tx), options),
    optimistic: async (db, options, change) => changeOptimistically(dialectOf(db), options, change),
    addOrRollBack: async (connection, options, accept) => addInTransaction(dialectOf(connection), options, accept),
  };
}

/** The pause after a conflict grows to this, with chance in it: those who collided do not collide again. */
const PAUSE_MAX_MS = 50;

/** `SELECT … FOR UPDATE`: the row, locked until the caller's transaction ends; null when there is none. */
async function selectForUpdate<Row>(dialect: Dialect, options: ForUpdateOptions): Promise<Row | null> {
  const { busy = "wait" } = options;
  const suffix = { wait: "", nowait: " NOWAIT", skip: " SKIP LOCKED" }[busy];
  if (suffix === undefined) throw new InvalidOptionError("busy", shown(busy), '"wait", "nowait" or "skip"');
  const { text, values } = selection(dialect, options);
  const { rows } = await dialect.run(`${text} FOR UPDATE${suffix}`, values);
  return (rows[0] as Row | undefined) ?? null;
}

/** Read, change, write when the version is still the one that was read; otherwise again, a bounded number of times. */
async function changeOptimistically<Row extends object>(
  dialect: Dialect,
  options: OptimisticOptions,
  change: Change<Row>,
): Promise<OptimisticAnswer<Row>> {
  const { version = "version", clock = new SystemClock(), chance = new SystemChance() } = options;
  const most = checkCount("attempts", options.attempts ?? 10, 1, 1000);
  const { text, values } = selection(dialect, options);
  for (let attempts = 1; ; attempts += 1) {
    const row = (await dialect.run(text, values)).rows[0] as (Row & Record<string, unknown>) | undefined;
    if (row === undefined) return { kind: "missing" };
    const seen = row[version];
    if (seen === undefined)
      throw new InvalidOptionError("version", `the row has no column "${version}"`, "a column of the table");
    const changes = await change(row);
    if (changes === null) return { kind: "left", row };
    if (await writeOver(dialect, options, version, seen, changes)) {
      return { kind: "written", row: { ...row, ...changes, [version]: Number(seen) + 1 }, attempts };
    }
    if (attempts >= most) return { kind: "conflict", attempts };
    await pause(clock, Math.min(PAUSE_MAX_MS, 2 ** attempts) * chance.fraction());
  }
}

async function writeOver(
  dialect: Dialect,
  where: RowKey,
  version: string,
  seen: unknown,
  changes: object,
): Promise<boolean> {
  const { quote, place } = dialect;
  const values: unknown[] = [];
  const given = (value: unknown): string => place(values.push(value), value);
  const sets = Object.entries(changes)
    .filter(([column]) => column !== version)
    .map(([column, value]) => `${quote(column)} = ${given(value)}`);
  sets.push(`${quote(version)} = ${quote(version)} + 1`);
  const matches = Object.entries(where.key).map(([column, value]) => `${quote(column)} = ${given(value)}`);
  matches.push(`${quote(version)} = ${given(seen)}`);
  const text = `UPDATE ${tableOf(dialect, where)} SET ${sets.join(", ")} WHERE ${matches.join(" AND ")}`;
  return (await dialect.run(text, values)).changed === 1;
}
