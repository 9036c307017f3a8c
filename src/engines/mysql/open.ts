import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import {
  EngineRefusedError,
  EngineUnavailableError,
  type InvalidOptionError,
  UnsupportedError,
} from "../../core/errors.js";
import { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { parseLockTableUrl } from "../../sql/url.js";
import type { MysqlConnection, MysqlPromisePool } from "./client.js";
import { type MysqlEngine, openEngine } from "./engine.js";
import { checkOptions, type MysqlOptions } from "./options.js";
import { translated } from "./refusals.js";

type OwnPool = MysqlPromisePool & { end(): Promise<void> };
type MysqlModule = { readonly createPool: (options: object) => OwnPool };

/** Two of them listen. MariaDB and MySQL allow 151 connections unless told otherwise. */
const CONNECTIONS_MAX = 10;
const CLOSE_WITHIN_MS = 2_000;

/** `mysql://user:password@host:port/database?schema=locks&tls=true&ca=/path/to/authority.pem`, and `mariadb://` the same. */
export async function openMysql(url: string, options: MysqlOptions = {}, load = loadInstalled): Promise<MysqlEngine> {
  const { server, own } = parseUrl(url);
  const all = { ...own, ...options };
  const { clock, callTimeoutMs } = checkOptions(all);
  const module = await loadIfInstalled("mysql2/promise", load);
  if (module === null) throw libraryMissing("mysql", "mysql2");
  const { createPool } = ((module as { default?: unknown }).default ?? module) as MysqlModule;
  const pool = createPool({
    ...server,
    connectionLimit: CONNECTIONS_MAX,
    connectTimeout: Math.ceil(callTimeoutMs),
    enableKeepAlive: true,
    charset: "utf8mb4",
  });
  const made = new Set<MysqlConnection>();
  pool.pool.on?.("connection", (connection) => {
    for (const one of made) if (one.stream?.destroyed === true) made.delete(one);
    made.add(connection);
  });
  const close = async (): Promise<void> => {
    // A server that does not answer must not hold up whoever leaves, nor keep the program alive by an open connection.
    const deadlines = new CallTimeouts(clock, CLOSE_WITHIN_MS);
    await deadlines.limit(pool.end()).catch(() => {});
    deadlines.close();
    for (const { stream } of made) stream?.destroy?.();
  };
  try {
    return await openEngine(pool, all, close);
  } catch (cause) {
    const error = translated(cause);
    if (error instanceof EngineRefusedError) throw error;
    if (cause instanceof UnsupportedError) throw cause;
    throw new EngineUnavailableError("mysql", "connecting", error);
  }
}

function parseUrl(text: string): { readonly server: object; readonly own: MysqlOptions } {
  const allowed = "mysql://user:password@host:port/database?schema=name&tls=true&ca=file";
  const { url, own, take, takeTruth, problem } = parseLockTableUrl(text, allowed);
  const [tls = false, ca] = [takeTruth("tls"), take("ca")];
  const [unknown] = url.searchParams.keys();
  if (unknown !== undefined) throw problem(`"${unknown}" is none of schema, wake, migrate, tls, ca`);
  if (ca !== undefined && !tls) throw problem('"ca" is for tls=true');
  const authority = ca === undefined ? {} : { ca: readAuthority(ca, problem) };
  const { hostname, port, username, password, pathname } = url;
  const host = hostname.replace(/^\[|\]$/g, "") || "localhost";
  const database = decodeURIComponent(pathname.slice(1));
  const server = {
    host,
    port: port === "" ? 3306 : Number(port),
    user: decodeURIComponent(username),
    password: decodeURIComponent(password),
    ...(database === "" ? {} : { database }),
    // mysql2 compares the certificate with a host's name on request only, and cannot compare it with an address.
    ...(tls ? { ssl: { rejectUnauthorized: true, verifyIdentity: isIP(host) === 0, ...authority } } : {}),
  };
  return { server, own };
}

function readAuthority(path: string, problem: (what: string) => InvalidOptionError): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw problem(`"ca" cannot be read: ${(error as Error).message}`);
  }
}
