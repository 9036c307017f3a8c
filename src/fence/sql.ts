import { shown } from "../core/checks.js";
import { InvalidOptionError, StaleTokenError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import {
  checkFenceOptions,
  checkRaise,
  checkToken,
  type Fence,
  type FenceOptions,
  type FenceToken,
  liveText,
} from "./token.js";

export type SqlDialect = "postgres" | "mysql" | "sqlite";

export interface SqlFenceOptions extends FenceOptions {
  /** `holdfast_fence` unless said otherwise; `schema.table` works too. */
  readonly table?: string;
}

/** A `Client` of `pg` with a transaction open, or a `Pool` where none is needed. */
export interface PgQueryable {
  query(query: { text: string; values: unknown[] }): Promise<{ readonly rowCount: number | null }>;
}

/** A connection of `mysql2/promise` with a transaction open, or a pool where none is needed. */
export interface MysqlQueryable {
  query(sql: string, values: unknown[]): Promise<readonly [unknown, unknown]>;
}

/** `node:sqlite`, `libsql` and `better-sqlite3` fit as they are. */
export interface SqliteQueryable {
  prepare(sql: string): { run(...values: (string | number)[]): { readonly changes: number | bigint } };
}

export interface SqliteFence extends Fence {
  /** `accept` for a transaction that cannot wait. */
  acceptSync(resource: string, token: FenceToken): void;
  raiseSync(resource: string, token: number): void;
}

const TABLE = "holdfast_fence";

/** The statement that makes the table, for your migrations. */
export function fenceTable(dialect: SqlDialect, table: string = TABLE): string {
  // Bytes in MySQL: its text would fold case. The list of live tokens has at most 64 of them.
  const [text, list, end] = {
    postgres: ["text", "text", ""],
    mysql: ["varbinary(512)", "varchar(1200)", " ENGINE = InnoDB"],
    sqlite: ["text", "text", ""],
  }[checkDialect(dialect)] as [string, string, string];
  return (
    `CREATE TABLE IF NOT EXISTS ${quotedTable(dialect, table)} (resource ${text} NOT NULL PRIMARY KEY, ` +
    `fence bigint NOT NULL, newest bigint NOT NULL DEFAULT 0, live ${list} NOT NULL DEFAULT '')${end}`
  );
}

/** The fence as a row of a table of its own. Pass the connection whose transaction does the writing: they stand or fall together. */
export function postgresFence(tx: PgQueryable, options: SqlFenceOptions = {}): Fence {
  const sql = upserts("postgres", options);
  const run = async ({ text, values }: Statement): Promise<boolean> =>
    (await tx.query({ text, values: [...values] })).rowCount === 1;
  return {
    async accept(resource, token) {
      if (!(await run(sql.accept(resource, token)))) throw stale(resource, token);
    },
    async raise(resource, token) {
      await run(sql.raise(resource, token));
    },
  };
}

/** As `postgresFence`, on MySQL and MariaDB. */
export function mysqlFence(tx: MysqlQueryable, options: SqlFenceOptions = {}): Fence {
  const sql = duplicates(options);
  return {
    async accept(resource, token) {
      const { text, values } = sql.accept(resource, token);
      const [{ insertId }] = (await tx.query(text, nameAsBytes(values))) as readonly [
        { insertId: number | string },
        unknown,
      ];
      // The refusing branch alone says LAST_INSERT_ID(fence): whether a row changed does not tell, one may write twice.
      if (Number(insertId) !== 0) throw stale(resource, token, Number(insertId));
    },
    async raise(resource, token) {
      const { text, values } = sql.raise(resource, token);
      await tx.query(text, nameAsBytes(values));
    },
  };
}

/**
 * The resource, which comes first, as bytes, which mysql2 writes as a hexadecimal literal. As text it would be written with
 * backslashes, which end it where `sql_mode` has NO_BACKSLASH_ESCAPES, and would become other bytes on a connection with another
 * character set. Lists of tokens stay text, which the server writes in the character set of their column.
 */
function nameAsBytes([name, ...others]: Statement["values"]): unknown[] {
  return [Buffer.from(String(name)), ...others];
}

/** As `postgresFence`, on SQLite. */
export function sqliteFence(db: SqliteQueryable, options: SqlFenceOptions = {}): SqliteFence {
  const sql = upserts("sqlite", options);
  const run = ({ text, values }: Statement): boolean => Number(db.prepare(text).run(...values).changes) === 1;
  const acceptSync = (resource: string, token: FenceToken): void => {
    if (!run(sql.accept(resource, token))) throw stale(resource, token);
  };
  const raiseSync = (resource: string, token: number): void => void run(sql.raise(resource, token));
  return {
    acceptSync,
    raiseSync,
    accept: async (resource, token) => acceptSync(resource, token),
    raise: async (resource, token) => raiseSync(resource, token),
  };
}

type Statement = { readonly text: string; readonly values: readonly (string | number)[] };
type Statements = {
  accept(resource: string, token: FenceToken): Statement;
  raise(resource: string, token: number): Statement;
};

/** PostgreSQL and SQLite: the row is made or changed, or the condition fails and no row is counted. */
function upserts(dialect: "postgres" | "sqlite", options: SqlFenceOptions): Statements {
  checkFenceOptions(options, ["table"]);
  const table = quotedTable(dialect, options.table ?? TABLE);
  const [larger, p] = dialect === "postgres" ? ["GREATEST", (n: number) => `$${n}`] : ["MAX", () => "?"];
  const rise = `fence = ${larger}(f.fence, excluded.fence)`;
  const onFloor =
    `INSERT INTO ${table} AS f (resource, fence) VALUES (${p(1)}, ${p(2)}) ` +
    `ON CONFLICT (resource) DO UPDATE SET ${rise}`;
  const exact =
    `INSERT INTO ${table} AS f (resource, fence, newest, live) VALUES (${p(1)}, ${p(2)}, ${p(3)}, ${p(4)}) ` +
    `ON CONFLICT (resource) DO UPDATE SET ${rise}, newest = ${larger}(f.newest, excluded.newest), ` +
    `live = CASE WHEN excluded.newest > f.newest THEN excluded.live ELSE f.live END ` +
    `WHERE f.fence <= excluded.newest AND (excluded.newest > f.newest OR f.live LIKE ${p(5)})`;
  return {
    accept(resource, given) {
      const { token, floor, live } = checkToken(given, options);
      const name = checkName(resource);
      return live === undefined
        ? { text: `${onFloor} WHERE f.fence <= ${p(3)}`, values: [name, floor, token] }
        : { text: exact, values: [name, floor, token, liveText(live), `%,${token},%`] };
    },
    raise: (resource, token) => ({ text: onFloor, values: [checkName(resource), checkRaise(token, options)] }),
  };
}

/** MySQL and MariaDB have no condition there. Assignments are made from left to right, so the fence comes last. */
function duplicates(options: SqlFenceOptions): Statements {
  checkFenceOptions(options, ["table"]);
  const table = quotedTable("mysql", options.table ?? TABLE);
  const onFloor = `INSERT INTO ${table} (resource, fence) VALUES (?, ?) ON DUPLICATE KEY UPDATE fence =`;
  const lives = "fence <= ? AND (? > newest OR live LIKE ?)";
  const exact =
    `INSERT INTO ${table} (resource, fence, newest, live) VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE ` +
    "live = IF(fence <= ? AND ? > newest, ?, live), newest = IF(fence <= ?, GREATEST(newest, ?), newest), " +
    `fence = IF(${lives}, GREATEST(fence, ?), LAST_INSERT_ID(fence))`;
  return {
    accept(resource, given) {
      const { token, floor, live } = checkToken(given, options);
      const name = checkName(resource);
      if (live === undefined) {
        const text = `${onFloor} IF(fence <= ?, GREATEST(fence, ?), LAST_INSERT_ID(fence))`;
        return { text, values: [name, floor, token, floor] };
      }
      const list = liveText(live);
      const sets = [token, token, list, token, token, token, token, `%,${token},%`, floor];
      return { text: exact, values: [name, floor, token, list, ...sets] };
    },
    raise(resource, token) {
      const floor = checkRaise(token, options);
      return { text: `${onFloor} GREATEST(fence, ?)`, values: [checkName(resource), floor, floor] };
    },
  };
}

function stale(resource: string, given: FenceToken, fence?: number): StaleTokenError {
  return new StaleTokenError(resource, typeof given === "number" ? given : given.token, fence);
}

export function checkDialect(dialect: SqlDialect): SqlDialect {
  if (["postgres", "mysql", "sqlite"].includes(dialect)) return dialect;
  throw new InvalidOptionError("dialect", shown(dialect), '"postgres", "mysql" or "sqlite"');
}

/** An identifier, as data that cannot end it. */
export function quoted(dialect: SqlDialect, identifier: string): string {
  const mark = dialect === "mysql" ? "`" : '"';
  return `${mark}${identifier.replaceAll(mark, mark + mark)}${mark}`;
}

function quotedTable(dialect: SqlDialect, table: string): string {
  if (typeof table !== "string" || table === "") throw new InvalidOptionError("table", shown(table), "a table's name");
  return table
    .split(".")
    .map((part) => quoted(dialect, part))
    .join(".");
}
