import { shown } from "../../../core/checks.js";
import { HoldfastError, InvalidOptionError } from "../../../core/errors.js";
import type { MariadbConnection, MariadbPool, MysqlConnection, MysqlPool, MysqlQuery } from "../driver.js";

/** What a whole pool of `mariadb` can be told to do otherwise is said here again. Undefined counts, unlike in mysql2. */
const PLAIN = {
  rowsAsArray: false,
  nestTables: false,
  namedPlaceholders: false,
  metaAsArray: false,
  typeCast: undefined,
  timeout: undefined,
  // Tokens fit into a number, and are read from text or from a bigint as well.
  insertIdAsNumber: true,
  bigIntAsNumber: false,
  supportBigNumbers: false,
  checkNumberRange: false,
  // The owner is read as it was written.
  autoJsonMap: false,
  jsonStrings: true,
};

/** From here on the library numbers what went wrong on this side of the connection. */
const OWN_ERRORS_FROM = 45_000;

type MariadbError = Error & {
  readonly errno?: number;
  readonly sqlState?: string;
  readonly sqlMessage?: string;
  readonly fatal?: boolean;
};

export function isMariadbPool(pool: object): pool is MariadbPool {
  return "getConnection" in pool && "activeConnections" in pool && "taskQueueSize" in pool;
}

const pools = new WeakMap<MariadbPool, MysqlPool>();

/** The pool as one of mysql2, so that there is one driver. The same for each engine on it: what is known of its health is shared. */
export function mysqlPoolOf(pool: MariadbPool): MysqlPool {
  const known = pools.get(pool);
  if (known !== undefined) return known;
  const made = adapted(pool);
  pools.set(pool, made);
  return made;
}

/** What the library lends is a wrapper. The connection itself, of which the pool's event tells, shows its socket. */
type OwnConnection = Pick<MariadbConnection, "info"> & { readonly socket?: { destroy(error: Error): unknown } | null };

/** The library wraps a connection anew each time it is lent. What it says of the server stays the same object. */
const identityOf = (connection: Pick<MariadbConnection, "info">): object => connection.info ?? connection;

function adapted(pool: MariadbPool): MysqlPool {
  const connections = new WeakMap<object, PooledMariadbConnection>();
  const own = new WeakMap<object, OwnConnection>();
  pool.on?.("acquire", (connection) => own.set(identityOf(connection), connection));
  const listeners: ((connection: MysqlConnection) => void)[] = [];
  const lent = (connection: MariadbConnection): MysqlConnection => {
    const identity = identityOf(connection);
    const known = connections.get(identity);
    const one = known ?? new PooledMariadbConnection(own.get(identity));
    one.lent(connection);
    if (known !== undefined) return known;
    connections.set(identity, one);
    // The pool tells of a new one only after it was lent. One that is old and idle it asks itself before it lends it.
    for (const listener of listeners) listener(one);
    return one;
  };
  return {
    on: (_event, listener) => listeners.push(listener),
    getConnection(done) {
      promised(pool).then(
        (connection) => done(null, lent(connection)),
        (cause: unknown) => done(translated(cause), undefined as never),
      );
    },
  };
}

/** Of "mariadb/callback" the same call throws, or returns nothing. */
async function promised(pool: MariadbPool): Promise<MariadbConnection> {
  let asked: unknown;
  try {
    asked = pool.getConnection();
  } catch {
    asked = undefined;
  }
  if (asked instanceof Promise) return asked as Promise<MariadbConnection>;
  throw new InvalidOptionError("pool", shown(pool), 'a pool of "mariadb" itself, not of "mariadb/callback"');
}

class PooledMariadbConnection implements MysqlConnection {
  readonly #own: OwnConnection | undefined;
  #connection: MariadbConnection | null = null;

  constructor(own: OwnConnection | undefined) {
    this.#own = own;
  }

  lent(connection: MariadbConnection): void {
    this.#connection = connection;
  }

  query({ sql, values }: MysqlQuery, done: (error: Error | null, result: unknown) => void): void {
    const connection = this.#lent();
    connection.query({ ...PLAIN, sql: written(sql, values) }).then(
      (result) => done(null, changed(result) ? { ...result, serverStatus: connection.info?.status ?? 0 } : result),
      (cause: unknown) => done(translated(cause), undefined),
    );
  }

  release(): Promise<void> {
    // One that cannot go back is broken, and the library removes it.
    return this.#lent()
      .release()
      .catch(() => {});
  }

  /**
   * By its socket. The library's `destroy` opens another connection while a statement is under way, and sends KILL with the id that
   * this one has: if the server does not know it any more, the rejection is handled by nobody and ends the program, and if the
   * server was restarted meanwhile, the id is somebody else's (pitfall 53).
   */
  destroy(): void {
    const socket = this.#own?.socket;
    if (socket) socket.destroy(new Error("the connection was given up"));
    else this.#lent().destroy();
  }

  on(event: "error", listener: (error: Error) => void): void {
    this.#lent().on(event, listener);
  }

  #lent(): MariadbConnection {
    if (this.#connection === null) throw new Error("this connection was never lent");
    return this.#connection;
  }
}

/**
 * With the values in place. The library writes bytes as text with backslashes, which end it where `sql_mode` has
 * NO_BACKSLASH_ESCAPES; a hexadecimal literal means the same everywhere.
 */
function written(sql: string, values: readonly unknown[] = []): string {
  const [first = "", ...rest] = sql.split("?");
  return rest.reduce((text, piece, at) => `${text}${literal(values[at])}${piece}`, first);
}

function literal(value: unknown): string {
  if (Buffer.isBuffer(value)) return `x'${value.toString("hex")}'`;
  if (typeof value === "number" && Number.isFinite(value)) return String(value);
  if (value === null || value === undefined) return "NULL";
  throw new TypeError(`a ${typeof value} cannot be written as a literal`);
}

function changed(result: unknown): result is object {
  return typeof result === "object" && result !== null && !Array.isArray(result);
}

/** The library's own message carries the statement and its values. */
function translated(cause: unknown): Error {
  if (cause instanceof HoldfastError) return cause;
  const { message, errno = 0, sqlState, sqlMessage, fatal } = cause as MariadbError;
  const answered = errno > 0 && errno < OWN_ERRORS_FROM;
  return Object.assign(new Error(sqlMessage ?? message), { fatal, ...(answered ? { errno, sqlState } : {}) });
}
