// A process that takes locks: with bare Redis commands, as its parent says them one by one, or with Holdfast.
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
const mutexOf = async ({ url, name }) => (await known(stores, url, () => connect(url, patient(url)))).mutex(name);
let hold;

serve({
  redis: ({ url, words }) => redisOf(url).call(...words),

  async tryAcquire({ options, ...where }) {
    hold = await (await mutexOf(where)).tryAcquire(options);
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
    const mutex = await mutexOf(where);
    return mutex.using({ waitMs: 500 }, () => mutex.using(() => true));
  },

  async close() {
    for (const client of clients.values()) client.disconnect();
    for (const locks of stores.values()) await (await locks).close();
  },
});
