import { askCredentials } from "../../engine-kit/credentials.js";
import { type Load, libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { OwnPool, unreachable } from "../../sql/open.js";
import type { MysqlConnection, MysqlPromisePool } from "./driver.js";
import { askingStream } from "./drivers/asking-stream.js";
import { type MysqlEngine, openEngine } from "./engine.js";
import { checkOptions, type MysqlUrlOptions } from "./options.js";
import { parseUrl } from "./url.js";

type MadePool = MysqlPromisePool & { end(): Promise<void> };
type MysqlModule = { readonly createPool: (options: object) => MadePool };

/** Two of them listen. MariaDB and MySQL allow 151 connections unless told otherwise. */
const CONNECTIONS_MAX = 10;

/** `mysql://user:password@host:port/database?schema=locks&tls=true&ca=/path/to/authority.pem`, and `mariadb://` the same. */
export async function openMysql(
  url: string,
  options: MysqlUrlOptions = {},
  load: Load = loadInstalled,
): Promise<MysqlEngine> {
  const { server, account, own } = parseUrl(url);
  const { credentials, ...rest } = options;
  const all = { ...own, ...rest };
  const { clock, callTimeoutMs } = checkOptions(all);
  const ask = askCredentials("mysql", credentials, account, { clock, callTimeoutMs });
  const module = await loadIfInstalled("mysql2/promise", load);
  if (module === null) throw libraryMissing("mysql", "mysql2");
  const { createPool } = ((module as { default?: unknown }).default ?? module) as MysqlModule;
  const pool = createPool({
    ...server,
    connectionLimit: CONNECTIONS_MAX,
    connectTimeout: Math.ceil(callTimeoutMs),
    enableKeepAlive: true,
    charset: "utf8mb4",
    // We prepare none, and the cache for them takes half a megabyte of each connection.
    maxPreparedStatements: 1,
    ...(ask === undefined ? {} : { stream: askingStream(server, ask) }),
  });
  const ours = new OwnPool<MysqlConnection>(pool, clock, ({ stream }) => stream);
  pool.pool.on?.("connection", ours.add);
  return openEngine(pool, all, () => ours.end()).catch((cause: unknown) => {
    throw unreachable("mysql", cause);
  });
}
