import { readdirSync, readFileSync } from "node:fs";
import Database from "libsql";
import { openMysql } from "../../src/engines/mysql/index.js";
import { openPostgres } from "../../src/engines/postgres/index.js";
import { sqliteEngine } from "../../src/engines/sqlite/index.js";
import { etcdctl } from "../../test/servers/etcd.js";
import { query as mariadbQuery } from "../../test/servers/mariadb.js";
import { query as postgresQuery } from "../../test/servers/postgres.js";
import { pause, until } from "../../test/servers/process.js";
import { command } from "../../test/servers/redis.js";
import { fourLetters } from "../../test/servers/zookeeper.js";
import { ENGINES, type EngineName, type EngineRow, type Rig } from "../rigs.js";
import type { StoreName } from "./arguments.js";
import type { FaultKind } from "./schedule.js";

/** How many of what there are in a store. */
export type Counts = Readonly<Record<string, number>>;

/** A store as the soak needs it: what of the lab, what can happen to it, and what is in it. */
export type Store = {
  readonly name: StoreName;
  readonly title: string;
  /** The unit of leases, waits and faults. */
  readonly leaseMs: number;
  readonly row: EngineRow | null;
  readonly faults: readonly FaultKind[];
  count(rig: Rig): Promise<Counts>;
  /** Forget what has ended, where the store waits for somebody to do it. */
  tidy?(rig: Rig): Promise<void>;
  /** What may stay when everybody has left: one idle record for each name, which a day ends. */
  readonly idle?: string;
};

const WIRE: readonly FaultKind[] = ["cut", "stall", "silence", "deafen", "delay"];
const ALL: readonly FaultKind[] = ["kill", "pause", ...WIRE, "restart", "freeze"];

const row = (name: EngineName): EngineRow => {
  const found = ENGINES.find((engine) => engine.name === name);
  if (found === undefined) throw new Error(`the lab knows no ${name}`);
  return found;
};

const fromLab = (name: EngineName): Pick<Store, "row" | "title" | "leaseMs"> => {
  const { title, leaseMs } = row(name);
  return { row: row(name), title, leaseMs };
};

/** The same figures of each server, added up. */
async function ofEach(rig: Rig, count: (port: number) => Promise<Counts>): Promise<Counts> {
  const sum: Record<string, number> = {};
  for (const { port } of rig.servers) {
    for (const [what, many] of Object.entries(await count(port))) sum[what] = (sum[what] ?? 0) + many;
  }
  return sum;
}

/** Connections without the one that asks. */
async function redisCounts(port: number): Promise<Counts> {
  const keys = Number(/:(\d+)/.exec(await command(port, "DBSIZE"))?.[1]);
  const connections =
    (await command(port, "CLIENT LIST")).split("\n").filter((line) => line.startsWith("id=")).length - 1;
  const channels = Number(/^\*(\d+)/.exec(await command(port, "PUBSUB CHANNELS"))?.[1]);
  return { keys, connections, channels };
}

const TABLES = ["name", "claim", "tombstone", "cell", "operation"];
const rowsOf = (tables: readonly string[], schema: string): string =>
  `SELECT ${tables.map((table) => `(SELECT count(*) FROM ${schema}${table})`).join(" + ")} AS n`;

/** The tables' rows, without the one of the store itself; connections without the one that asks. */
async function postgresCounts(port: number): Promise<Counts> {
  const url = row("postgres").url([port], NO_RIG);
  const [rows] = await postgresQuery(url, rowsOf(TABLES, "holdfast."));
  const others = "backend_type = 'client backend' AND pid <> pg_backend_pid()";
  const [connections] = await postgresQuery(url, `SELECT count(*) AS n FROM pg_stat_activity WHERE ${others}`);
  return { rows: Number(rows?.n), connections: Number(connections?.n) };
}

async function mariadbCounts(port: number): Promise<Counts> {
  const url = row("mariadb").url([port], NO_RIG);
  const [rows] = await mariadbQuery(url, rowsOf([...TABLES, "message"], "holdfast."));
  const list = "information_schema.processlist WHERE user = 'root' AND id <> connection_id()";
  const [connections] = await mariadbQuery(url, `SELECT count(*) AS n FROM ${list}`);
  return { rows: Number(rows?.n), connections: Number(connections?.n) };
}

