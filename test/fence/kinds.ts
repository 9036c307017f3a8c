import { mkdtempSync, rmSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { Agent, createServer, request as httpRequest, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Redis } from "ioredis";
import Database from "libsql";
import { createPool, type PoolConnection, type ResultSetHeader, type RowDataPacket } from "mysql2/promise";
import { Pool, type PoolClient } from "pg";
import { createClient } from "redis";
import { CODE } from "../../src/engines/zookeeper/errors.js";
import {
  etcdGuard,
  type FenceToken,
  fenceColumn,
  fencedEval,
  fencedFetch,
  fencedMulti,
  fencedSet,
  fencedWriteFile,
  fenceKeyOf,
  fenceTable,
  httpGuard,
  InvalidTokenError,
  type MysqlQueryable,
  memoryFence,
  mysqlFence,
  type PgQueryable,
  postgresFence,
  type RedisClient,
  raiseFile,
  raiseNode,
  redisFence,
  type SqliteQueryable,
  sqliteFence,
  type ZooKeeperLike,
  type ZooKeeperOperation,
} from "../../src/fence/index.js";
import { wireOn } from "../faults/zookeeper-rig.js";
import { startEtcd } from "../servers/etcd.js";
import { query as queryMariadb, startMariadb } from "../servers/mariadb.js";
import { query as queryPostgres, startPostgres } from "../servers/postgres.js";
import { quickFolder } from "../servers/process.js";
import { startRedis } from "../servers/redis.js";
import { startZooKeeper } from "../servers/zookeeper.js";

/** A resource that checks tokens, of any kind: a value for each name, written with a token. */
export type Resource = {
  write(name: string, value: string, token: FenceToken): Promise<void>;
  read(name: string): Promise<string | null>;
  raise(name: string, token: number): Promise<void>;
  close(): Promise<void>;
};

export type Kind = {
  readonly name: string;
  /** Whether it can keep exact sets. */
  readonly exact: boolean;
  /** As a mutant it has lost its compare: what a test must be able to tell from the real one. */
  open(mutant?: boolean): Promise<Resource>;
};

/** Tokens in tests are small numbers, or too large ones on purpose. */
const FOLDER = "holdfast-fence-test-";

export const KINDS: readonly Kind[] = [
  { name: "postgres, table", exact: true, open: (mutant) => postgres(false, mutant) },
  { name: "postgres, column", exact: false, open: (mutant) => postgres(true, mutant) },
  { name: "mariadb, table", exact: true, open: (mutant) => mariadb(false, mutant) },
  { name: "mariadb, column", exact: false, open: (mutant) => mariadb(true, mutant) },
  { name: "sqlite, table", exact: true, open: (mutant) => sqlite(false, mutant) },
  { name: "sqlite, column", exact: false, open: (mutant) => sqlite(true, mutant) },
  { name: "redis, fencedSet", exact: true, open: redisSet },
  { name: "redis, own script", exact: true, open: redisScript },
  { name: "etcd", exact: false, open: etcd },
  { name: "zookeeper", exact: true, open: zookeeper },
  { name: "files", exact: true, open: files },
  { name: "http", exact: true, open: http },
];

/** Servers are started once for a test file, and serve all kinds and their mutants side by side. */
const started = new Map<() => Promise<unknown>, Promise<unknown>>();
const stops: (() => Promise<void>)[] = [];

function once<Server>(start: () => Promise<Server>, stop: (server: Server) => Promise<void>): Promise<Server> {
  const known = started.get(start) as Promise<Server> | undefined;
  if (known !== undefined) return known;
  const server = start();
  started.set(start, server);
  stops.push(async () => stop(await server));
  return server;
}

export async function stopServers(): Promise<void> {
  await Promise.all(stops.map((stop) => stop()));
}

/** A name that no other resource of this file has. */
let opened = 0;
const fresh = (): string => `fence${(opened += 1)}`;

const quickPostgres = () => startPostgres(["-c", "fsync=off"]);
const quickMariadb = () => startMariadb(["--innodb-flush-log-at-trx-commit=0"]);
const quickEtcd = () => startEtcd(1, ["--unsafe-no-fsync"]);
const quickZooKeeper = () => startZooKeeper({ lines: ["forceSync=no"] });
const quickRedis = () => startRedis();

/** A statement without its condition. */
function blind(sql: string): string {
  return sql
    .replace(/ WHERE f\.fence <= .*$/, "")
    .replaceAll("LAST_INSERT_ID(fence)", "GREATEST(fence, 1) + 0 * LAST_INSERT_ID(0)");
}

async function postgres(column: boolean, mutant = false): Promise<Resource> {
  const { url } = await once(quickPostgres, ({ running }) => running.stop());
  const database = fresh();
  await queryPostgres(url, `CREATE DATABASE ${database}`);
  const pool = new Pool({ connectionString: url.replace(/postgres$/, database), max: 12 });
  await pool.query(fenceTable("postgres"));
  await pool.query("CREATE TABLE item (name text PRIMARY KEY, value text, fence bigint NOT NULL DEFAULT 0)");
  const inTransaction = async (run: (tx: PoolClient) => Promise<void>): Promise<void> => {
    const tx = await pool.connect();
    try {
      await tx.query("BEGIN");
      await run(tx);
      await tx.query("COMMIT");
    } catch (error) {
      await tx.query("ROLLBACK");
      throw error;
    } finally {
      tx.release();
    }
  };
  const seeing = (tx: PoolClient): PgQueryable =>
    mutant
      ? { query: ({ text, values }) => tx.query(blind(text), values.slice(0, blind(text).includes("$3") ? 4 : 2)) }
      : tx;
  return {
    async write(name, value, token) {
      if (!column) {
        return inTransaction(async (tx) => {
          await postgresFence(seeing(tx)).accept(name, token);
          await tx.query("INSERT INTO item VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2", [name, value]);
        });
      }
      const { set, where, check } = fenceColumn("postgres", name, token);
      await pool.query("INSERT INTO item VALUES ($1, NULL) ON CONFLICT DO NOTHING", [name]);
      const condition = mutant ? "true" : where;
      const sql = `UPDATE item SET value = $2, ${set} WHERE name = $1 AND ${condition}`;
      check((await pool.query(sql, [name, value])).rowCount);
    },
    async read(name) {
      const { rows } = await pool.query<{ value: string | null }>("SELECT value FROM item WHERE name = $1", [name]);
      return rows[0]?.value ?? null;
    },
    async raise(name, token) {
      if (!column) return postgresFence(pool).raise(name, token);
      const { set } = fenceColumn("postgres", name, token);
      await pool.query("INSERT INTO item VALUES ($1, NULL) ON CONFLICT DO NOTHING", [name]);
      await pool.query(`UPDATE item SET ${set} WHERE name = $1`, [name]);
    },
    close: () => pool.end(),
  };
}

async function mariadb(column: boolean, mutant = false): Promise<Resource> {
  const { url } = await once(quickMariadb, ({ running }) => running.stop());
  const database = fresh();
  await queryMariadb(url, `CREATE DATABASE ${database}`);
  const pool = createPool({ uri: `${url}/${database}`, connectionLimit: 12 });
  await pool.query(fenceTable("mysql"));
  await pool.query("CREATE TABLE item (name varbinary(512) PRIMARY KEY, value text, fence bigint NOT NULL DEFAULT 0)");
  const insert = "INSERT INTO item (name, value) VALUES (?, ?) ON DUPLICATE KEY UPDATE value = ?";
  const inTransaction = async (run: (tx: PoolConnection) => Promise<void>): Promise<void> => {
    const tx = await pool.getConnection();
    try {
      await tx.beginTransaction();
      await run(tx);
      await tx.commit();
    } catch (error) {
      await tx.rollback();
      throw error;
    } finally {
      tx.release();
    }
  };
  const seeing = (tx: PoolConnection): MysqlQueryable =>
    mutant ? { query: (sql, values) => tx.query(blind(sql), values) } : tx;
  return {
    async write(name, value, token) {
      if (!column) {
        return againWhenDeadlocked(() =>
          inTransaction(async (tx) => {
            await mysqlFence(seeing(tx)).accept(name, token);
            await tx.query(insert, [name, value, value]);
          }),
        );
      }
      const { set, where, check } = fenceColumn("mysql", name, token);
      await pool.query("INSERT IGNORE INTO item (name) VALUES (?)", [name]);
      const sql = `UPDATE item SET value = ?, ${set} WHERE name = ? AND ${mutant ? "true" : where}`;
      const [{ affectedRows }] = await pool.query<ResultSetHeader>(sql, [value, name]);
      check(affectedRows);
    },
    async read(name) {
      const [rows] = await pool.query<({ value: string | null } & RowDataPacket)[]>(
        "SELECT value FROM item WHERE name = ?",
        [name],
      );
      return rows[0]?.value ?? null;
    },
    async raise(name, token) {
      if (!column) return mysqlFence(pool).raise(name, token);
      await pool.query("INSERT IGNORE INTO item (name) VALUES (?)", [name]);
      await pool.query(`UPDATE item SET ${fenceColumn("mysql", name, token).set} WHERE name = ?`, [name]);
    },
    close: () => pool.end(),
  };
}

/** InnoDB ends one of two transactions that insert side by side; whoever writes transactions starts it again. */
async function againWhenDeadlocked(run: () => Promise<void>): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await run();
    } catch (error) {
      if ((error as { code?: string }).code !== "ER_LOCK_DEADLOCK" || attempt === 20) throw error;
    }
  }
}

