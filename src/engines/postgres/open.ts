import { EngineRefusedError, EngineUnavailableError, UnsupportedError } from "../../core/errors.js";
import { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { parseLockTableUrl } from "../../sql/url.js";
import type { PgClient, PgPool } from "./client.js";
import { openEngine, type PostgresEngine } from "./engine.js";
import { checkOptions, type PostgresOptions } from "./options.js";

type OwnPool = PgPool & { on(event: "error", listener: (error: Error) => void): unknown; end(): Promise<void> };
type PgModule = { readonly Pool: new (options: object) => OwnPool };

/** Enough for many calls at once; PostgreSQL allows 100 connections unless told otherwise. */
const CONNECTIONS_MAX = 8;
const CLOSE_WITHIN_MS = 2_000;

/**
 * `postgres://user:password@host:port/database?schema=locks&durable=false`, and what `pg` itself understands: `sslmode`,
 * `sslrootcert`, `options` and so on.
 */
export async function openPostgres(
  url: string,
  options: PostgresOptions = {},
  load = loadInstalled,
): Promise<PostgresEngine> {
  const { connectionString, own } = parseUrl(url);
  const all = { ...own, ...options };
  const { clock, callTimeoutMs } = checkOptions(all);
  const module = await loadIfInstalled("pg", load);
  if (module === null) throw libraryMissing("postgres", "pg");
  const { Pool } = ((module as { default?: unknown }).default ?? module) as PgModule;
  const pool = new Pool({
    connectionString,
    max: CONNECTIONS_MAX,
    connectionTimeoutMillis: callTimeoutMs,
    keepAlive: true,
    application_name: "holdfast",
  });
  // A connection that breaks while nobody uses it: the pool makes a new one when it is needed.
  pool.on("error", () => {});
  const made = new Set<PgClient>();
  pool.on?.("connect", (client) => {
    for (const one of made) if (one.connection?.stream?.destroyed === true) made.delete(one);
    made.add(client);
  });
  const close = async (): Promise<void> => {
    // A server that does not answer must not hold up whoever leaves, nor keep the program alive by an open connection.
    const deadlines = new CallTimeouts(clock, CLOSE_WITHIN_MS);
    await deadlines.limit(pool.end()).catch(() => {});
    deadlines.close();
    for (const { connection } of made) connection?.stream?.destroy?.();
  };
  try {
    return await openEngine(pool, all, close);
  } catch (error) {
    if (error instanceof EngineRefusedError || error instanceof UnsupportedError) throw error;
    throw new EngineUnavailableError("postgres", "connecting", error);
  }
}

/** Takes out what is for us; the rest is for `pg`. */
function parseUrl(text: string): { readonly connectionString: string; readonly own: PostgresOptions } {
  const allowed = "postgres://user:password@host:port/database?schema=name&durable=true";
  const { url, own, takeTruth } = parseLockTableUrl(text, allowed);
  const durable = takeTruth("durable");
  return { connectionString: url.href, own: { ...own, ...(durable === undefined ? {} : { durable }) } };
}