async function etcdCounts(port: number): Promise<Counts> {
  const lines = async (...args: readonly string[]): Promise<string[]> =>
    (await etcdctl({ port }, ...args)).split("\n").filter((line) => line !== "");
  const keys = (await lines("get", "", "--prefix", "--keys-only")).length;
  const leases = (await lines("lease", "list")).length - 1;
  const metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const watches = Number(/^etcd_debugging_mvcc_watcher_total (\d+)/m.exec(metrics)?.[1] ?? NaN);
  return { keys, leases, watches };
}

async function zooKeeperCounts(port: number): Promise<Counts> {
  const text = await fourLetters(port, "mntr");
  const figure = (name: string): number => Number(new RegExp(`^${name}\\t(\\S+)`, "m").exec(text)?.[1]);
  return { nodes: figure("zk_znode_count"), watches: figure("zk_watch_count"), sessions: figure("zk_global_sessions") };
}

/** Rows, and the mailboxes through which processes wake each other. */
async function sqliteCounts({ file = "" }: Rig): Promise<Counts> {
  const database = new Database(file);
  try {
    database.exec("PRAGMA busy_timeout = 10000");
    const { n } = database.prepare(rowsOf(TABLES, "")).get() as { n: number };
    return { rows: n, mailboxes: readdirSync(`${file}-mail`).length };
  } finally {
    database.close();
  }
}

const NO_RIG: Rig = { servers: [], stop: async () => {} };

export const STORES: readonly Store[] = [
  // One process, so there is nothing that could be killed alone; its names are asked for over there.
  { name: "memory", title: "Memory", leaseMs: 1000, row: null, faults: ["pause"], count: async () => ({}) },
  {
    name: "sqlite",
    ...fromLab("sqlite"),
    // No server and no wire; "frozen" is a file that somebody else keeps locked.
    faults: ["kill", "pause", "freeze"],
    count: sqliteCounts,
    async tidy({ file = "" }) {
      const engine = sqliteEngine(file);
      await engine.maintenance();
      await engine[Symbol.asyncDispose]();
    },
  },
  { name: "redis", ...fromLab("redis"), faults: ALL, count: (rig) => ofEach(rig, redisCounts), idle: "keys" },
  { name: "quorum", ...fromLab("quorum"), faults: ALL, count: (rig) => ofEach(rig, redisCounts), idle: "keys" },
  { name: "zookeeper", ...fromLab("zookeeper"), faults: ALL, count: (rig) => ofEach(rig, zooKeeperCounts) },
  { name: "etcd", ...fromLab("etcd"), faults: ALL, count: (rig) => ofEach(rig, etcdCounts) },
  {
    name: "postgres",
    ...fromLab("postgres"),
    faults: ALL,
    count: (rig) => ofEach(rig, postgresCounts),
    async tidy(rig) {
      const engine = await openPostgres(row("postgres").url(portsOf(rig), rig));
      await engine.maintenance();
      await engine[Symbol.asyncDispose]();
    },
  },
  {
    name: "mysql",
    ...fromLab("mariadb"),
    faults: ALL,
    count: (rig) => ofEach(rig, mariadbCounts),
    async tidy(rig) {
      const engine = await openMysql(row("mariadb").url(portsOf(rig), rig));
      await engine.maintenance();
      await engine[Symbol.asyncDispose]();
    },
  },
];

export const portsOf = ({ servers }: Rig): number[] => servers.map(({ port }) => port);

/** Whoever writes to the file keeps everybody else from it. Another may have it at first, a process that is stopped even for long. */
export async function occupyFor(file: string, ms: number): Promise<void> {
  const database = new Database(file);
  const begin = (): boolean => {
    try {
      database.exec("BEGIN IMMEDIATE");
      return true;
    } catch {
      return false;
    }
  };
  try {
    database.exec("PRAGMA busy_timeout = 0");
    await until("the file is free", begin, 20_000);
    await pause(ms);
    database.exec("ROLLBACK");
  } finally {
    database.close();
  }
}

/** A server's process and all that it has started: PostgreSQL's clients each talk to a process of their own. */
export function familyOf(pid: number): number[] {
  let children: number[] = [];
  try {
    children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  } catch {
    // It has ended meanwhile.
  }
  return [pid, ...children.flatMap(familyOf)];
}