async function sqlite(column: boolean, mutant = false): Promise<Resource> {
  const folder = mkdtempSync(join(quickFolder(), FOLDER));
  const db = new Database(join(folder, "db"));
  db.exec("PRAGMA journal_mode = WAL");
  db.exec(fenceTable("sqlite"));
  db.exec("CREATE TABLE item (name text PRIMARY KEY, value text, fence bigint NOT NULL DEFAULT 0)");
  const put = db.prepare(
    "INSERT INTO item (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
  );
  const seeing: SqliteQueryable = mutant
    ? {
        prepare: (sql) => ({
          run: (...values) => db.prepare(blind(sql)).run(...values.slice(0, blind(sql).includes("live") ? 4 : 2)),
        }),
      }
    : db;
  const fence = sqliteFence(seeing);
  const write = db.transaction((name: string, value: string, token: FenceToken) => {
    fence.acceptSync(name, token);
    put.run(name, value);
  });
  return {
    async write(name, value, token) {
      if (!column) {
        write(name, value, token);
        return;
      }
      const { set, where, check } = fenceColumn("sqlite", name, token);
      db.prepare("INSERT OR IGNORE INTO item (name) VALUES (?)").run(name);
      const sql = `UPDATE item SET value = ?, ${set} WHERE name = ? AND ${mutant ? "true" : where}`;
      check(db.prepare(sql).run(value, name).changes);
    },
    async read(name) {
      const row = db.prepare("SELECT value FROM item WHERE name = ?").get(name) as { value: string | null } | undefined;
      return row?.value ?? null;
    },
    async raise(name, token) {
      if (!column) return fence.raise(name, token);
      db.prepare("INSERT OR IGNORE INTO item (name) VALUES (?)").run(name);
      db.prepare(`UPDATE item SET ${fenceColumn("sqlite", name, token).set} WHERE name = ?`).run(name);
    },
    async close() {
      db.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A script that answers, but does not act on, its comparison. */
const blindScript = (script: string): string => script.replace("if token < fence or", "if false and");

async function redisSet(mutant = false): Promise<Resource> {
  const server = await once(quickRedis, ({ running }) => running.stop());
  const redis = new Redis(server.url, { keyPrefix: `${fresh()}:` });
  const client: RedisClient = mutant
    ? { call: (name, script, ...rest) => redis.call(name, blindScript(String(script)), ...rest), pipeline: () => null }
    : redis;
  const fence = redisFence(redis, { prefix: "" });
  return {
    write: (name, value, token) => fencedSet(client, name, value, token),
    read: (name) => redis.get(name),
    raise: (name, token) => fence.raise(fenceKeyOf([name]), token),
    close: async () => redis.disconnect(),
  };
}

async function redisScript(mutant = false): Promise<Resource> {
  const server = await once(quickRedis, ({ running }) => running.stop());
  const redis = createClient({ url: server.url });
  const own = fresh();
  await redis.connect();
  const client: RedisClient = mutant ? { eval: (script, options) => redis.eval(blindScript(script), options) } : redis;
  const fence = redisFence(client, { prefix: `${own}:fence:` });
  return {
    async write(name, value, token) {
      const script = "redis.call('HSET', KEYS[1], 'value', ARGV[1]) return redis.call('HLEN', KEYS[1])";
      await fencedEval(
        client,
        { script, keys: [`${own}:${name}`], args: [value], fenceKey: `${own}:fence:${name}` },
        token,
      );
    },
    read: async (name) => redis.hGet(`${own}:${name}`, "value"),
    raise: (name, token) => fence.raise(name, token),
    close: async () => redis.destroy(),
  };
}

/** By way of etcd's JSON gateway: the same messages, with bytes in base64. */
async function etcd(mutant = false): Promise<Resource> {
  const cluster = await once(quickEtcd, (members) => members.stop());
  const prefix = `${fresh()}/`;
  const port = cluster.members[0]?.port ?? 0;
  const agent = new Agent({ keepAlive: true, maxSockets: 12 });
  const ask = (path: string, message: object): Promise<Record<string, unknown>> =>
    postJson(
      agent,
      port,
      path,
      JSON.stringify(message, (_, value: unknown) => base64(value)),
    );
  const put = (name: string, value: string): object => ({
    request_put: { key: Buffer.from(prefix + name), value: Buffer.from(value) },
  });
  return {
    async write(name, value, token) {
      const { compare, success, check } = etcdGuard(name, token, { prefix: `fence-${prefix}` });
      const request = { compare: mutant ? [] : compare, success: [...success, put(name, value)] };
      const { succeeded = false } = await ask("/v3/kv/txn", request);
      check(succeeded as boolean);
    },
    async read(name) {
      const { kvs = [] } = await ask("/v3/kv/range", { key: Buffer.from(prefix + name) });
      const [first] = kvs as { value: string }[];
      return first === undefined ? null : Buffer.from(first.value, "base64").toString();
    },
    async raise(name, token) {
      await ask("/v3/kv/txn", { success: etcdGuard(name, token, { prefix: `fence-${prefix}` }).success });
    },
    close: async () => agent.destroy(),
  };
}

/** `Buffer`s come to a replacer as what their `toJSON` says. */
function base64(value: unknown): unknown {
  const { type, data } = (value ?? {}) as { type?: unknown; data?: number[] };
  return type === "Buffer" && data !== undefined ? Buffer.from(data).toString("base64") : value;
}

function postJson(agent: Agent, port: number, path: string, body: string): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    const options = {
      agent,
      host: "127.0.0.1",
      port,
      path,
      method: "POST",
      headers: { "content-type": "application/json" },
    };
    const request = httpRequest(options, (response) => {
      let text = "";
      response.on("data", (data: Buffer) => (text += data.toString()));
      response.on("end", () =>
        response.statusCode === 200
          ? resolve(JSON.parse(text) as Record<string, unknown>)
          : reject(new Error(`${response.statusCode}: ${text}`)),
      );
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function zookeeper(mutant = false): Promise<Resource> {
  const server = await once(quickZooKeeper, ({ running }) => running.stop());
  const zk = wireOn(server.port);
  const top = `/${fresh()}`;
  await zk.start(() => {});
  for (const path of [top, `${top}/item`, `${top}/fence`]) await zk.create(path, Buffer.alloc(0), "persistent");
  const client: ZooKeeperLike<ZooKeeperOperation> = {
    async get(path) {
      // Blind: it never saw anything.
      const node = mutant ? null : await zk.get(path);
      return node === null ? null : { data: node.data, version: node.stat.version };
    },
    async multi(operations) {
      const kept = mutant ? operations.slice(1) : operations;
      if (kept.length > 0) await zk.transact(kept);
    },
  };
  return {
    async write(name, value, token) {
      const path = `${top}/item/${name}`;
      await zk.create(path, Buffer.alloc(0), "persistent").catch((error: unknown) => {
        if ((error as { code?: number }).code !== CODE.nodeExists) throw error;
      });
      const set = { kind: "set", path, data: Buffer.from(value), version: -1 } as const;
      await fencedMulti(client, `${top}/fence/${name}`, token, [set]);
    },
    async read(name) {
      const text = (await zk.get(`${top}/item/${name}`))?.data.toString() ?? "";
      return text === "" ? null : text;
    },
    raise: (name, token) => raiseNode(client, `${top}/fence/${name}`, token),
    close: () => zk.close(),
  };
}

async function files(mutant = false): Promise<Resource> {
  const folder = mkdtempSync(join(quickFolder(), FOLDER));
  const at = (name: string): string => join(folder, name);
  /** As a whole: two at once must not leave a mixture of both. */
  const replace = async (path: string, value: string): Promise<void> => {
    const draft = `${path}.${fresh()}`;
    await writeFile(draft, value);
    await rename(draft, path);
  };
  return {
    write: (name, value, token) => (mutant ? replace(at(name), value) : fencedWriteFile(at(name), value, token)),
    read: (name) => readFile(at(name), "utf8").catch(() => null),
    raise: (name, token) => raiseFile(at(name), token),
    close: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

async function http(mutant = false): Promise<Resource> {
  const values = new Map<string, string>();
  const fence = memoryFence();
  const lock = (request: IncomingMessage): string => request.url?.slice(1) ?? "";
  const guard = httpGuard<IncomingMessage>({ fence: mutant ? { ...fence, accept: async () => {} } : fence, lock });
  const server = createServer((request, response) => {
    void guard(request, response).then((mayGoOn) => {
      if (!mayGoOn) return;
      // In one step with the guard's word: what a body would bring later stands in a header here.
      values.set(lock(request), String(request.headers["x-value"]));
      response.end("written");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    async write(name, value, token) {
      const hold = { name, ...(typeof token === "number" ? { token } : token) };
      const response = await fencedFetch(hold, `${url}/${name}`, { method: "PUT", headers: { "X-Value": value } });
      const text = await response.text();
      if (response.status === 400) throw new InvalidTokenError("token", text, "");
      if (!response.ok) throw new Error(text);
    },
    read: async (name) => values.get(name) ?? null,
    raise: (name, token) => fence.raise(name, token),
    close: () => new Promise((resolve) => (server.closeAllConnections(), server.close(() => resolve()))),
  };
}
