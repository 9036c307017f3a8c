// What a store that keeps an ordered list costs where many wait: pairs after waits that timed out, and waiters that arrive.
import { connect as connectTo, createServer } from "node:net";
import { connect } from "../../dist/index.js";
import { heapUsed, interleave, median, ratio, table } from "./measure.mjs";

const nanos = () => Number(process.hrtime.bigint());
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const count = (value) => Math.round(value).toLocaleString("en");

/** Counts what the server sends. */
async function countingProxy(port) {
  const seen = { bytes: 0 };
  const sockets = new Set();
  const proxy = createServer((client) => {
    const server = connectTo(port, "127.0.0.1");
    for (const [one, other] of [
      [client, server],
      [server, client],
    ]) {
      sockets.add(one.setNoDelay(true));
      one.on("error", () => other.destroy()).on("close", () => other.destroy());
      one.pipe(other);
    }
    server.on("data", (piece) => (seen.bytes += piece.length));
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const close = () => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  };
  return { seen, port: proxy.address().port, close };
}

const PAIRS = 100;

/** Bytes from the server for a pair of a name on which so many waits have timed out. */
export async function timedOutWaits(server, waits = [0, 500, 2000]) {
  const proxy = await countingProxy(server.port);
  const [locks, other] = [
    await connect(server.url.replace(`:${server.port}`, `:${proxy.port}`)),
    await connect(server.url),
  ];
  const pairs = async () => {
    for (let n = 0; n < PAIRS; n += 1) await (await locks.mutex("timed out").acquire()).release();
  };
  const rows = [];
  let done = 0;
  for (const many of waits) {
    const hold = await other.mutex("timed out").acquire();
    for (; done < many; done += 100) {
      const asked = Array.from({ length: 100 }, () => locks.mutex("timed out").acquire({ waitMs: 40 }));
      for (const { status } of await Promise.allSettled(asked)) {
        if (status !== "rejected") throw new Error("a wait was granted");
      }
    }
    await hold.release();
    await pairs();
    // What is only sent a while later, or in the background.
    await pause(500);
    const [before, start] = [proxy.seen.bytes, nanos()];
    await pairs();
    const taken = nanos() - start;
    rows.push([count(many), (proxy.seen.bytes - before) / PAIRS, taken / PAIRS]);
  }
  await Promise.all([locks.close(), other.close()]);
  proxy.close();
  const [[, first]] = rows;
  table(
    "a pair of a name on which waits have timed out",
    ["time-outs before", "bytes from the server", "beside none", "time"],
    rows.map(([many, bytes, each]) => [
      many,
      count(bytes),
      `${(bytes / first).toFixed(2)} ×`,
      `${count(each / 1000)} µs`,
    ]),
  );
}

/** Waiters that arrive behind another client's hold: what each takes of its client, until it is told that it waits. */
export async function arrivingWaiters(server, lengths = [10, 100, 1000]) {
  const holder = await connect(server.url, { leaseMs: 60_000 });
  const arrive = async (many, oneByOne) => {
    const name = `arriving ${many} ${oneByOne}`;
    const hold = await holder.mutex(name).acquire();
    const locks = await connect(server.url, { leaseMs: 60_000 });
    await (await locks.mutex("first").acquire()).release();
    let queued = 0;
    let told = () => {};
    locks.on("queued", () => {
      queued += 1;
      told();
    });
    const upTo = (wanted) => new Promise((resolve) => (told = () => queued >= wanted && resolve()));
    const before = heapUsed() + process.memoryUsage().external;
    const cpu = process.cpuUsage();
    const waits = [];
    for (let n = 0; n < many; n += 1) {
      const next = upTo(n + 1);
      waits.push(
        locks
          .mutex(name)
          .acquire()
          .catch(() => {}),
      );
      if (oneByOne) await next;
    }
    if (!oneByOne) await upTo(many);
    const { user, system } = process.cpuUsage(cpu);
    const bytes = heapUsed() + process.memoryUsage().external - before;
    await locks.close();
    await Promise.all(waits);
    await hold.release();
    return { bytes: bytes / many, us: (user + system) / many };
  };
  const rows = [];
  for (const oneByOne of [false, true]) {
    // Half of it would be code that V8 has not compiled yet.
    for (let n = 0; n < 10; n += 1) await arrive(100, oneByOne);
    for (const many of lengths) {
      const all = [];
      for (let n = 0; n < Math.max(3, Math.min(20, 1000 / many)); n += 1) all.push(await arrive(many, oneByOne));
      const [us, bytes] = ["us", "bytes"].map((figure) => median(all.map((one) => one[figure])));
      rows.push([
        `${count(many)}, ${oneByOne ? "one after the other" : "all at once"}`,
        `${count(us)} µs`,
        count(bytes),
      ]);
    }
  }
  await holder.close();
  table(
    "waiters that arrive behind another client's hold, each",
    ["waiters", "CPU of the client", "bytes of memory"],
    rows,
  );
}

/** Many pairs at once, on as many names, beside a contestant. */
export async function inFlight(at, contestants, rounds, many = 64) {
  const opened = {};
  for (const [name, { open }] of Object.entries(contestants)) opened[name] = await open(at);
  const measure = ([name, { take }]) => [
    name,
    async () => {
      let pairs = 0;
      const start = performance.now();
      const end = start + 500;
      const task = async (_, n) => {
        for (; performance.now() < end; pairs += 1) await (await take(`flight-${n}`))();
      };
      await Promise.all(Array.from({ length: many }, task));
      return (pairs * 1000) / (performance.now() - start);
    },
  ];
  const figures = await interleave(Object.fromEntries(Object.entries(opened).map(measure)), rounds, undefined, 3);
  for (const { close } of Object.values(opened)) await close();
  const names = Object.keys(contestants);
  const base = figures[names.at(-1)];
  table(
    `pairs a second, ${many} in flight on as many names, medians of ${rounds} interleaved rounds`,
    ["", "pairs/s", `beside ${names.at(-1)}`],
    names.map((name) => [name, count(median(figures[name])), `${ratio(figures[name], base).toFixed(2)} ×`]),
  );
}
