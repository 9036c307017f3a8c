import { type Account, parseLockTableUrl } from "../../sql/url.js";
import type { PostgresOptions } from "./options.js";

/** Takes out what is for us; the rest is for `pg`. */
export function parseUrl(text: string): {
  readonly connectionString: string;
  readonly account: Account;
  readonly own: PostgresOptions;
} {
  const allowed = "postgres://user:password@host:port/database?schema=name&durable=true";
  const { url, account, own, takeBoolean } = parseLockTableUrl(text, allowed);
  const durable = takeBoolean("durable");
  return { connectionString: url.href, account, own: { ...own, ...(durable === undefined ? {} : { durable }) } };
}
