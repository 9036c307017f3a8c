// A process that takes locks: with bare Redis commands, as its parent says them one by one, or with Holdfast.
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { serve, settings } from "../lib/member.mjs";

// A clock that somebody set wrong. Before anything is loaded that might look at it.
const rightNow = Date.now.bind(Date);
Date.now = () => rightNow() + (settings.clockAheadMs ?? 0);
const { connect } = await import("holdfast");

const [clients, stores] = [new Map(), new Map()];
const known = (map, url, open) => map.get(url) ?? map.set(url, open()).get(url);

function redisOf(url) {
  return known(clients, url, () => {
    const client = new Redis(url, { maxRetriesPerRequest: 0, retryStrategy: () => null });
    client.on("error", () => {}); // the command that fails tells
    return client;
  });
}

// A quorum gives up on a server soon; a busy machine needs longer.
const patient = (url) => (url.startsWith("redlock:") ? { memberTimeoutMs: 2000 } : {});
async function lockOf({ url, name, which }) {
  const locks = await known(stores, url, () => connect(url, patient(url)));
  if (which === "read") return locks.readWrite(name).read;
  return which === undefined ? locks.mutex(name) : locks.striped(name, 4).at(which);
}
let hold;

const work = () => sleep(20);
const workThatThrows = async () => {
  throw new Error("the work failed");
};

/** SETNX, the work, DEL: what every tutorial begins with. Answers whether it was served. */
async function underSetnx({ url, name }, work) {
  const redis = redisOf(url);
  if ((await redis.call("SETNX", name, "ann")) === 0) return false;
  await work();
  await redis.call("DEL", name);
  return true;
}

async function underHoldfast(where, work) {
  await (await lockOf(where)).using(work);
  return true;
}

const under = { wrong: underSetnx, right: underHoldfast };

serve({
  redis: ({ url, words }) => redisOf(url).call(...words),

  async tryAcquire({ options, ...where }) {
    hold = await (await lockOf(where)).tryAcquire(options);
    return hold !== null;
  },

  /** "released", or the code of the error that says why not. */
  release: () =>
    hold.release().then(
      () => "released",
      ({ code }) => code,
    ),

  /** The same lock, taken again inside itself. */
  async twice(where) {
    const mutex = await lockOf(where);
    return mutex.using({ waitMs: 500 }, () => mutex.using(() => true));
  },

  workThatThrows: ({ way, ...where }) =>
    under[way](where, workThatThrows).then(
      () => "nothing",
      ({ message }) => message,
    ),

  async serve({ way, requests, ...where }) {
    const served = await Promise.all(Array.from({ length: requests }, () => under[way](where, work)));
    return served.filter(Boolean).length;
  },

  async close() {
    for (const client of clients.values()) client.disconnect();
    for (const locks of stores.values()) await (await locks).close();
  },
});
