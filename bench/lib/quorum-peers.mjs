// Ways to hold a mutex in a majority of Redis servers, in the shape of `redis-peers.mjs`.
import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { holdfast, LEASE_MS } from "../stores/holdfast.mjs";
import { COMPARE_AND_DELETE } from "./redis-peers.mjs";

const clientsOf = (ports) =>
  ports.map((port) => {
    const client = new Redis(port, { enableOfflineQueue: false, maxRetriesPerRequest: 0 });
    client.on("error", () => {});
    return client;
  });

/** Five `SET NX PX` at once, five compare-and-deletes at once: what any Redlock costs at least. */
async function bare({ ports }) {
  const clients = clientsOf(ports);
  for (const client of clients) client.defineCommand("compareAndDelete", { numberOfKeys: 1, lua: COMPARE_AND_DELETE });
  await Promise.all(clients.map((client) => new Promise((resolve) => client.once("ready", resolve))));
  return {
    async take(name) {
      const value = randomBytes(16).toString("base64url");
      await Promise.all(clients.map((client) => client.set(name, value, "PX", LEASE_MS, "NX")));
      return () => Promise.all(clients.map((client) => client.compareAndDelete(name, value)));
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

async function redlock5({ ports }) {
  const { default: Redlock } = await import("redlock5");
  const clients = clientsOf(ports);
  await Promise.all(clients.map((client) => new Promise((resolve) => client.once("ready", resolve))));
  const redlock = new Redlock(clients, { retryCount: -1 });
  redlock.on("error", () => {});
  return {
    async take(name) {
      const lock = await redlock.acquire([name], LEASE_MS);
      return () => lock.release();
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

async function redisSemaphore({ ports }) {
  const { RedlockMutex } = await import("redis-semaphore");
  const clients = clientsOf(ports);
  await Promise.all(clients.map((client) => new Promise((resolve) => client.once("ready", resolve))));
  return {
    async take(name) {
      const mutex = new RedlockMutex(clients, name, { lockTimeout: LEASE_MS, acquireTimeout: 60_000 });
      await mutex.acquire();
      return () => mutex.release();
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

export const QUORUM_PEERS = {
  holdfast: (at) => holdfast.open(at),
  "bare commands": bare,
  "redlock 5 beta": redlock5,
  "redis-semaphore": redisSemaphore,
};
