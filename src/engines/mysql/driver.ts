/** What a statement is asked with: everything that mysql2 can be told to do otherwise for a whole pool is said here again. */
export type MysqlQuery = {
  readonly sql: string;
  readonly values?: unknown[];
  readonly rowsAsArray?: false;
  readonly nestTables?: false;
  readonly namedPlaceholders?: false;
  readonly typeCast?: true;
};

/** The calls this engine makes on a connection of `mysql2`. */
export interface MysqlConnection {
  query(query: MysqlQuery, done: (error: Error | null, result: unknown) => void): unknown;
  /** Of `mariadb` a promise, because it may roll back first. */
  release(): unknown;
  destroy(): void;
  on?(event: "error", listener: (error: Error) => void): unknown;
  readonly stream?: { readonly destroyed?: boolean; destroy?(): unknown };
}

/** A pool of `mysql2`; it may be shared with the rest of the program. It needs three connections at least. */
export interface MysqlPool {
  getConnection(done: (error: Error | null, connection: MysqlConnection) => void): void;
  on?(event: "connection", listener: (connection: MysqlConnection) => void): unknown;
  readonly config?: { readonly connectionLimit?: number };
}

/** A pool of `mysql2/promise` is one of `mysql2` in a wrapper, which costs more than a plain statement does. */
export interface MysqlPromisePool {
  readonly pool: MysqlPool;
}

/** The calls this engine makes on a connection of `mariadb`. */
export interface MariadbConnection {
  query(query: { readonly sql: string }): Promise<unknown>;
  release(): Promise<void>;
  destroy(): void;
  on(event: "error", listener: (error: Error) => void): unknown;
  /** One object for as long as the connection lives, with what the server said last. Only the library's types know of none. */
  readonly info: { readonly status?: number | null } | null;
}

/** A pool of `mariadb` (its promise API); it may be shared with the rest of the program. It needs three connections at least. */
export interface MariadbPool {
  getConnection(): Promise<MariadbConnection>;
  on?(event: "acquire", listener: (connection: Pick<MariadbConnection, "info">) => void): unknown;
  activeConnections(): number;
  taskQueueSize(): number;
}

export type Row = Readonly<Record<string, unknown>>;

/** What a statement changed; `insertId` carries the token that it minted. */
export type Changed = { readonly affectedRows: number; readonly insertId: number; readonly serverStatus?: number };

/** Text comes as bytes, whatever the connection's character set is. */
export function textOf(value: unknown): string {
  return Buffer.isBuffer(value) ? value.toString("utf8") : String(value);
}

/** All result sets of a statement: one of a SELECT, any number of a CALL. */
export function resultSets(result: unknown): readonly (readonly Row[])[] {
  if (!Array.isArray(result)) return [];
  const list = result as readonly unknown[];
  return list.some((one) => Array.isArray(one))
    ? list.filter((one): one is readonly Row[] => Array.isArray(one))
    : [list as readonly Row[]];
}
