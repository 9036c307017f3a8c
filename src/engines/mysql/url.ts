import { isIP } from "node:net";
import { type Account, parseLockTableUrl, readFileOf } from "../../sql/url.js";
import type { MysqlOptions } from "./options.js";

/** What mysql2 is told. */
export type MysqlServer = { readonly host: string; readonly port: number };

/** `server` is for mysql2, the rest is for us. */
export function parseUrl(text: string): {
  readonly server: MysqlServer;
  readonly account: Account;
  readonly own: MysqlOptions;
} {
  const allowed = "mysql://user:password@host:port/database?schema=name&tls=true&ca=file";
  const { url, account, own, take, takeBoolean, problem } = parseLockTableUrl(text, allowed);
  const [tls = false, ca] = [takeBoolean("tls"), take("ca")];
  const [unknown] = url.searchParams.keys();
  if (unknown !== undefined) throw problem(`"${unknown}" is none of schema, wake, migrate, tls, ca`);
  if (ca !== undefined && !tls) throw problem('"ca" is for tls=true');
  const authority = ca === undefined ? {} : { ca: readFileOf("ca", ca, problem) };
  const { hostname, port, pathname } = url;
  const host = hostname.replace(/^\[|\]$/g, "") || "localhost";
  const database = decodeURIComponent(pathname.slice(1));
  const server = {
    host,
    port: port === "" ? 3306 : Number(port),
    user: account.username ?? "",
    password: account.password ?? "",
    ...(database === "" ? {} : { database }),
    // mysql2 compares the certificate with a host's name on request only, and cannot compare it with an address.
    ...(tls ? { ssl: { rejectUnauthorized: true, verifyIdentity: isIP(host) === 0, ...authority } } : {}),
  };
  return { server, account, own };
}
