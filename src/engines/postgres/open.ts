import { askCredentials } from "../../engine-kit/credentials.js";
import { type Load, libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { OwnPool, unreachable } from "../../sql/open.js";
import type { PgConnection, PgPool } from "./driver.js";
import { askingClient, type ClientClass } from "./drivers/asking-client.js";
import { openEngine, type PostgresEngine } from "./engine.js";
import { checkOptions, type PostgresUrlOptions } from "./options.js";
import { parseUrl } from "./url.js";

type MadePool = PgPool & { on(event: "error", listener: (error: Error) => void): unknown; end(): Promise<void> };
type PgModule = { readonly Pool: new (options: object) => MadePool; readonly Client: ClientClass };

/** Enough for many calls at once; PostgreSQL allows 100 connections unless told otherwise. */
const CONNECTIONS_MAX = 8;

/**
 * `postgres://user:password@host:port/database?schema=locks&durable=false`, and what `pg` itself understands: `sslmode`,
 * `sslrootcert`, `options` and so on.
 */
export async function openPostgres(
  url: string,
  options: PostgresUrlOptions = {},
  load: Load = loadInstalled,
): Promise<PostgresEngine> {
  const { connectionString, account, own } = parseUrl(url);
  const { credentials, ...rest } = options;
  const all = { ...own, ...rest };
  const { clock, callTimeoutMs } = checkOptions(all);
  const ask = askCredentials("postgres", credentials, account, { clock, callTimeoutMs });
  const module = await loadIfInstalled("pg", load);
  if (module === null) throw libraryMissing("postgres", "pg");
  const { Pool, Client } = ((module as { default?: unknown }).default ?? module) as PgModule;
  const pool = new Pool({
    connectionString,
    max: CONNECTIONS_MAX,
    connectionTimeoutMillis: callTimeoutMs,
    keepAlive: true,
    application_name: "holdfast",
    ...(ask === undefined ? {} : { Client: askingClient(Client, ask) }),
  });
  // A connection that breaks while nobody uses it: the pool makes a new one when it is needed.
  pool.on("error", () => {});
  const ours = new OwnPool<PgConnection>(pool, clock, ({ connection }) => connection?.stream);
  pool.on?.("connect", ours.add);
  return openEngine(pool, all, () => ours.end()).catch((cause: unknown) => {
    throw unreachable("postgres", cause);
  });
}
