import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { dirname, join, resolve } from "node:path";
import { programsOf, type ServerName } from "../../test/servers/packages.js";

export const ROOT = resolve(import.meta.dirname, "../..");

/** Under what a result was measured; stands in every result file and on every page made from one. */
export type Circumstances = {
  readonly date: string;
  readonly command: string;
  readonly commit: string;
  readonly machine: string;
  readonly versions: Readonly<Record<string, string>>;
};

/** How each server says its version. */
const SAY: readonly (readonly [name: string, server: ServerName, program: string, flag: string])[] = [
  ["Redis", "Redis", "redis-server", "--version"],
  ["PostgreSQL", "PostgreSQL", "postgres", "--version"],
  ["MariaDB", "MariaDB", "mariadbd", "--version"],
  ["etcd", "etcd", "etcd", "--version"],
];

const CLIENTS = ["ioredis", "pg", "mysql2", "@grpc/grpc-js", "libsql"];

export function circumstances(command: string): Circumstances {
  const gib = Math.round(totalmem() / 2 ** 30);
  return {
    date: new Date().toISOString(),
    command,
    commit: said("git", ["-C", ROOT, "rev-parse", "--short", "HEAD"]) || "unknown",
    machine: `${cpus().length} cores (${cpus()[0]?.model.trim() ?? "unknown"}), ${gib} GiB, ${process.platform}`,
    versions: versions(),
  };
}

function versions(): Record<string, string> {
  const found: Record<string, string> = { "Node.js": process.version.slice(1), Holdfast: versionIn("package.json") };
  for (const [name, server, program, flag] of SAY) {
    const [version] = /\d+\.\d+(\.\d+)?/.exec(said(programsOf(server)[program] ?? "", [flag])) ?? [];
    found[name] = version ?? "unknown";
  }
  const [zookeeper] = /\d+\.\d+\.\d+/.exec(said("dpkg-query", ["-W", "-f", "${Version}", "libzookeeper-java"])) ?? [];
  found.ZooKeeper = zookeeper ?? "unknown";
  for (const name of CLIENTS) found[name] = versionIn(`node_modules/${name}/package.json`);
  return found;
}

function versionIn(path: string): string {
  return (JSON.parse(readFileSync(join(ROOT, path), "utf8")) as { version: string }).version;
}

function said(program: string, args: readonly string[]): string {
  try {
    return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return "";
  }
}

/** `path` from the project's root. */
export function write(path: string, text: string): void {
  const full = join(ROOT, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text.endsWith("\n") ? text : `${text}\n`);
}

export function writeJson(path: string, value: unknown): void {
  write(path, JSON.stringify(value, null, 1));
}

/** The lines below a page's title. */
export function measured({ date, command, commit, machine, versions }: Circumstances): string {
  const list = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `Made by \`${command}\` on ${date.slice(0, 16).replace("T", " ")} UTC, at commit ${commit}, on ${machine}; ${list.join(", ")}.`;
}
