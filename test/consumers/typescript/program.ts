// A program that uses the installed package, as its compiler sees it. `package.test.ts` copies it beside the package.
import { AcquireTimeoutError, type ConnectOptions, connect, type Guarantees, type Hold, type Locks } from "holdfast";
import { type EtcdDriver, etcdEngine } from "holdfast/etcd";
import { memoryEngine } from "holdfast/memory";
import { mysqlEngine } from "holdfast/mysql";
import { postgresEngine } from "holdfast/postgres";
import { quorumEngine } from "holdfast/quorum";
import { redisEngine } from "holdfast/redis";
import { sqliteEngine } from "holdfast/sqlite";
import { conformance } from "holdfast/testing";
import { zookeeperEngine } from "holdfast/zookeeper";

const options: ConnectOptions = { leaseMs: 5000, require: { exclusion: ["one-process", "one-machine"] } };

export async function main(): Promise<number> {
  await using locks: Locks = await connect("memory:", options);
  await using hold: Hold = await locks.mutex("invoice:42").acquire({ waitMs: 500 });
  const exclusion: Guarantees["exclusion"] = locks.guarantees.exclusion;
  const busy: Hold | null = await locks.mutex("invoice:42").tryAcquire();
  const total = await locks.semaphore("rooms", 3).using({ permits: 2 }, (permit) => permit.token);
  locks.on("lost", ({ name, reason }) => console.log(name, reason, exclusion, busy));
  return total + hold.token;
}

export function isLate(error: unknown): string | undefined {
  return error instanceof AcquireTimeoutError ? error.holder?.host : undefined;
}

export async function mistakes(locks: Locks, client: EtcdDriver): Promise<void> {
  // @ts-expect-error: the unit is a part of the name
  await locks.mutex("a").acquire({ wait: 500 });
  // @ts-expect-error: only a writer can become a reader
  await (await locks.mutex("a").acquire()).downgrade();
  // @ts-expect-error: a store is opened by a URL, a list of them, or an engine
  await connect(client);
}

export const engines = [
  memoryEngine,
  sqliteEngine,
  redisEngine,
  postgresEngine,
  mysqlEngine,
  etcdEngine,
  zookeeperEngine,
  quorumEngine,
];
export const suite = conformance;
