import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Redis } from "ioredis";

/** What the tests use of other lock libraries, which are installed beside the benchmarks: their types are not. */
type Redlock4 = new (
  clients: Redis[],
  options?: object,
) => {
  lock(key: string, ttl: number): Promise<{ unlock(): Promise<void> }>;
};
type Redlock5 = new (
  clients: Redis[],
  options?: object,
) => {
  acquire(keys: string[], ttl: number): Promise<{ release(): Promise<unknown> }>;
  using<T>(keys: string[], ttl: number, work: (signal: AbortSignal) => Promise<T>): Promise<T>;
  on(event: "error", listener: (error: Error) => void): void;
};
type SemaphoreOptions = {
  readonly lockTimeout?: number;
  readonly acquireTimeout?: number;
  readonly refreshInterval?: number;
  readonly onLockLost?: (error: Error) => void;
};
type TheirLock = { acquire(): Promise<void>; tryAcquire(): Promise<boolean>; release(): Promise<void> };
type RedisSemaphore = {
  readonly Mutex: new (client: Redis, key: string, options?: SemaphoreOptions) => TheirLock;
  readonly Semaphore: new (client: Redis, key: string, limit: number, options?: SemaphoreOptions) => TheirLock;
  readonly TimeoutError: new () => Error;
};
type VerrouLock = {
  acquire(options?: { retry: { timeout: number } }): Promise<boolean>;
  acquireImmediately(): Promise<boolean>;
  run<T>(work: () => Promise<T>): Promise<[true, T] | [false, null]>;
  release(): Promise<void>;
};
type Verrou = {
  readonly Verrou: new (config: object) => { createLock(key: string, ttl?: number | string): VerrouLock };
  readonly redisStore: (config: { connection: Redis }) => unknown;
};

type Peers = {
  redlock4(): Promise<Redlock4>;
  redlock5(): Promise<Redlock5>;
  redisSemaphore(): Promise<RedisSemaphore>;
  verrou(): Promise<Verrou>;
};

const LIBRARY = resolve(import.meta.dirname, "../../bench/lib");
const load = (file: string): Promise<unknown> => import(pathToFileURL(join(LIBRARY, file)).href);

/** They are there: `install-first.ts` saw to it before the run. */
export const peers = async (): Promise<Peers> => ((await load("libraries.mjs")) as { libraries: Peers }).libraries;

export async function installPeers(): Promise<void> {
  ((await load("prepare.mjs")) as { install(): void }).install();
}
