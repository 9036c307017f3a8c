import { type Account, type LockTableUrl, parseLockTableUrl, readFileOf } from "../../sql/url.js";
import type { PostgresOptions } from "./options.js";

const TLS_FILES = ["sslrootcert", "sslcert", "sslkey"];
const TLS = ["sslmode", ...TLS_FILES, "sslnegotiation", "ssl"];

/** Takes out what is for us; the rest is for `pg`. */
export function parseUrl(text: string): {
  readonly connectionString: string;
  readonly account: Account;
  readonly own: PostgresOptions;
} {
  const allowed = "postgres://user:password@host:port/database?schema=name&durable=true";
  const { url, account, own, takeBoolean, problem } = parseLockTableUrl(text, allowed);
  const durable = takeBoolean("durable");
  checkTls(url, problem);
  const password = account.password ?? (url.searchParams.get("password") || undefined);
  return {
    connectionString: url.href,
    account: { ...account, password },
    own: { ...own, ...(durable === undefined ? {} : { durable }) },
  };
}

/** What `pg` does not know, or finds empty, it leaves out: who misspells a word about TLS would speak without it, and not be told. */
function checkTls(url: URL, problem: LockTableUrl["problem"]): void {
  for (const [key, value] of url.searchParams) {
    if (!/^(ssl|tls$|ca$)/i.test(key)) continue;
    if (!TLS.includes(key)) throw problem(`"${key}" is none of ${TLS.join(", ")}`);
    if (value === "") throw problem(`"${key}" is empty`);
    if (TLS_FILES.includes(key)) readFileOf(key, value, problem);
  }
}
