import { FOREIGN, StoreErrors } from "../../sql/errors.js";

const RIGHTS = "Give the user the rights in docs/rights/mysql.sql.";
const READ_ONLY = "This server only reads: it is a replica, or set so. Connect to the primary.";
const MISSING = "The lock table is not there any more. Connect again to have it made.";

/** The statement under way was ended: by a KILL QUERY, or by a limit of time (of MariaDB, of MySQL). */
export const INTERRUPTED: readonly number[] = [1317, 1969, 3024];

/**
 * Something is left open on this connection. In an XA transaction of somebody else (1399) nothing can be done or committed. A
 * procedure that is interrupted between two of its statements ends without its handler, with its transaction open: its rows
 * would stay locked for as long as the connection rests in the pool, and the next call on it would commit one half. Without
 * the connection all of it is undone.
 */
const LEFT_OPEN = new Set<unknown>([1399, ...INTERRUPTED]);

type ServerError = Error & { readonly errno?: unknown; readonly sqlState?: unknown; readonly fatal?: boolean };

/** By error number. */
export const errors = new StoreErrors({
  kind: "mysql",
  codeOf: ({ errno, sqlState }: ServerError) => (typeof errno === "number" && sqlState !== undefined ? errno : null),
  endsConnection: ({ errno, fatal }: ServerError) => LEFT_OPEN.has(errno) || fatal === true,
  refused: {
    1044: RIGHTS,
    1142: RIGHTS,
    1143: RIGHTS,
    1227: RIGHTS,
    1370: RIGHTS,
    1045: "Check the user and the password.",
    1698: "Check the user and the password.",
    1049: "Create the database, or check its name in the URL.",
    1146: MISSING,
    1305: MISSING,
    1054: FOREIGN,
    1136: FOREIGN,
    1318: "The lock table's procedures are of another version. Update Holdfast here.",
    1665: "Set binlog_format to ROW or MIXED.",
  },
  passing: {
    1290: READ_ONLY,
    1792: READ_ONLY,
    1836: READ_ONLY,
    1021: "The server's disk is full; free some space.",
    1114: "The server's disk is full; free some space.",
    1040: "The server has no connection left; raise max_connections.",
    1203: "The user has no connection left; raise max_user_connections.",
    1226: "The user has no connection left; raise max_user_connections.",
  },
  // Not 1792: that is the connection's setting, which the procedures do without.
  readOnly: [1290, 1836],
  // Deadlock, a lock not had in time, a row that changed.
  transient: [1020, 1205, 1213, 1614],
  // On MySQL a procedure is replaced by a drop and a create, and a call may come in between.
  replaced: 1305,
});
