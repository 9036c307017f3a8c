// etcd: what a lock costs beside the bare transactions and watch events it is made of, and what waits leave behind, on a server of
// its own.
import { etcdClient, etcdEngine } from "../dist/engines/etcd/index.js";
import { connect } from "../dist/index.js";
import { startEtcd } from "./lib/etcd-server.mjs";
import { median, table } from "./lib/measure.mjs";
import { arrivingWaiters, inFlight, timedOutWaits } from "./lib/queue-costs.mjs";
import { etcd } from "./stores/etcd.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 9);
const PAIRS = ROUNDS * 60;
const HANDOVERS = ROUNDS * 20;
/** Before anything is measured: otherwise half of it is code that V8 has not compiled yet, of which ours has more. */
const WARM_PAIRS = 1500;
const WARM_HANDOVERS = 300;
const WARM_MOST_MS = 30_000;
const nanos = () => Number(process.hrtime.bigint());
const micros = (value) => `${Math.round(value / 1000)} µs`;
const times = (value) => `${value.toFixed(2)} ×`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function timed(work) {
  const start = nanos();
  await work();
  return nanos() - start;
}

async function warmUp(times, work) {
  const until = Date.now() + WARM_MOST_MS;
  for (let n = 0; n < times && Date.now() < until; n += 1) await work();
}

/** Forget the past, as a server in use does by itself now and then. */
async function compact(port, reading) {
  const { header } = await reading.call("range", { key: "any" });
  const body = JSON.stringify({ revision: String(header.revision), physical: true });
  const answer = await fetch(`http://127.0.0.1:${port}/v3/kv/compaction`, { method: "POST", body });
  if (!answer.ok) throw new Error(`etcd did not compact: ${await answer.text()}`);
}

/**
 * In turn, one of each: whatever slows the machine down for a moment slows all of them, and the median leaves it out. Each
 * has a connection of its own: one that was used a moment ago is faster. `between` comes after every twenty, untimed.
 */
async function pairs(what, client, reading, locks, between = async () => {}) {
  const { ID: lease } = await client.call("leaseGrant", { TTL: 600 });
  const key = "bare/lock";
  const compare = [{ key, target: 1, result: 0, create_revision: 0 }];
  const candidates = {
    "read of one key": () => reading.call("range", { key }),
    "bare: txn (put if absent) + delete": async () => {
      const value = Buffer.from("x");
      await client.call("txn", { compare, success: [{ request_put: { key, value, lease } }] });
      await client.call("txn", { success: [{ request_delete_range: { key } }] });
    },
    holdfast: async () => (await locks.mutex("pair").acquire()).release(),
  };
  await warmUp(WARM_PAIRS, async () => {
    for (const work of Object.values(candidates)) await work();
  });
  const taken = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  for (let n = 0; n < PAIRS; n += 1) {
    if (n % 20 === 0) await between();
    for (const [name, work] of Object.entries(candidates)) taken[name].push(await timed(work));
  }
  const bare = median(taken["bare: txn (put if absent) + delete"]);
  table(
    `uncontended pair (acquire + release), ${PAIRS} times in turn${what}`,
    ["", "p50", "ratio to bare"],
    Object.entries(taken).map(([name, values]) => [name, micros(median(values)), times(median(values) / bare)]),
  );
}

