import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Redis } from "ioredis";

/** What the tests use of node-redisson, which is installed beside them: its types are not. */
type NodeRedisson = {
  readonly Redisson: new (config: {
    redis: { options: { port: number; host: string } };
    lockWatchdogTimeout?: bigint;
  }) => {
    getLock(name: string): {
      tryLock(wait: bigint | false, lease: bigint | true): Promise<boolean>;
      lock(lease?: bigint | true): Promise<void>;
      unlock(): Promise<void>;
      forceUnlock(): Promise<boolean>;
    };
    quit(): Promise<void>;
  };
};

const FOLDER = resolve(import.meta.dirname, "../../tools/redisson");
const load = (file: string): Promise<unknown> => import(pathToFileURL(join(FOLDER, file)).href);

/** It is there: `install-first.ts` saw to it before the run. */
export const nodeRedisson = async (): Promise<NodeRedisson> => (await load("library.mjs")) as NodeRedisson;

export async function installNodeRedisson(): Promise<void> {
  ((await load("install.mjs")) as { install(): void }).install();
}

/** Taken by nobody, or by the same thread: counted up, with a new end. Otherwise how long it is still held. */
const LOCK = `
local mine = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
if redis.call('EXISTS', KEYS[1]) == 1 and not mine then return redis.call('PTTL', KEYS[1]) end
if KEYS[2] then redis.call('INCR', KEYS[2]) end
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'taken'`;

const UNLOCK = `
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 'not mine' end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 'still mine'
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 'free'`;

const COUNT_DOWN = `
local left = redis.call('DECR', KEYS[1])
if left <= 0 then redis.call('DEL', KEYS[1]) end
if left == 0 then redis.call('PUBLISH', KEYS[2], '0') end
return left`;

const SET_COUNT = `
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[2], '1')
return 1`;

const tagged = (name: string): string => (name.includes("{") ? name : `{${name}}`);

/**
 * A program that speaks Redisson's layout as its sources describe it: RLock, RFencedLock and RCountDownLatch, with
 * subscriptions and no polls. It is not Redisson: no jar of that can be had where this is tested.
 */
export class RedissonSpeaker {
  readonly #redis: Redis;
  readonly #subscriber: Redis;
  readonly #uuid = randomUUID();

  constructor(port: number) {
    this.#redis = new Redis(port, "127.0.0.1");
    this.#subscriber = new Redis(port, "127.0.0.1");
  }

  /** `pttl` of whoever holds it, or null when it was taken. With `fenced` the token is counted up. */
  async tryLock(name: string, thread: number, leaseMs: number, fenced = false): Promise<number | null> {
    const keys = fenced ? [name, `redisson_lock_token:${tagged(name)}`] : [name];
    const answer = await this.#redis.eval(LOCK, keys.length, ...keys, `${this.#uuid}:${thread}`, leaseMs);
    return answer === "taken" ? null : Number(answer);
  }

  /** Waits for message 0, or until the lease of the holder has ended; counts what woke it. */
  async lock(name: string, thread: number, leaseMs: number, fenced = false): Promise<{ readonly messages: number }> {
    const channel = `redisson_lock__channel:${tagged(name)}`;
    let messages = 0;
    if ((await this.tryLock(name, thread, leaseMs, fenced)) === null) return { messages };
    const told = { notify: (): void => {} };
    const listen = (to: string): void => {
      if (to !== channel) return;
      messages += 1;
      told.notify();
    };
    this.#subscriber.on("message", listen);
    await this.#subscriber.subscribe(channel);
    try {
      for (;;) {
        const before = messages;
        const leftMs = await this.tryLock(name, thread, leaseMs, fenced);
        if (leftMs === null) return { messages };
        if (messages > before) continue;
        await new Promise<void>((resume) => {
          const timer = setTimeout(resume, leftMs < 0 ? 2 ** 31 - 1 : leftMs);
          told.notify = () => {
            clearTimeout(timer);
            resume();
          };
        });
      }
    } finally {
      this.#subscriber.off("message", listen);
    }
  }

  unlock(name: string, thread: number, leaseMs = 30_000): Promise<unknown> {
    const keys = [name, `redisson_lock__channel:${tagged(name)}`];
    return this.#redis.eval(UNLOCK, 2, ...keys, `${this.#uuid}:${thread}`, leaseMs);
  }

  async token(name: string): Promise<number> {
    return Number(await this.#redis.get(`redisson_lock_token:${tagged(name)}`));
  }

  trySetCount(name: string, count: number): Promise<unknown> {
    return this.#redis.eval(SET_COUNT, 2, name, `redisson_countdownlatch__channel__{${name}}`, count);
  }

  countDown(name: string): Promise<unknown> {
    return this.#redis.eval(COUNT_DOWN, 2, name, `redisson_countdownlatch__channel__{${name}}`);
  }

  async count(name: string): Promise<number> {
    return Number((await this.#redis.get(name)) ?? 0);
  }

  /** Returns when a message came and the count is 0; without one it waits for ever. */
  async awaitLatch(name: string): Promise<void> {
    await this.#subscriber.subscribe(`redisson_countdownlatch__channel__{${name}}`);
    for (;;) {
      // Before it looks: what is told right after that would find nobody listening.
      const told = once(this.#subscriber, "message");
      told.catch(() => {});
      if ((await this.count(name)) === 0) return;
      await told;
    }
  }

  async close(): Promise<void> {
    await Promise.all([this.#redis.quit(), this.#subscriber.quit()]);
  }
}
