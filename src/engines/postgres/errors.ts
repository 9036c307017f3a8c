import { FOREIGN, StoreErrors } from "../../sql/errors.js";

type ServerError = Error & { readonly code?: unknown; readonly severity?: unknown };

/** Somebody said `DEALLOCATE ALL` or `DISCARD ALL` on a connection of the pool: `pg` goes on naming what it prepared there. */
const FORGOT_STATEMENT = "26000";

/** By SQLSTATE. */
export const errors = new StoreErrors({
  kind: "postgres",
  codeOf: ({ code, severity }: ServerError) =>
    typeof code === "string" && severity !== undefined && /^[0-9A-Z]{5}$/.test(code) ? code : null,
  endsConnection: ({ code, severity }: ServerError) =>
    severity === "FATAL" || severity === "PANIC" || code === FORGOT_STATEMENT,
  refused: {
    "28000": "Check the user, the database and pg_hba.conf.",
    "28P01": "Check the user and the password.",
    "3D000": "Create the database, or check its name in the URL.",
    "42501": "Give the user the rights in docs/rights/postgres.sql.",
    "3F000": "The lock table is not there any more. Connect again to have it made.",
    "42P01": "The lock table is not there any more. Connect again to have it made.",
    "42883": "The lock table's functions are not there. Connect again to have them made, or update Holdfast.",
    "42703": FOREIGN,
    "42P07": FOREIGN,
    "42723": FOREIGN,
    "22021": "Use a database whose encoding is UTF8.",
    "22P05": "Use a database whose encoding is UTF8.",
  },
  passing: {
    "25006":
      "This server only reads: it is a replica, or default_transaction_read_only is set for this user. Connect to the primary.",
    "53100": "The server's disk is full; free some space.",
    "53300": "The server has no connection left; raise max_connections, or the user's limit.",
  },
  readOnly: ["25006"],
  transient: ["40001", "40P01", "55P03", FORGOT_STATEMENT],
});