/** From the release call to the waiter's acquisition, beside a bare delete that another connection watches. */
async function handOvers(client, other, locks, waiting) {
  const { ID: lease } = await client.call("leaseGrant", { TTL: 600 });
  let heard = () => {};
  let off = () => {};
  const stream = await other.watch(
    ({ events }) => {
      if (events.some((event) => event.type === 1)) heard();
    },
    () => {},
  );
  stream.send({ create_request: { key: "bare/watched", watch_id: 1 } });
  const taken = { bare: [], holdfast: [] };
  const once = async () => {
    await client.call("txn", { success: [{ request_put: { key: "bare/watched", value: Buffer.from("x"), lease } }] });
    await pause(3);
    const event = new Promise((resolve) => (heard = resolve));
    const deletedAt = nanos();
    const deleting = client.call("txn", { success: [{ request_delete_range: { key: "bare/watched" } }] });
    await event;
    taken.bare.push(nanos() - deletedAt);
    await deleting;
    const hold = await locks.mutex("hand-over").acquire();
    const queued = new Promise((resolve) => (off = waiting.on("queued", resolve)));
    const next = waiting.mutex("hand-over").acquire();
    await queued;
    off();
    await pause(3);
    const start = nanos();
    const releasing = hold.release();
    const served = await next;
    taken.holdfast.push(nanos() - start);
    await releasing;
    await served.release();
  };
  await warmUp(WARM_HANDOVERS, once);
  for (const values of Object.values(taken)) values.length = 0;
  for (let n = 0; n < HANDOVERS; n += 1) await once();
  stream.close();
  const bare = median(taken.bare);
  table(
    `hand-over to a waiter of another connection, ${HANDOVERS} times in turn`,
    ["", "p50", "ratio to bare"],
    [
      ["bare: delete, watch event", micros(bare), times(1)],
      ["holdfast: release, acquired", micros(median(taken.holdfast)), times(median(taken.holdfast) / bare)],
    ],
  );
}

/** A client that counts what goes over the wire: calls, keep-alives, watches asked for, events heard. */
function counted(client) {
  const counts = { messages: 0 };
  const one = () => (counts.messages += 1);
  const counting = {
    call: (...args) => one() && client.call(...args),
    keepAlive: (lease) => one() && client.keepAlive(lease),
    async watch(heard, ended) {
      const stream = await client.watch((response) => {
        one();
        heard(response);
      }, ended);
      return { send: (request) => one() && stream.send(request), close: () => stream.close() };
    },
    close: () => client.close(),
  };
  return { client: counting, counts };
}

/** A queue that stays as long as it is: whoever was served queues again, on a second connection, uncounted. */
async function queueOf(url, length) {
  const { client, counts } = counted(await etcdClient(url));
  const engine = await etcdEngine(client);
  const events = new Map();
  engine.listen((event) => event.kind === "granted" && events.get(event.id)?.());
  const owner = { client: "bench", host: "localhost", pid: process.pid };
  const name = `queue of ${length}`;
  let ids = 0;
  const claim = () => {
    const id = `bench-${length}-${String((ids += 1)).padStart(20, "0")}`;
    return { name, id, units: 1, capacity: 1, leaseMs: 60_000, wait: true, owner };
  };
  const line = Array.from({ length: length + 1 }, claim);
  for (const one of line) await engine.claim(one);
  // Until all that is only begun a while later has begun.
  await pause(500);
  const keep = setInterval(() => void engine.renew(line), 2500);
  const [before, start] = [counts.messages, nanos()];
  const count = Math.min(length, 10);
  for (let n = 0; n < count; n += 1) {
    const told = new Promise((resolve) => events.set(line[1].id, resolve));
    await engine.release(line.shift());
    await told;
  }
  const taken = { messages: (counts.messages - before) / count, nanos: (nanos() - start) / count };
  clearInterval(keep);
  await Promise.all(line.map((one) => engine.release(one)));
  await engine[Symbol.asyncDispose]();
  client.close();
  return taken;
}

const server = await startEtcd();
try {
  const [client, other] = [await etcdClient(server.url), await etcdClient(server.url)];
  const [locks, waiting] = [await connect(server.url), await connect(server.url)];
  await pairs(", never compacted", client, other, locks);
  await handOvers(client, other, locks, waiting);
  await pairs(", compacted every 20", client, other, locks, () => compact(server.port, other));
  await Promise.all([locks.close(), waiting.close()]);
  const rows = [];
  for (const length of [10, 100, 1000]) {
    const { messages, nanos: each } = await queueOf(server.url, length);
    rows.push([length, messages.toFixed(1), micros(each)]);
  }
  table("messages per hand-over, by the length of the queue", ["waiters", "messages", "time"], rows);
  for (const one of [client, other]) one.close();
  await inFlight({ url: server.url }, etcd.contestants, ROUNDS);
  await timedOutWaits(server);
  await arrivingWaiters(server);
} finally {
  server.stop();
}
